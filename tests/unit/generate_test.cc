// The generation loop on a tiny model whose continuations are arbitrary but reproducible: what ends
// it, what streams, and what the counts say.
#include "engine/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <xxhash.h>

#include "support/tiny_model.h"
#include "tokenizer/detokenizer.h"

namespace kipp {
namespace {

using testing::HasSubstr;

class GenerateTest : public testing::Test {
 protected:
  // Each finds nothing of what others left in the cache.
  Session create(int capacity = 128) {
    auto session = Session::create(model_, capacity, ++salt_);
    EXPECT_TRUE(session) << session.error().message;
    return *std::move(session);
  }
  Generation run(Session& session, const GenerateParams& params, const GenerateHooks& hooks = {}) {
    auto generation = generate(*model_, session, prompt_, params, hooks);
    EXPECT_TRUE(generation) << generation.error().message;
    return *std::move(generation);
  }
  Generation run(const GenerateParams& params, const GenerateHooks& hooks = {}) {
    Session session = create();
    return run(session, params, hooks);
  }
  static GenerateParams greedy(int max_tokens) {
    GenerateParams params;
    params.sampling.temperature = 0;
    params.max_tokens = max_tokens;
    return params;
  }
  // Makes `token` the greedy choice of every draw.
  static GenerateParams forcing(Token token, int max_tokens) {
    GenerateParams params = greedy(max_tokens);
    params.sampling.logit_bias = {{token, 100.f}};
    return params;
  }

