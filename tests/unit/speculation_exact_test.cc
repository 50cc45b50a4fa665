// A thousand prompts, half of whose material repeats: speculative decoding draws the tokens of
// plain decoding, by prompt lookup and by a draft checkpoint, alone and among others, on trained
// and on random weights, on both backends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "engine/engine.h"
#include "engine/generate.h"
#include "engine/model_drafter.h"
#include "engine/speculation.h"
#include "support/demo_model.h"
#include "support/drafters.h"
#include "support/engine_harness.h"
#include "support/sanitized.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using testing::HasSubstr;

// With a sanitizer a tenth of the prompts, of which perhaps none takes a proposal.
constexpr unsigned end_of(unsigned begin, unsigned end) {
  return test::kSanitized ? begin + (end - begin + 9) / 10 : end;
}
void expect_accepted(std::uint64_t accepted, std::uint64_t least) {
  if (!test::kSanitized) {
    EXPECT_GT(accepted, least);
  }
}

constexpr int kCapacity = 96;
constexpr int kBlocks = 64;

// Odd ones are a sentence that repeats and is cut short, even ones are random.
std::vector<Token> prompt_of(unsigned i) {
  if (i % 2 == 0) return test::random_tokens(4 + i % 9, i);
  static constexpr std::string_view kNames[] = {"Tom", "Anna", "The dog", "Lily", "Mum"};
  static constexpr std::string_view kThings[] = {"ball", "hat",  "boat", "kite",
                                                 "cake", "bird", "box"};
  static constexpr std::string_view kColours[] = {"red", "big", "blue", "old"};
  const std::string_view name = kNames[i % std::size(kNames)];
  const std::string sentence =
      fmt::format("{} saw a {} {}. ", name, kColours[i / 2 % std::size(kColours)],
                  kThings[i % std::size(kThings)]);
  return Tokenizer().encode(fmt::format("{0}{0}{0}{1}", sentence, name), AddedTokens::as_text);
}

// Every third samples.
GenerateParams params_of(unsigned i) {
  GenerateParams params;
  params.sampling.temperature = i % 3 == 0 ? 0.8f : 0.0f;
  params.sampling.top_k = i % 3 == 0 ? 2 : 0;
  params.sampling.seed = i;
  params.max_tokens = 8;
  params.ignore_eos = i % 5 == 0;
  return params;
}

// Returns how many proposed tokens were accepted.
std::uint64_t expect_same_tokens(const std::shared_ptr<Model>& model,
                                 const Speculation& speculation, unsigned begin, unsigned end) {
  std::uint64_t accepted = 0;
  for (unsigned i = begin; i < end_of(begin, end); ++i) {
    SCOPED_TRACE(fmt::format("prompt {}", i));
    const std::vector<Token> prompt = prompt_of(i);
    auto session = Session::create(model, kCapacity);
    if (!session) {
      ADD_FAILURE() << session.error().message;
      break;
    }
    GenerateParams params = params_of(i);
    const auto plain = generate(*model, *session, prompt, params, {});
    params.speculation = speculation;
    const auto speculative = generate(*model, *session, prompt, params, {});
    if (!plain || !speculative) {
      ADD_FAILURE();
      break;
    }
    EXPECT_EQ(speculative->tokens, plain->tokens);
    EXPECT_EQ(speculative->text, plain->text);
    EXPECT_EQ(speculative->finish, plain->finish);
    EXPECT_EQ(speculative->logits_hash, plain->logits_hash);
    EXPECT_EQ(speculative->speculation.failures, 0u);
    accepted += speculative->speculation.accepted;
  }
  return accepted;
}

// Sixteen requests at a time, in one engine that speculates or does not.
std::vector<test::Received> answers(const std::shared_ptr<Model>& model,
                                    const Speculation& speculation, unsigned begin, unsigned end,
                                    std::uint64_t& accepted) {
  std::vector<test::Received> received(end - begin);
  const auto engine =
      Engine::start(model, {.max_sequences = 16, .max_queue = 1000, .speculation = speculation});
  if (!engine) {
    ADD_FAILURE() << engine.error().message;
    return received;
  }
  for (unsigned i = begin; i < end; ++i) {
    const GenerateParams params = params_of(i);
    Request request;
    request.prompt = prompt_of(i);
    request.sampling = params.sampling;
    request.max_tokens = params.max_tokens;
    request.ignore_eos = params.ignore_eos;
    auto& mine = received[i - begin];
    EXPECT_TRUE((*engine)->submit(std::move(request),
                                  [&mine](RequestId, Event event) { mine.add(std::move(event)); }));
  }
  while ((*engine)->stats().finished + (*engine)->stats().failed < received.size()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  accepted = (*engine)->stats().speculation.accepted;
  return received;
}

std::uint64_t expect_same_answers(const std::shared_ptr<Model>& model,
                                  const Speculation& speculation, unsigned begin, unsigned end) {
  std::uint64_t accepted = 0;
  end = end_of(begin, end);
  const auto plain = answers(model, {}, begin, end, accepted);
  const auto speculative = answers(model, speculation, begin, end, accepted);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    SCOPED_TRACE(fmt::format("prompt {}", begin + i));
    if (!plain[i].finished || !speculative[i].finished) {
      ADD_FAILURE();
      continue;
    }
    EXPECT_EQ(speculative[i].tokens, plain[i].tokens);
    EXPECT_EQ(speculative[i].text, plain[i].text);
    EXPECT_EQ(speculative[i].how(), plain[i].how());
    EXPECT_EQ(speculative[i].finished->logits_hash, plain[i].finished->logits_hash);
  }
  return accepted;
}

