// min_tokens: so many tokens are drawn before a stop token or a stop string may end a generation,
// in generate() and in the engine, with and without proposals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/generate.h"
#include "support/drafters.h"
#include "support/engine_harness.h"
#include "support/random_floats.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using test::CoreHarness;
using testing::HasSubstr;

constexpr Token kHello = 9707;  // "Hello"

TEST(Barred, TokensCountAsMinusInfinity) {
  const std::vector<float> logits = test::normal_floats(1, kVocabRows, 3);
  std::vector<SamplingParams> rules;
  rules.push_back({.temperature = 0, .logit_bias = {}});
  rules.push_back({.temperature = 1, .logit_bias = {}});
  rules.push_back({.temperature = 1, .top_k = 3, .logit_bias = {}});
  rules.push_back({.temperature = 2, .top_p = 0.5f, .logit_bias = {}});
  rules.push_back({.temperature = 1, .min_p = 0.3f, .logit_bias = {}});
  rules.push_back({.temperature = 0, .repetition_penalty = 1.5f, .logit_bias = {}});
  for (SamplingParams& params : rules) {
    params.seed = 5;
    std::vector<Token> barred;
    std::vector<float> without = logits;
    // The best ones, one after the other: each time somebody else has to come.
    for (std::uint64_t draw = 0; draw < 6; ++draw) {
      const Token token = sample(logits, params, {{}, {}, barred}, draw);
      EXPECT_EQ(std::ranges::count(barred, token), 0);
      EXPECT_EQ(token, sample(without, params, {}, draw));
      barred.push_back(token);
      without[static_cast<std::size_t>(token)] = -std::numeric_limits<float>::infinity();
    }
    // A bias does not bring them back.
    params.logit_bias = {{barred[0], 100.f}};
    EXPECT_NE(sample(logits, params, {{}, {}, barred}, 0), barred[0]);
  }
}

// Of each push, then of finish.
std::vector<std::string> emitted(std::vector<std::string> stops, int min_tokens,
                                 const std::vector<Token>& tokens) {
  TextStream stream(Tokenizer(), *StopMatcher::create(std::move(stops)), min_tokens);
  std::vector<std::string> out;
  for (const Token token : tokens) out.push_back(stream.push(token));
  out.push_back(stream.finish());
  out.push_back(stream.stopped() ? "stopped by " + stream.matched_stop() : "went on");
  return out;
}

TEST(TextStream, LooksForStopStringsBehindTheFirstTokens) {
  using testing::ElementsAre;
  const std::vector<Token> four(4, kHello);
  EXPECT_THAT(emitted({"lo"}, 0, four), ElementsAre("Hel", "", "", "", "", "stopped by lo"));
  EXPECT_THAT(emitted({"lo"}, 2, four),
              ElementsAre("Hello", "Hello", "Hel", "", "", "stopped by lo"));
  // What begins before goes out at once, and is none.
  EXPECT_THAT(emitted({"loHel"}, 1, four),
              ElementsAre("Hello", "Hel", "", "", "", "stopped by loHel"));
  EXPECT_THAT(emitted({"loHel"}, 3, four),
              ElementsAre("Hello", "Hello", "Hello", "Hel", "lo", "went on"));
  EXPECT_THAT(emitted({"lo"}, 4, four),
              ElementsAre("Hello", "Hello", "Hello", "Hello", "", "went on"));
}

TEST(TextStream, ACharacterBelongsToTheTokenThatCompletesIt) {
  using testing::ElementsAre;
  const auto& bytes = qwen_vocabulary().byte_token;
  const std::vector<Token> e_acute = {bytes[0xc3], bytes[0xa9]};
  EXPECT_THAT(emitted({"é"}, 1, e_acute), ElementsAre("", "", "", "stopped by é"));
  EXPECT_THAT(emitted({"é"}, 2, e_acute), ElementsAre("", "é", "", "went on"));
  // The end replaces what never became one; it is the last token's.
  EXPECT_THAT(emitted({"\uFFFD"}, 1, {bytes[0xc3]}), ElementsAre("", "\uFFFD", "went on"));
  EXPECT_THAT(emitted({"\uFFFD"}, 0, {bytes[0xc3]}), ElementsAre("", "", "stopped by \uFFFD"));
}