  const std::shared_ptr<Model> model_ = test::open_twin_model("tiny-tied", Scheme::bf16, 16);
  const std::vector<Token> prompt_ = test::random_tokens(40, 1);
  CacheSalt salt_ = 0;
};

TEST_F(GenerateTest, GivesTheSameTokensAsStepsByHand) {
  GenerateParams random = greedy(6);
  random.sampling.temperature = 50;  // a tiny model's logits are far apart
  random.sampling.seed = 3;
  GenerateParams penalized = greedy(6);
  penalized.sampling.repetition_penalty = 4;
  for (const GenerateParams& params : {greedy(6), random, penalized}) {
    Session session = create();
    const Generation generation = run(session, params);
    std::vector<Token> by_hand;
    Session fresh = create();
    ASSERT_TRUE(fresh.sync(prompt_));
    for (std::size_t i = 0; i < 6; ++i) {
      by_hand.push_back(sample(fresh.logits(), params.sampling, {prompt_, by_hand}, i));
      if (i + 1 < 6) {
        ASSERT_TRUE(fresh.append(by_hand.back()));
      }
    }
    EXPECT_EQ(generation.tokens, by_hand);
    EXPECT_EQ(generation.finish, FinishReason::length);
    EXPECT_EQ(generation.text,
              to_valid_utf8(model_->tokenizer().decode(by_hand, /*skip_special=*/true)));
    EXPECT_EQ(generation.prompt_tokens, 40);
    EXPECT_EQ(generation.reused_tokens, 0);
    EXPECT_EQ(generation.evaluated_tokens, 40);
    EXPECT_EQ(generation.decode_steps, 5);
    EXPECT_EQ(session.tokens().size(), 45u);
    EXPECT_EQ(generation.logits_hash,
              XXH3_64bits(fresh.logits().data(), fresh.logits().size_bytes()));
  }
}

TEST_F(GenerateTest, AnIncompleteCharacterComesOutReplaced) {
  const Token half = qwen_vocabulary().byte_token[0xf0];
  EXPECT_EQ(run(forcing(half, 1)).text, "\uFFFD");
}

TEST_F(GenerateTest, StreamsWhatItReturns) {
  GenerateParams params = greedy(24);
  params.sampling.temperature = 1;
  params.sampling.seed = 3;
  std::string streamed;
  std::vector<Token> tokens;
  const GenerateHooks hooks{.on_text =
                                [&](const TextEvent& event) {
                                  streamed += event.text;
                                  if (event.token) tokens.push_back(*event.token);
                                },
                            .on_prompt = {},
                            .cancel = nullptr};
  const Generation generation = run(params, hooks);
  EXPECT_EQ(streamed, generation.text);
  EXPECT_EQ(tokens, generation.tokens);
  EXPECT_EQ(to_valid_utf8(streamed), streamed);
}

TEST_F(GenerateTest, ReusesWhatTheSessionHolds) {
  Session session = create();
  const Generation first = run(session, greedy(4));
  const Generation second = run(session, greedy(4));
  EXPECT_EQ(second.tokens, first.tokens);
  EXPECT_EQ(second.logits_hash, first.logits_hash);
  EXPECT_EQ(second.reused_tokens, 39);
  EXPECT_EQ(second.evaluated_tokens, 1);
}

TEST_F(GenerateTest, ZeroTokensEvaluateThePromptOnly) {
  Session session = create();
  const Generation generation = run(session, greedy(0));
  EXPECT_TRUE(generation.tokens.empty());
  EXPECT_EQ(generation.finish, FinishReason::length);
  EXPECT_EQ(session.tokens().size(), prompt_.size());
  EXPECT_TRUE(generation.logits_hash.has_value());
}

TEST_F(GenerateTest, AStopTokenEndsItUnlessIgnored) {
  const Generation stopped = run(forcing(kImEnd, 5));
  EXPECT_EQ(stopped.finish, FinishReason::stop);
  EXPECT_EQ(stopped.tokens, std::vector<Token>{kImEnd});
  EXPECT_EQ(stopped.text, "");
  EXPECT_EQ(stopped.matched_stop, "");

  GenerateParams params = forcing(kImEnd, 5);
  params.ignore_eos = true;
  const Generation ignored = run(params);
  EXPECT_EQ(ignored.finish, FinishReason::length);
  EXPECT_EQ(ignored.tokens, std::vector<Token>(5, kImEnd));
  EXPECT_EQ(ignored.text, "");
}

TEST_F(GenerateTest, AStopStringEndsItAndIsNotEmitted) {
  const Token hello = 9707;
  GenerateParams params = forcing(hello, 10);
  params.stop = {"loHel"};  // across two tokens, and it ends inside the second
  std::string streamed;
  const GenerateHooks hooks{.on_text = [&](const TextEvent& event) { streamed += event.text; },
                            .on_prompt = {},
                            .cancel = nullptr};
  const Generation generation = run(params, hooks);
  EXPECT_EQ(generation.finish, FinishReason::stop);
  EXPECT_EQ(generation.text, "Hel");
  EXPECT_EQ(streamed, "Hel");
  EXPECT_EQ(generation.matched_stop, "loHel");
  EXPECT_EQ(generation.tokens.size(), 2u);
}

TEST_F(GenerateTest, WhatWaitsForAStopStringComesOutAtTheEnd) {
  GenerateParams params = forcing(9707, 3);
  params.stop = {"HelloHelloHello!"};
  EXPECT_EQ(run(params).text, "HelloHelloHello");
  params.stop = {"oH",
                 "HelloHelloHello!"};  // the match inside is certain only when the stream ends
  const Generation generation = run(params);
  EXPECT_EQ(generation.text, "Hell");
  EXPECT_EQ(generation.finish, FinishReason::stop);
}

TEST_F(GenerateTest, AFullSessionEndsItWithLength) {
  Session session = create(42);
  const Generation generation = run(session, greedy(2147483647));
  EXPECT_EQ(generation.finish, FinishReason::length);
  // Positions 40 and 41 hold the first two drawn tokens; the third needs none.
  EXPECT_EQ(generation.tokens.size(), 3u);
  EXPECT_EQ(session.tokens().size(), 42u);
}

TEST_F(GenerateTest, CancelStopsBetweenTokensAndKeepsTheText) {
  std::atomic<bool> cancel = false;
  int events = 0;
  const GenerateHooks hooks{.on_text = [&](const TextEvent&) { cancel = ++events == 3; },
                            .on_prompt = {},
                            .cancel = &cancel};
  Session session = create();
  const Generation generation = run(session, greedy(50), hooks);
  EXPECT_EQ(generation.finish, FinishReason::interrupted);
  EXPECT_EQ(generation.tokens.size(), 3u);
  EXPECT_EQ(generation.text, run(greedy(3)).text);
  cancel = false;
  EXPECT_EQ(run(session, greedy(5)).tokens, run(greedy(5)).tokens);
}

TEST_F(GenerateTest, CancelInThePromptIsNoError) {
  const std::atomic<bool> cancel = true;
  const Generation generation = run(greedy(5), {.on_text = {}, .on_prompt = {}, .cancel = &cancel});
  EXPECT_EQ(generation.finish, FinishReason::interrupted);
  EXPECT_TRUE(generation.tokens.empty());
  EXPECT_EQ(generation.evaluated_tokens, 0);
  EXPECT_FALSE(generation.logits_hash.has_value());
}

TEST_F(GenerateTest, RefusesBadValuesBeforeTouchingTheSession) {
  Session session = create();
  run(session, greedy(3));
  const std::vector<Token> before(session.tokens().begin(), session.tokens().end());
  const auto refusal = [&](std::span<const Token> prompt, const GenerateParams& params) {
    const auto generation = generate(*model_, session, prompt, params, {});
    EXPECT_FALSE(generation);
    return generation ? std::string() : generation.error().message;
  };
  GenerateParams params = greedy(3);
  params.sampling.top_p = 0;
  EXPECT_THAT(refusal(prompt_, params), HasSubstr("top_p"));
  EXPECT_THAT(refusal(prompt_, greedy(-1)), HasSubstr("max_tokens: expected at least 0, found -1"));
  params = greedy(3);
  params.stop = {""};
  EXPECT_THAT(refusal(prompt_, params), HasSubstr("stop[0]"));
  EXPECT_THAT(refusal(test::random_tokens(200, 2), greedy(3)), HasSubstr("128"));
  EXPECT_THAT(refusal({}, greedy(3)), HasSubstr("prompt"));
  EXPECT_EQ(std::vector<Token>(session.tokens().begin(), session.tokens().end()), before);
}

}  // namespace
}  // namespace kipp
