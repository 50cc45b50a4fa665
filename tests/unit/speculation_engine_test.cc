// Speculation beside other requests: every request is answered as if it were alone and nothing
// were proposed, the pool stays sound, and nobody finds what was taken back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/ngram_drafter.h"
#include "support/drafters.h"
#include "support/engine_harness.h"
#include "support/property.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using test::CoreHarness;
using test::drafters;
using test::eager;
using test::expect_answer;
using test::expected_answer;
using test::greedy;
using test::HistoryDrafter;
using test::HistoryLimits;
using test::Received;

constexpr int kContext = 4096;

// Requests that share beginnings, end in every way and draw by every rule.
Request any_request() {
  Request request = greedy(test::random_tokens(100, static_cast<unsigned>(*test::among(0, 3))),
                           *rc::gen::element(0, 1, 2, 9, 40));
  request.prompt.resize(static_cast<std::size_t>(*test::among(1, 101)));
  if (*rc::gen::arbitrary<bool>()) {
    request.sampling = {.temperature = 1, .top_k = 3, .logit_bias = {}, .seed = 5};
  }
  if (*test::among(0, 4) == 0) request.sampling.presence_penalty = 2;
  if (*test::among(0, 4) == 0) request.stop = {" t", "er"};
  if (*test::among(0, 4) == 0) request.top_logprobs = 2;
  if (*test::among(0, 3) == 0) request.min_tokens = *test::among(0, request.max_tokens + 1);
  if (*test::among(0, 8) == 0) request.prompt_logprobs = *test::among(0, 3);
  request.ignore_eos = *rc::gen::arbitrary<bool>();
  return request;
}

std::vector<std::vector<std::pair<Token, float>>> values_of(const std::vector<Logprobs>& all) {
  std::vector<std::vector<std::pair<Token, float>>> out;
  for (const Logprobs& one : all) {
    out.push_back({{one.chosen.token, one.chosen.logprob}});
    for (const TokenLogprob& best : one.best) out.back().emplace_back(best.token, best.logprob);
  }
  return out;
}

TEST(SpeculationEngine, AnswersAreThoseOfEachRequestAlone) {
  std::uint64_t accepted = 0;
  test::property(60, [&] {
    const int n_sequences = *test::among(1, 6);
    const HistoryLimits limits{.blocks = *test::among(5, 30),
                               .max_step_tokens = *test::among(n_sequences, 60),
                               .max_logit_rows = *test::among(n_sequences, 30),
                               .context_length = kContext};
    const DrafterFactory made =
        *test::among(0, 4) == 0
            ? drafters<test::HostileDrafter>(*rc::gen::arbitrary<std::uint64_t>())
            : drafters<HistoryDrafter>(*rc::gen::element<std::uint64_t>(1, 2, 5, 1000));
    CoreHarness harness(limits, {.max_sequences = n_sequences,
                                 .prompt_tokens_beside_generation = *test::among(1, 60),
                                 .speculation = eager(made, *test::among(1, 20))});
    std::map<RequestId, Request> requests;
    std::vector<RequestId> cancelled;
    const int moves = *test::among(5, 40);
    for (int i = 0; i < moves; ++i) {
      switch (*test::among(0, 6)) {
        case 0:
        case 1: {
          if (requests.size() == 6) break;
          Request request = any_request();
          const RequestId id = harness.submit(request);
          requests.emplace(id, std::move(request));
          break;
        }
        case 2: {
          if (requests.empty()) break;
          const RequestId id = *test::among<RequestId>(1, requests.size() + 1);
          if (!harness.received[id].ended()) cancelled.push_back(id);
          harness.core->cancel(id);
          RC_ASSERT(harness.received[id].ended_once());
          break;
        }
        default:
          harness.step();
      }
    }
    harness.run();
    harness.expect_at_rest();
    accepted += harness.core->stats().speculation.accepted;
    const int capacity = std::min(kContext, harness.pool.total() * kBlockPositions);
    for (const auto& [id, request] : requests) {
      const Received& received = harness.received[id];
      RC_ASSERT(received.ended_once());
      if (std::ranges::find(cancelled, id) == cancelled.end()) {
        expect_answer(received, expected_answer(request, harness.stop_tokens, capacity));
      }
    }
    RC_ASSERT(!testing::Test::HasFailure());
  });
  EXPECT_GT(accepted, 20u);
}

