// Log-probabilities of a prompt: those of its own tokens, whatever is cached, however it is cut and
// whoever runs beside it; and nobody waits longer for it than for any prompt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "engine/ngram_drafter.h"
#include "engine/perplexity.h"
#include "support/demo_model.h"
#include "support/drafters.h"
#include "support/engine_harness.h"
#include "support/sanitized.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using test::CoreHarness;
using test::expect_answer;
using test::expected_answer;
using test::greedy;
using test::HistoryDrafter;
using test::Received;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kContext = 4096;

Request scored(std::vector<Token> prompt, int max_tokens, int best) {
  Request request = greedy(std::move(prompt), max_tokens);
  request.prompt_logprobs = best;
  return request;
}

TEST(PromptLogprobs, ComeInOrderAndWholeBeforeTheFirstDrawnToken) {
  CoreHarness harness({.max_step_tokens = 16, .max_logit_rows = 7}, {.max_sequences = 2});
  const Request request = scored(test::random_tokens(18, 1), 2, 3);
  std::vector<std::string> told;
  Received received;
  auto sequence = harness.core->prepare(request, [&](RequestId, Event event) {
    if (const auto* part = std::get_if<PromptLogprobs>(&event)) {
      told.push_back(fmt::format("{}..{}", part->first,
                                 part->first + static_cast<int>(part->tokens.size()) - 1));
    } else if (std::holds_alternative<TextDelta>(event)) {
      told.push_back("text");
    }
    received.add(std::move(event));
  });
  ASSERT_TRUE(sequence);
  harness.core->submit(*std::move(sequence));
  harness.run();
  EXPECT_THAT(told, ElementsAre("1..7", "8..14", "15..17", "text", "text"));
  expect_answer(received, expected_answer(request, harness.stop_tokens, kContext));
  for (std::size_t i = 0; i < received.prompt_logprobs.size(); ++i) {
    const auto logits = test::HistoryBackend::logits_after(std::span(request.prompt).first(i + 1));
    EXPECT_EQ(received.prompt_logprobs[i], logprobs_of(logits, request.prompt[i + 1], 3));
  }
}

TEST(PromptLogprobs, OfOneTokenThereAreNone) {
  CoreHarness harness;
  for (const int max_tokens : {0, 2}) {
    const Request request = scored({7}, max_tokens, 5);
    const RequestId id = harness.submit(request);
    harness.run();
    expect_answer(harness.received[id], expected_answer(request, harness.stop_tokens, kContext));
  }
}

// The last chunk may hold the last token alone, which predicts nothing of the prompt.
TEST(PromptLogprobs, AreCompleteWhereverTheChunksEnd) {
  for (int rows = 1; rows <= 12; ++rows) {
    CoreHarness harness({.max_step_tokens = 16, .max_logit_rows = rows}, {.max_sequences = 1});
    const Request request = scored(test::random_tokens(11, 2), 1, 0);
    const RequestId id = harness.submit(request);
    EXPECT_EQ(harness.run(), (11 + rows - 1) / rows);
    expect_answer(harness.received[id], expected_answer(request, harness.stop_tokens, kContext));
  }
}

TEST(PromptLogprobs, AreEvaluatedWhateverIsCachedAndLeaveItToOthers) {
  CoreHarness harness;
  const auto prompt = test::random_tokens(70, 1);
  const auto cached_of = [&](const Request& request) {
    const RequestId id = harness.submit(request);
    harness.run();
    expect_answer(harness.received[id], expected_answer(request, harness.stop_tokens, kContext));
    return harness.received[id].finished->usage.cached_tokens;
  };
  EXPECT_EQ(cached_of(scored(prompt, 2, 1)), 0);
  EXPECT_EQ(cached_of(greedy(prompt, 2)), 64);
  EXPECT_EQ(cached_of(scored(prompt, 2, 1)), 0);
  EXPECT_EQ(harness.core->stats().prompt_tokens, 146u);
  // It asks nobody, and its blocks are the ones that were there.
  const PoolStats stats = harness.pool.stats();
  EXPECT_EQ(stats.lookups, 1u);
  EXPECT_EQ(stats.published, 2u);
  EXPECT_EQ(stats.deduplicated, 2u);
}