// Proposes wherever it can.
Speculation cheap(Speculation speculation) {
  speculation.row_cost = 0;
  return speculation;
}

TEST(SpeculationExact, PromptLookupAmongManyRequests) {
  const auto twin = test::open_twin_model("tiny-tied", Scheme::bf16, kBlocks, "cpu");
  expect_accepted(expect_same_answers(twin, cheap(ngram_speculation(*twin)), 0, 820), 100u);
  const auto demo = test::open_demo("cpu", kBlocks);
  expect_accepted(expect_same_answers(demo, cheap(ngram_speculation(*demo)), 820, 880), 5u);
}

TEST(SpeculationExact, PromptLookupAlone) {
  const auto twin = test::open_twin_model("tiny-tied", Scheme::affine4_gs32, kBlocks, "cpu");
  expect_accepted(expect_same_tokens(twin, cheap(ngram_speculation(*twin)), 880, 940), 10u);
  const auto demo = test::open_demo("cpu", kBlocks);
  expect_accepted(expect_same_tokens(demo, cheap(ngram_speculation(*demo)), 940, 955), 1u);
}

TEST(SpeculationExact, PromptLookupOnTheReference) {
  const auto twin = test::open_twin_model("tiny-tied", Scheme::bf16, kBlocks, "reference");
  expect_accepted(expect_same_answers(twin, cheap(ngram_speculation(*twin)), 955, 967), 0u);
  const auto demo = test::open_demo("reference", kBlocks);
  expect_accepted(expect_same_tokens(demo, cheap(ngram_speculation(*demo)), 967, 973), 0u);
}

TEST(SpeculationExact, ADraftCheckpoint) {
  // The same weights in fewer bits agree often.
  const auto target = test::open_twin_model("tiny-untied", Scheme::bf16, kBlocks, "cpu");
  const auto close = test::open_twin_model("tiny-untied", Scheme::q8_0, 16 * 4, "cpu");
  // As if drafting were as cheap as it is for large models.
  const Speculation likely = test::eager([&](const DraftTask& task) {
    return Session::create(close, task.n_positions, task.salt)
        .map([&](Session session) -> std::unique_ptr<Drafter> {
          return std::make_unique<ModelDrafter>(std::move(session), task, 0.05, 0.0);
        });
  });
  expect_accepted(expect_same_tokens(target, likely, 973, 983), 30u);
  expect_accepted(expect_same_answers(target, likely, 983, 995), 20u);
  // Those of another checkpoint hardly ever.
  const auto demo = test::open_demo("cpu", kBlocks);
  const auto far = test::open_twin_model("tiny-tied", Scheme::bf16, kBlocks, "cpu");
  const auto hardly = model_speculation(*demo, far);
  ASSERT_TRUE(hardly) << hardly.error().message;
  expect_same_tokens(demo, *hardly, 995, 1000);
}

TEST(SpeculationExact, ADraftThatCouldNeverBeFasterIsRefused) {
  const auto small = test::open_twin_model("tiny-tied", Scheme::bf16, 4);
  const auto large = test::open_twin_model("tiny-untied", Scheme::bf16, 4);
  const auto refused = model_speculation(*small, large);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid);
  EXPECT_THAT(refused.error().message,
              HasSubstr("draft model: expected fewer bytes than tiny-tied"));
  EXPECT_FALSE(model_speculation(*small, small));
}

TEST(SpeculationExact, ADraftWithoutMemoryIsDoneWithout) {
  const auto target = test::open_twin_model("tiny-untied", Scheme::bf16, 8);
  const auto draft = test::open_twin_model("tiny-tied", Scheme::bf16, 1);
  const auto speculation = model_speculation(*target, draft);
  ASSERT_TRUE(speculation);
  auto session = Session::create(target, kCapacity);
  ASSERT_TRUE(session);
  GenerateParams params = params_of(1);
  const auto plain = generate(*target, *session, prompt_of(1), params, {});
  params.speculation = *speculation;
  const auto speculative = generate(*target, *session, prompt_of(1), params, {});
  ASSERT_TRUE(plain && speculative);
  EXPECT_EQ(speculative->tokens, plain->tokens);
  EXPECT_EQ(speculative->speculation.failures, 1u);
}

}  // namespace
}  // namespace kipp
