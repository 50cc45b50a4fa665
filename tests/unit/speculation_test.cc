// Speculation in generate(): whatever is proposed, by whom and how badly, the generation is the
// plain one in every observable: tokens, events, ending, logits, and the session it leaves.
#include "engine/speculation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "engine/generate.h"
#include "engine/ngram_drafter.h"
#include "support/drafters.h"
#include "support/property.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using test::drafters;
using test::eager;
using testing::HasSubstr;

struct Observed {
  Generation generation;
  std::vector<std::pair<Token, std::string>> events;  // token -1: none
  std::vector<Token> timeline;                        // of the session afterwards
  std::vector<float> logits;                          // likewise
};

// Everything but speed.
void expect_same(const Observed& a, const Observed& plain) {
  EXPECT_EQ(a.generation.tokens, plain.generation.tokens);
  EXPECT_EQ(a.generation.text, plain.generation.text);
  EXPECT_EQ(a.generation.finish, plain.generation.finish);
  EXPECT_EQ(a.generation.matched_stop, plain.generation.matched_stop);
  EXPECT_EQ(a.generation.decode_steps, plain.generation.decode_steps);
  EXPECT_EQ(a.generation.evaluated_tokens, plain.generation.evaluated_tokens);
  EXPECT_EQ(a.generation.logits_hash, plain.generation.logits_hash);
  EXPECT_EQ(a.events, plain.events);
  EXPECT_EQ(a.timeline, plain.timeline);
  EXPECT_TRUE(a.logits == plain.logits);
}

Observed observe(Model& model, Session& session, std::span<const Token> prompt,
                 const GenerateParams& params, std::atomic<bool>* cancel = nullptr,
                 std::size_t cancel_after = 0) {
  Observed out;
  GenerateHooks hooks;
  hooks.cancel = cancel;
  hooks.on_text = [&](const TextEvent& event) {
    out.events.emplace_back(event.token.value_or(-1), std::string(event.text));
    if (cancel != nullptr && out.events.size() == cancel_after) *cancel = true;
  };
  auto generation = generate(model, session, prompt, params, hooks);
  EXPECT_TRUE(generation) << generation.error().message;
  out.generation = *std::move(generation);
  out.timeline.assign(session.tokens().begin(), session.tokens().end());
  out.logits.assign(session.logits().begin(), session.logits().end());
  return out;
}

class SpeculationTest : public testing::Test {
 protected:
  // Each finds nothing of what others left in the cache.
  Session create(int capacity = 160) {
    auto session = Session::create(model_, capacity, ++salt_);
    EXPECT_TRUE(session) << session.error().message;
    return *std::move(session);
  }
  Observed run(const GenerateParams& params, int capacity = 160) {
    Session session = create(capacity);
    return observe(*model_, session, prompt_, params);
  }
  static GenerateParams greedy(int max_tokens) {
    GenerateParams params;
    params.sampling.temperature = 0;
    params.max_tokens = max_tokens;
    return params;
  }
  // A replay of `plain` that is wrong now and then, however params draw.
  static GenerateParams replaying(GenerateParams params, const Observed& plain,
                                  std::uint64_t one_wrong_in = 4) {
    params.speculation =
        eager(drafters<test::ReplayDrafter>(plain.generation.tokens, one_wrong_in));
    return params;
  }

  const std::shared_ptr<Model> model_ = test::open_twin_model("tiny-tied", Scheme::bf16, 24, "cpu");
  const std::vector<Token> prompt_ = test::random_tokens(40, 1);
  CacheSalt salt_ = 0;
};

TEST_F(SpeculationTest, SavesStepsAndChangesNothing) {
  const Observed plain = run(greedy(60));
  int evals = 0;
  for (const std::uint64_t one_wrong_in : {1000u, 4u, 2u, 1u}) {
    SCOPED_TRACE(one_wrong_in);
    const Observed speculative = run(replaying(greedy(60), plain, one_wrong_in));
    expect_same(speculative, plain);
    const SpeculationStats& stats = speculative.generation.speculation;
    const int saved = static_cast<int>(stats.accepted);
    if (one_wrong_in == 1000) {
      EXPECT_GE(saved, 50);
    } else if (one_wrong_in == 1) {
      EXPECT_EQ(saved, 0);
    }
    EXPECT_GE(stats.drafted, stats.accepted);
    EXPECT_GE(stats.drafted, stats.steps);
    EXPECT_GE(60 - saved, evals);  // the more errors, the more steps
    evals = 60 - saved;
  }
}

TEST_F(SpeculationTest, SampledTokensAreThoseOfPlainSampling) {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    GenerateParams params = greedy(24);
    params.sampling.temperature = 30;  // a tiny model's logits are far apart
    params.sampling.top_k = seed == 2 ? 20 : 0;
    params.sampling.top_p = seed == 3 ? 0.9f : 1;
    params.sampling.repetition_penalty = 1.3f;
    params.sampling.frequency_penalty = 1;
    params.sampling.seed = seed;
    const Observed plain = run(params);
    const Observed speculative = run(replaying(params, plain));
    expect_same(speculative, plain);
    EXPECT_GT(speculative.generation.speculation.accepted, 8u);
  }
}

TEST_F(SpeculationTest, EndsWhereverPlainDecodingEnds) {
  const Observed whole = run(greedy(20));
  for (int max_tokens = 0; max_tokens <= 20; ++max_tokens) {
    SCOPED_TRACE(fmt::format("max_tokens {}", max_tokens));
    expect_same(run(replaying(greedy(max_tokens), whole, 1000)), run(greedy(max_tokens)));
  }
  for (int capacity = 40; capacity <= 56; ++capacity) {
    SCOPED_TRACE(fmt::format("capacity {}", capacity));
    const Observed plain = run(greedy(2147483647), capacity);
    EXPECT_EQ(plain.timeline.size(), static_cast<std::size_t>(capacity));
    expect_same(run(replaying(greedy(2147483647), whole, 1000), capacity), plain);
  }
}