// The reader's whole view, event by event, and what it saves.
TEST(SpeculationEngine, ReadersAreToldTheSameInFewerSteps) {
  Request request = greedy(test::random_tokens(45, 1), 50);
  request.top_logprobs = 3;
  CoreHarness plain;
  CoreHarness speculative({}, {.speculation = eager(drafters<HistoryDrafter>(1000))});
  const RequestId a = plain.submit(request);
  const RequestId b = speculative.submit(request);
  const int plain_steps = plain.run();
  EXPECT_LT(speculative.run(), plain_steps / 3);
  EXPECT_EQ(speculative.received[b].tokens, plain.received[a].tokens);
  EXPECT_EQ(speculative.received[b].text, plain.received[a].text);
  EXPECT_EQ(values_of(speculative.received[b].logprobs), values_of(plain.received[a].logprobs));
  EXPECT_EQ(speculative.received[b].progress.size(), plain.received[a].progress.size());
  EXPECT_EQ(speculative.received[b].finished->logits_hash, plain.received[a].finished->logits_hash);
  const SpeculationStats& told = speculative.received[b].finished->speculation;
  EXPECT_EQ(told.accepted, speculative.core->stats().speculation.accepted);
  EXPECT_GT(told.accepted, 30u);
  EXPECT_EQ(speculative.core->stats().generated_tokens, plain.core->stats().generated_tokens);
  EXPECT_EQ(plain.core->stats().speculation.drafted, 0u);
}

TEST(SpeculationEngine, NobodyFindsWhatWasTakenBack) {
  // Blocks of the timeline are published as plain decoding publishes them, and no others.
  const Request request = greedy(test::random_tokens(40, 1), 120);
  CoreHarness plain;
  plain.submit(request);
  plain.run();
  for (const std::uint64_t one_wrong_in : {2u, 3u, 7u}) {
    CoreHarness harness({}, {.speculation = eager(drafters<HistoryDrafter>(one_wrong_in), 40)});
    const RequestId id = harness.submit(request);
    while (harness.step()) {
      // Blocks behind the timeline are free again: they may serve as somebody's cache.
      const PoolStats stats = harness.pool.stats();
      const int drawn = static_cast<int>(harness.received[id].tokens.size());
      EXPECT_LE(stats.private_blocks + stats.pinned, blocks_for(40 + drawn));
    }
    expect_answer(harness.received[id], expected_answer(request, harness.stop_tokens, kContext));
    EXPECT_EQ(harness.pool.stats().published, plain.pool.stats().published);
    EXPECT_GT(harness.core->stats().speculation.drafted,
              harness.core->stats().speculation.accepted);
    // What others find of it continues right.
    Request next = request;
    for (const Token token : harness.received[id].tokens) next.prompt.push_back(token);
    next.max_tokens = 10;
    const RequestId again = harness.submit(next);
    harness.run();
    EXPECT_GE(harness.received[again].finished->usage.cached_tokens, 128);
    expect_answer(harness.received[again], expected_answer(next, harness.stop_tokens, kContext));
  }
}

TEST(SpeculationEngine, ASinkThatCancelsInsideAProposalEndsTheRequestOnce) {
  CoreHarness harness({}, {.speculation = eager(drafters<HistoryDrafter>(1000), 16)});
  Received received;
  RequestId id = 0;
  bool cancel = false;
  auto sequence =
      harness.core->prepare(greedy(test::random_tokens(20, 1), 100), [&](RequestId, Event event) {
        received.add(std::move(event));
        cancel = received.tokens.size() >= 8;
      });
  ASSERT_TRUE(sequence);
  id = (*sequence)->id();
  harness.core->submit(*std::move(sequence));
  while (!cancel && harness.step()) {
  }
  harness.core->cancel(id);
  harness.run();
  EXPECT_TRUE(received.ended_once());
  EXPECT_EQ(received.how(), "interrupted");
  const auto whole = expected_answer(greedy(test::random_tokens(20, 1), 100), {}, kContext);
  EXPECT_TRUE(whole.text.starts_with(received.text));
  harness.expect_at_rest();
}