TEST(PromptLogprobs, WhatANeighbourPublishesMeanwhileIsNotSkipped) {
  CoreHarness harness({.max_step_tokens = 64, .max_logit_rows = 8}, {.max_sequences = 3});
  const auto prompt = test::random_tokens(130, 1);
  const Request slow = scored(prompt, 2, 0);
  const RequestId a = harness.submit(slow);
  const RequestId b = harness.submit(greedy(prompt, 2));
  harness.run();
  expect_answer(harness.received[a], expected_answer(slow, harness.stop_tokens, kContext));
  EXPECT_EQ(harness.received[a].finished->usage.cached_tokens, 0);
  EXPECT_TRUE(harness.received[b].ended_once());
}

TEST(PromptLogprobs, AShortPromptDoesNotWaitForTheRowsOfALongOne) {
  CoreHarness harness({.max_step_tokens = 64, .max_logit_rows = 8}, {.max_sequences = 4});
  harness.submit(scored(test::random_tokens(200, 1), 1, 0));
  const RequestId brief = harness.submit(greedy(test::random_tokens(20, 2), 1));
  harness.step();
  EXPECT_TRUE(harness.received[brief].ended());
}

TEST(PromptLogprobs, ProposalsThatWouldTakeEveryRowLeaveSome) {
  CoreHarness harness(
      {.max_step_tokens = 40, .max_logit_rows = 6},
      {.max_sequences = 3, .speculation = test::eager(test::drafters<HistoryDrafter>(1000), 16)});
  harness.submit(greedy(test::random_tokens(5, 1), 1000));
  harness.step();
  const Request request = scored(test::random_tokens(60, 2), 1, 0);
  const RequestId id = harness.submit(request);
  // At least a row a step.
  for (int i = 0; i < 60 && !harness.received[id].ended(); ++i) harness.step();
  expect_answer(harness.received[id], expected_answer(request, harness.stop_tokens, kContext));
}

TEST(PromptLogprobs, CancelledWithinThePromptEndsAtOnce) {
  CoreHarness harness({.max_step_tokens = 64, .max_logit_rows = 16}, {.max_sequences = 4});
  const RequestId id = harness.submit(scored(test::random_tokens(100, 1), 5, 0));
  harness.step();
  harness.step();
  harness.core->cancel(id);
  const Received& received = harness.received[id];
  EXPECT_TRUE(received.ended_once());
  EXPECT_EQ(received.how(), "interrupted");
  EXPECT_EQ(received.prompt_logprobs.size(), 32u);
  EXPECT_EQ(harness.run(), 0);
  harness.expect_at_rest();
}

TEST(PromptLogprobs, RefusesNumbersOutOfRange) {
  CoreHarness harness;
  for (const int best : {-2, kMaxTopLogprobs + 1}) {
    const auto refused = harness.try_submit(scored({1, 2}, 1, best));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::invalid);
    EXPECT_EQ(refused.error().message,
              fmt::format("prompt_logprobs: expected -1 (none) to 20, found {}", best));
  }
}

// A model's own rows, by the way that scores use.
std::vector<Logprobs> by_session(const std::shared_ptr<Model>& model,
                                 const std::vector<Token>& prompt, int best) {
  auto session = Session::create(model, static_cast<int>(prompt.size()), /*salt=*/99);
  EXPECT_TRUE(session);
  std::vector<Logprobs> out;
  const auto most = static_cast<std::size_t>(session->max_scored());
  for (std::size_t at = 0; at + 1 < prompt.size();) {
    const auto chunk = std::span(prompt).subspan(at, std::min(most, prompt.size() - 1 - at));
    const auto rows = session->append_scored(chunk);
    EXPECT_TRUE(rows) << rows.error().message;
    for (int i = 0; i < rows->rows; ++i) {
      out.push_back(logprobs_of(rows->row(i), prompt[++at], best));
    }
  }
  return out;
}

std::vector<Received> by_engine(const std::shared_ptr<Model>& model, const EngineOptions& options,
                                const std::vector<Request>& requests) {
  std::vector<Received> received(requests.size());
  const auto claimed = *Model::claim(model);
  auto core = EngineCore::create({.backend = &claimed->backend(),
                                  .pool = &claimed->pool(),
                                  .tokenizer = &claimed->tokenizer(),
                                  .stop_tokens = claimed->checkpoint().stop_tokens,
                                  .context_length = 160},
                                 options);
  EXPECT_TRUE(core) << core.error().message;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    auto sequence = (*core)->prepare(
        requests[i], [&mine = received[i]](RequestId, Event event) { mine.add(std::move(event)); });
    EXPECT_TRUE(sequence) << sequence.error().message;
    (*core)->submit(*std::move(sequence));
  }
  while ((*core)->step()) EXPECT_TRUE(claimed->pool().check());
  return received;
}