TEST_F(SpeculationTest, StopStringsAndStopTokensInsideAProposal) {
  const Observed whole = run(greedy(40));
  int stopped = 0;
  for (std::size_t i = 0; i + 2 < whole.generation.tokens.size(); i += 3) {
    GenerateParams params = greedy(40);
    const std::string text = model_->tokenizer().decode(
        std::span(whole.generation.tokens).subspan(i, 2), /*skip_special=*/true);
    if (text.size() < 2 || !StopMatcher::create({text.substr(1)})) continue;
    params.stop = {text.substr(1)};
    const Observed plain = run(params);
    stopped += plain.generation.finish == FinishReason::stop;
    expect_same(run(replaying(params, whole, 1000)), plain);
  }
  EXPECT_GT(stopped, 3);

  // Bias raises the stop token's logit until it is drawn somewhere in the middle.
  int ended = 0;
  for (float bias = 0; bias <= 100; bias += 12.5f) {
    for (const bool ignore : {false, true}) {
      GenerateParams params = greedy(20);
      params.sampling.logit_bias = {{kImEnd, bias}};
      params.ignore_eos = ignore;
      const Observed plain = run(params);
      ended += plain.generation.finish == FinishReason::stop;
      expect_same(run(replaying(params, plain, 1000)), plain);
    }
  }
  EXPECT_GT(ended, 0);
}

TEST_F(SpeculationTest, CancelInsideAProposalStopsAtTheSameToken) {
  const Observed whole = run(greedy(40));
  for (std::size_t after = 1; after < 20; after += 3) {
    std::atomic<bool> cancel = false;
    Session plain_session = create();
    const Observed plain = observe(*model_, plain_session, prompt_, greedy(40), &cancel, after);
    EXPECT_EQ(plain.generation.finish, FinishReason::interrupted);
    cancel = false;
    Session session = create();
    const GenerateParams params = replaying(greedy(40), whole, 1000);
    expect_same(observe(*model_, session, prompt_, params, &cancel, after), plain);
    // And the session goes on as if nothing had been proposed.
    cancel = false;
    expect_same(observe(*model_, session, prompt_, params, &cancel),
                observe(*model_, plain_session, prompt_, greedy(40), &cancel));
  }
}

TEST_F(SpeculationTest, NobodyFindsWhatWasProposedAndNotDrawn) {
  const Observed whole = run(greedy(100));
  const CacheSalt salt = 1000;
  const auto published = [&] { return model_->pool_stats().published; };
  const auto before = published();
  {
    auto session = Session::create(model_, 160, salt);
    ASSERT_TRUE(session);
    expect_same(observe(*model_, *session, prompt_, replaying(greedy(100), whole, 3)), whole);
    // 40 + 99 tokens fill four blocks, each published once, and no other.
    EXPECT_EQ(published() - before, 4u);
  }
  ASSERT_TRUE(model_->pool().check());
  auto again = Session::create(model_, 160, salt);
  ASSERT_TRUE(again);
  std::vector<Token> all = prompt_;
  all.insert(all.end(), whole.generation.tokens.begin(), whole.generation.tokens.end());
  const auto reused = again->sync(all);
  ASSERT_TRUE(reused);
  EXPECT_EQ(*reused, 128);
  Session cold = create();
  ASSERT_TRUE(cold.sync(all));
  EXPECT_TRUE(std::ranges::equal(again->logits(), cold.logits()));
}

TEST_F(SpeculationTest, AHostileDrafterOnlyWastesTime) {
  GenerateParams sampled = greedy(30);
  sampled.sampling.temperature = 30;
  for (GenerateParams params : {greedy(30), sampled}) {
    const Observed plain = run(params);
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      for (const int max_draft : {1, 8, kMaxDraft}) {
        params.speculation = eager(drafters<test::HostileDrafter>(seed), max_draft);
        expect_same(run(params), plain);
      }
    }
  }
}

TEST_F(SpeculationTest, ADrafterThatCannotBeMadeIsCountedAndMissed) {
  GenerateParams params = greedy(10);
  params.speculation = eager([](const DraftTask&) -> Result<std::unique_ptr<Drafter>> {
    return fail(ErrorCode::exhausted, "no room");
  });
  const Observed speculative = run(params);
  expect_same(speculative, run(greedy(10)));
  EXPECT_EQ(speculative.generation.speculation.failures, 1u);
  EXPECT_EQ(speculative.generation.speculation.drafted, 0u);
}

TEST_F(SpeculationTest, RefusesValuesOutOfRangeBeforeTouchingTheSession) {
  Session session = create();
  const auto refusal = [&](const Speculation& speculation) {
    GenerateParams params = greedy(3);
    params.speculation = speculation;
    const auto generation = generate(*model_, session, prompt_, params, {});
    return generation ? std::string() : generation.error().message;
  };
  EXPECT_EQ(refusal(ngram_speculation(*model_, 0)), "max_draft: expected 1 to 64 tokens, found 0");
  EXPECT_EQ(refusal(ngram_speculation(*model_, 65)),
            "max_draft: expected 1 to 64 tokens, found 65");
  EXPECT_THAT(refusal({.row_cost = -1}), HasSubstr("row_cost: expected a number from 0 to 1"));
  EXPECT_THAT(refusal({.row_cost = std::nan("")}), HasSubstr("row_cost"));
  EXPECT_TRUE(session.tokens().empty());
}

}  // namespace
}  // namespace kipp