TEST(SpeculationEngine, AFailureWhileVerifyingEndsThatStepsRequestsOnly) {
  bool failed_before_the_end = true;
  for (int at = 0; failed_before_the_end; ++at) {
    SCOPED_TRACE(fmt::format("step {} fails", at));
    CoreHarness harness({.blocks = 32, .max_step_tokens = 24, .max_logit_rows = 10},
                        {.max_sequences = 2,
                         .prompt_tokens_beside_generation = 12,
                         .speculation = eager(drafters<HistoryDrafter>(4))});
    std::vector<RequestId> hit;
    int step = 0;
    harness.backend.on_eval = [&](std::span<const EvalItem> items) -> Result<void> {
      if (step++ != at) return {};
      for (const EvalItem& item : items) hit.push_back(static_cast<RequestId>(item.seq));
      return fail(ErrorCode::io, "device: lost");
    };
    std::vector<Request> requests;
    std::vector<RequestId> ids;
    for (unsigned i = 0; i < 3; ++i) {
      requests.push_back(greedy(test::random_tokens(30 + 5 * i, i), 20));
      ids.push_back(harness.submit(requests.back()));
    }
    harness.run();
    failed_before_the_end = !hit.empty();
    harness.backend.on_eval = nullptr;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto answer = expected_answer(requests[i], harness.stop_tokens, kContext);
      if (std::ranges::find(hit, ids[i]) == hit.end()) {
        expect_answer(harness.received[ids[i]], answer);
        continue;
      }
      EXPECT_TRUE(harness.received[ids[i]].ended_once());
      EXPECT_TRUE(harness.received[ids[i]].failed);
      const RequestId again = harness.submit(requests[i]);
      harness.run();
      expect_answer(harness.received[again], answer);
    }
    harness.expect_at_rest();
  }
}

TEST(SpeculationEngine, ProposalsTakeOnlyWhatTheStepHasLeft) {
  CoreHarness harness(
      {.max_step_tokens = 12, .max_logit_rows = 6},
      {.max_sequences = 4, .speculation = eager(drafters<HistoryDrafter>(1000), 16)});
  int most = 0;
  harness.backend.on_eval = [&](std::span<const EvalItem> items) -> Result<void> {
    int rows = 0;
    for (const EvalItem& item : items) {
      rows += item.want == LogitRows::all    ? static_cast<int>(item.tokens.size())
              : item.want == LogitRows::last ? 1
                                             : 0;
    }
    most = std::max(most, rows);
    EXPECT_LE(rows, 6);
    return {};
  };
  std::vector<Request> requests;
  std::vector<RequestId> ids;
  for (unsigned i = 0; i < 4; ++i) {
    requests.push_back(greedy(test::random_tokens(8, i), 30));
    ids.push_back(harness.submit(requests.back()));
  }
  harness.run();
  EXPECT_GT(most, 4);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    expect_answer(harness.received[ids[i]],
                  expected_answer(requests[i], harness.stop_tokens, kContext));
  }
}

TEST(SpeculationEngine, RefusesOptionsOutOfRange) {
  test::HistoryBackend backend;
  BlockPool pool(8);
  const Tokenizer tokenizer;
  EngineOptions options;
  options.speculation.max_draft = 0;
  const auto core = EngineCore::create({.backend = &backend,
                                        .pool = &pool,
                                        .tokenizer = &tokenizer,
                                        .stop_tokens = {},
                                        .context_length = 64},
                                       options);
  ASSERT_FALSE(core);
  EXPECT_EQ(core.error().message, "max_draft: expected 1 to 64 tokens, found 0");
}

}  // namespace
}  // namespace kipp