class MinTokens : public testing::Test {
 protected:
  static constexpr int kCapacity = 96;

  Generation run(const GenerateParams& params) {
    auto session = Session::create(model_, kCapacity, ++salt_);
    EXPECT_TRUE(session);
    auto generation = generate(*model_, *session, prompt_, params, {});
    EXPECT_TRUE(generation) << generation.error().message;
    return *std::move(generation);
  }
  // Makes `token` the greedy choice wherever it may be drawn.
  static GenerateParams forcing(Token token, int min_tokens, int max_tokens) {
    GenerateParams params;
    params.sampling.temperature = 0;
    params.sampling.logit_bias = {{token, 100.f}};
    params.min_tokens = min_tokens;
    params.max_tokens = max_tokens;
    return params;
  }

  const std::shared_ptr<Model> model_ = test::open_twin_model("tiny-tied", Scheme::bf16, 16, "cpu");
  const std::vector<Token> prompt_ = test::random_tokens(20, 1);
  CacheSalt salt_ = 0;
};

TEST_F(MinTokens, AStopTokenIsDrawnNoSooner) {
  const auto stops = model_->checkpoint().stop_tokens;
  for (const int min_tokens : {0, 1, 4, 7}) {
    SCOPED_TRACE(min_tokens);
    const Generation generation = run(forcing(kImEnd, min_tokens, 8));
    EXPECT_EQ(generation.finish, FinishReason::stop);
    ASSERT_EQ(generation.tokens.size(), static_cast<std::size_t>(min_tokens) + 1);
    EXPECT_EQ(generation.tokens.back(), kImEnd);
    for (std::size_t i = 0; i + 1 < generation.tokens.size(); ++i) {
      EXPECT_EQ(std::ranges::count(stops, generation.tokens[i]), 0);
    }
  }
  const Generation full = run(forcing(kImEnd, 8, 8));
  EXPECT_EQ(full.finish, FinishReason::length);
  EXPECT_EQ(full.tokens.size(), 8u);
}

TEST_F(MinTokens, IgnoredStopTokensAreOrdinaryOnes) {
  GenerateParams params = forcing(kImEnd, 3, 5);
  params.ignore_eos = true;
  const Generation generation = run(params);
  EXPECT_EQ(generation.finish, FinishReason::length);
  EXPECT_EQ(generation.tokens, std::vector<Token>(5, kImEnd));
}

TEST_F(MinTokens, AStopStringEndsItNoSooner) {
  GenerateParams params = forcing(kHello, 4, 10);
  params.stop = {"loHel"};
  const Generation generation = run(params);
  EXPECT_EQ(generation.finish, FinishReason::stop);
  EXPECT_EQ(generation.matched_stop, "loHel");
  EXPECT_EQ(generation.tokens.size(), 6u);
  EXPECT_EQ(generation.text, "HelloHelloHelloHelloHel");
  params.min_tokens = 10;
  EXPECT_EQ(run(params).finish, FinishReason::length);
}

// Generations that end at, before and behind their fewest tokens.
std::vector<GenerateParams> many_params() {
  std::vector<GenerateParams> all;
  for (const int min_tokens : {0, 3, 12}) {
    for (const float bias : {40.f, 100.f}) {
      for (const bool ignore : {false, true}) {
        GenerateParams params;
        params.sampling.temperature =
            bias == 40.f ? 30.f : 0.f;  // a tiny model's logits are far apart
        params.sampling.seed = 3;
        params.sampling.logit_bias = {{kImEnd, bias}, {kHello, 80.f}};
        params.max_tokens = 12;
        params.min_tokens = min_tokens;
        params.stop = {"oHelloH"};
        params.ignore_eos = ignore;
        all.push_back(params);
      }
    }
  }
  return all;
}

