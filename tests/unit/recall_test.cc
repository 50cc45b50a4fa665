// Answers are scored as greedy decoding would give them.
#include "engine/recall.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/logprobs.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

constexpr int kContext = 64;

class Recall : public ::testing::Test {
 protected:
  std::shared_ptr<Model> model_ = test::open_twin_model("tiny-tied", Scheme::bf16, 8, "cpu");
  Session session_ = *Session::create(model_, kContext);

  // What greedy decoding writes after `prompt`, and the log-probability of it.
  std::pair<std::vector<Token>, double> greedy(const std::vector<Token>& prompt, int n) {
    auto session = *Session::create(model_, kContext);
    EXPECT_TRUE(session.sync(prompt));
    std::vector<Token> answer;
    double logprob = 0;
    for (int i = 0; i < n; ++i) {
      const TokenLogprob best = top_logprobs(session.logits(), 1).front();
      answer.push_back(best.token);
      logprob += static_cast<double>(best.logprob);
      EXPECT_TRUE(session.append(best.token));
    }
    return {answer, logprob};
  }
};

TEST_F(Recall, WhatGreedyDecodingWritesIsGiven) {
  std::vector<RecallCase> cases;
  double logprob = 0;
  for (const std::size_t length : {1u, 31u, 32u, 40u}) {
    const auto prompt = test::random_tokens(length, 3);
    const auto [answer, all] = greedy(prompt, 5);
    logprob = all;
    cases.push_back({prompt, answer});
    // One token of it another: the first, the last.
    for (const std::size_t at : {0u, 4u}) {
      auto wrong = answer;
      wrong[at] = answer[at] == 7 ? 8 : 7;
      cases.push_back({prompt, wrong});
    }
    cases.push_back({prompt, {answer.front()}});
  }
  const auto scores = score_recall(session_, cases);
  ASSERT_TRUE(scores) << scores.error().message;
  ASSERT_EQ(scores->size(), cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ((*scores)[i].given, i % 4 == 0 || i % 4 == 3) << i;
  }
  // Over all rows, where that of the other is over the ids that name tokens.
  EXPECT_NEAR((*scores)[12].nll, -logprob, 0.1);
  EXPECT_LT((*scores)[12].nll, (*scores)[14].nll);
}

TEST_F(Recall, CancelKeepsTheCasesBefore) {
  const auto prompt = test::random_tokens(20, 5);
  const std::vector<RecallCase> cases(4, {prompt, {1, 2}});
  std::atomic<bool> cancel = false;
  std::size_t last = 0;
  const auto scores = score_recall(session_, cases,
                                   {.progress =
                                        [&](std::size_t done, std::size_t total) {
                                          EXPECT_EQ(total, 80u);
                                          EXPECT_GE(done, last);
                                          last = done;
                                          cancel = done >= 40;
                                        },
                                    .cancel = &cancel});
  ASSERT_TRUE(scores);
  EXPECT_EQ(scores->size(), 2u);
}

TEST_F(Recall, RefusesWhatHasNoRoom) {
  const auto refused = [&](std::size_t prompt, std::size_t answer) {
    const std::vector<RecallCase> cases = {
        {{1}, {2}}, {test::random_tokens(prompt, 1), test::random_tokens(answer, 2)}};
    const auto scores = score_recall(session_, cases);
    return scores ? std::string() : scores.error().message;
  };
  EXPECT_EQ(refused(60, 5), "case 2: expected at most 64 tokens, found 65");
  EXPECT_EQ(refused(60, 4), "");
  EXPECT_EQ(refused(0, 4), "case 2: expected a prompt and an answer, found none");
  EXPECT_EQ(refused(4, 0), "case 2: expected a prompt and an answer, found none");
}

}  // namespace
}  // namespace kipp