class PromptLogprobsOfAModel : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int kBlocks = 24;
  const std::shared_ptr<Model> model_ =
      test::open_twin_model("tiny-tied", Scheme::bf16, kBlocks, GetParam());
};

INSTANTIATE_TEST_SUITE_P(Backends, PromptLogprobsOfAModel, testing::Values("reference", "cpu"),
                         [](const auto& test) { return std::string(test.param); });

// Cold and warm, in every cut, alone and beside others, with and without proposals.
TEST_P(PromptLogprobsOfAModel, AreThoseOfASessionBitForBit) {
  // Repeats itself, so that prompt lookup has something to propose.
  auto prompt = test::random_tokens(20, 1);
  std::ranges::copy(std::vector(prompt), std::back_inserter(prompt));
  const auto expected = by_session(model_, prompt, 2);
  Speculation speculation = ngram_speculation(*model_);
  speculation.row_cost = 0;
  const std::vector<Request> requests = {greedy(test::random_tokens(5, 2), 8), scored(prompt, 3, 2),
                                         scored(prompt, 0, 2), greedy(prompt, 6),
                                         scored(test::random_tokens(11, 3), 2, 0)};
  std::vector<EngineOptions> all = {
      {.max_sequences = 8, .max_step_tokens = 9, .prompt_tokens_beside_generation = 1}};
  const bool slow = std::string_view(GetParam()) == "reference";
  if (!slow || !test::kSanitized) {
    all.push_back({.max_sequences = 8, .max_step_tokens = 33, .speculation = speculation});
  }
  if (!slow) {
    all.push_back({.max_sequences = 1});
    all.push_back({.max_sequences = 8});
  }
  for (const EngineOptions& options : all) {
    SCOPED_TRACE(fmt::format("{} tokens a step", options.max_step_tokens));
    const auto received = by_engine(model_, options, requests);
    for (const Received& one : received) EXPECT_TRUE(one.ended_once() && one.finished);
    EXPECT_EQ(received[1].prompt_logprobs, expected);
    EXPECT_EQ(received[2].prompt_logprobs, expected);
    EXPECT_EQ(received[1].finished->usage.cached_tokens, 0);
  }
}

TEST(PromptLogprobs, SumUpToWhatPerplexitySays) {
  const auto model = test::open_demo("cpu", 24);
  const auto prompt = model->tokenizer().encode(
      "Once upon a time there was a little dog who lived in a small house near the river.",
      AddedTokens::as_text);
  const auto n = static_cast<int>(prompt.size());
  double perplexity = 0;  // over ids that name no token too, which a trained model does not expect
  double named = 0;
  {
    auto session = Session::create(model, n);
    ASSERT_TRUE(session);
    const auto rows = score_windows(*model, *session, prompt, plan_windows(n, n, n), false);
    ASSERT_TRUE(rows) << rows.error().message;
    for (const RowScore& row : *rows) perplexity += row.nll;
    ASSERT_TRUE(session->truncate(0));
    const auto logits = session->append_scored(prompt);
    ASSERT_TRUE(logits) << logits.error().message;
    for (int i = 0; i + 1 < n; ++i) {
      const auto score = score_row(logits->row(i).first(static_cast<std::size_t>(kNamedTokens)),
                                   prompt[static_cast<std::size_t>(i) + 1], {});
      ASSERT_TRUE(score);
      named += score->nll;
    }
  }
  const auto received = by_engine(model, {.max_sequences = 1}, {scored(prompt, 0, 0)});
  ASSERT_EQ(received[0].prompt_logprobs.size(), prompt.size() - 1);
  double sum = 0;
  for (const Logprobs& one : received[0].prompt_logprobs) {
    sum += static_cast<double>(one.chosen.logprob);
  }
  EXPECT_NEAR(-sum, named, 1e-6 * n);
  EXPECT_NEAR(-sum, perplexity, 1e-3);
  EXPECT_LT(perplexity / n, 6);  // a text that the model knows
}

}  // namespace
}  // namespace kipp