TEST_F(MinTokens, EngineAndProposalsGiveTheSame) {
  std::vector<Generation> alone;
  std::uint64_t accepted = 0;
  for (GenerateParams params : many_params()) {
    alone.push_back(run(params));
    params.speculation = test::eager(test::drafters<test::ReplayDrafter>(alone.back().tokens, 5u));
    const Generation speculative = run(params);
    EXPECT_EQ(speculative.tokens, alone.back().tokens);
    EXPECT_EQ(speculative.text, alone.back().text);
    EXPECT_EQ(speculative.finish, alone.back().finish);
    EXPECT_EQ(speculative.logits_hash, alone.back().logits_hash);
    accepted += speculative.speculation.accepted;
  }
  EXPECT_GT(accepted, 20u);

  for (const bool speculates : {false, true}) {
    const auto claimed = *Model::claim(model_);
    EngineOptions options{.max_sequences = 8, .max_queue = 100};
    if (speculates) {
      options.speculation = test::eager(test::drafters<test::ReplayDrafter>(alone[0].tokens, 5u));
    }
    auto core = EngineCore::create({.backend = &claimed->backend(),
                                    .pool = &claimed->pool(),
                                    .tokenizer = &claimed->tokenizer(),
                                    .stop_tokens = claimed->checkpoint().stop_tokens,
                                    .context_length = kCapacity},
                                   options);
    ASSERT_TRUE(core);
    std::vector<test::Received> received(alone.size());
    std::size_t i = 0;
    for (const GenerateParams& params : many_params()) {
      Request request;
      request.prompt = prompt_;
      request.sampling = params.sampling;
      request.max_tokens = params.max_tokens;
      request.min_tokens = params.min_tokens;
      request.stop = params.stop;
      request.ignore_eos = params.ignore_eos;
      auto sequence = (*core)->prepare(
          std::move(request),
          [&mine = received[i]](RequestId, Event event) { mine.add(std::move(event)); });
      ASSERT_TRUE(sequence);
      (*core)->submit(*std::move(sequence));
      ++i;
    }
    while ((*core)->step()) {
    }
    for (i = 0; i < alone.size(); ++i) {
      SCOPED_TRACE(fmt::format("request {}", i));
      ASSERT_TRUE(received[i].ended_once() && received[i].finished);
      EXPECT_EQ(received[i].text, alone[i].text);
      EXPECT_EQ(received[i].finished->reason, alone[i].finish);
      EXPECT_EQ(received[i].finished->matched_stop, alone[i].matched_stop);
      EXPECT_EQ(received[i].finished->usage.generated_tokens,
                static_cast<int>(alone[i].tokens.size()));
      EXPECT_EQ(received[i].finished->logits_hash, alone[i].logits_hash);
    }
  }
}

TEST_F(MinTokens, RefusesNumbersOutOfRange) {
  CoreHarness harness;
  auto session = Session::create(model_, kCapacity);
  ASSERT_TRUE(session);
  for (const int min_tokens : {-1, 6}) {
    const auto message =
        fmt::format("min_tokens: expected 0 to 5 (max_tokens), found {}", min_tokens);
    Request request = test::greedy(prompt_, 5);
    request.min_tokens = min_tokens;
    const auto refused = harness.try_submit(request);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::invalid);
    EXPECT_EQ(refused.error().message, message);
    const auto generation =
        generate(*model_, *session, prompt_, forcing(kHello, min_tokens, 5), {});
    ASSERT_FALSE(generation);
    EXPECT_EQ(generation.error().message, message);
  }
  EXPECT_TRUE(session->tokens().empty());
}

}  // namespace
}  // namespace kipp
