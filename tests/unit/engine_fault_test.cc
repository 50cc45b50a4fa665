// A backend that fails: its step's requests end, each with one event, and nothing else is
// disturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/engine_harness.h"
#include "support/property.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using test::CoreHarness;
using test::expect_answer;
using test::expected_answer;

constexpr int kCapacity = 1024;

Request greedy(unsigned seed, std::size_t prompt, int max_tokens) {
  return test::greedy(test::random_tokens(prompt, seed), max_tokens);
}

TEST(EngineFault, AFailureAtAnyStepEndsThatStepsRequestsOnly) {
  std::vector<Request> requests;
  std::vector<test::Expected> answers;
  for (unsigned i = 0; i < 5; ++i) {
    requests.push_back(greedy(i, 25 + 10 * i, 2 + static_cast<int>(i) % 3));
    answers.push_back(expected_answer(requests.back(), std::vector{test::kHarnessStop}, kCapacity));
  }
  bool failed_before_the_end = true;
  for (int at = 0; failed_before_the_end; ++at) {
    SCOPED_TRACE(fmt::format("step {} fails", at));
    CoreHarness harness(
        {.blocks = 32, .max_step_tokens = 24, .max_logit_rows = 3, .context_length = kCapacity},
        {.max_sequences = 3, .prompt_tokens_beside_generation = 12});
    const auto submit_all = [&] {
      std::vector<RequestId> ids;
      for (const Request& request : requests) ids.push_back(harness.submit(request));
      return ids;
    };
    std::vector<RequestId> hit;
    int step = 0;
    harness.backend.on_eval = [&](std::span<const EvalItem> items) -> Result<void> {
      if (step++ != at) return {};
      for (const EvalItem& item : items) hit.push_back(static_cast<RequestId>(item.seq));
      return fail(ErrorCode::io, "device: lost in step {}", at);
    };
    const auto ids = submit_all();
    harness.run();
    failed_before_the_end = !hit.empty();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto& received = harness.received[ids[i]];
      if (std::ranges::find(hit, ids[i]) == hit.end()) {
        expect_answer(received, answers[i]);
        continue;
      }
      ASSERT_TRUE(received.ended_once());
      ASSERT_TRUE(received.failed);
      EXPECT_EQ(received.failed->code, ErrorCode::io);
      EXPECT_EQ(received.failed->message, fmt::format("device: lost in step {}", at));
    }
    EXPECT_EQ(harness.core->stats().failed, hit.size());
    harness.expect_at_rest();
    // Nothing that the failed step should have written is in the cache: the same requests again
    // are answered right.
    harness.backend.on_eval = nullptr;
    const auto again = submit_all();
    harness.run();
    for (std::size_t i = 0; i < again.size(); ++i) {
      expect_answer(harness.received[again[i]], answers[i]);
    }
  }
}

TEST(EngineFault, BlocksOfAFailedStepAreNotPublished) {
  CoreHarness harness({.max_step_tokens = 40});
  const Request request = greedy(1, 100, 2);
  harness.submit(request);
  harness.step();  // one block is full
  EXPECT_EQ(harness.pool.stats().published, 1u);
  harness.backend.on_eval = [](auto) -> Result<void> { return fail(ErrorCode::io, "lost"); };
  harness.step();
  EXPECT_EQ(harness.pool.stats().published, 1u);
  harness.expect_at_rest();
  harness.backend.on_eval = nullptr;
  const RequestId again = harness.submit(request);
  harness.run();
  EXPECT_EQ(harness.received[again].finished->usage.cached_tokens, 32);
  expect_answer(harness.received[again], expected_answer(request, harness.stop_tokens, kCapacity));
}

TEST(EngineFault, ABackendThatNeverRecoversFailsOneStepAfterTheOther) {
  CoreHarness harness({.blocks = 16}, {.max_sequences = 2});
  harness.backend.on_eval = [](auto) -> Result<void> { return fail(ErrorCode::io, "gone"); };
  for (unsigned i = 0; i < 9; ++i) harness.submit(greedy(i, 40, 3));
  EXPECT_LE(harness.run(), 9);
  for (const auto& [id, received] : harness.received) {
    EXPECT_TRUE(received.ended_once());
    EXPECT_TRUE(received.failed);
  }
  harness.expect_at_rest();
}

}  // namespace
}  // namespace kipp
