// What the engine counts: how requests end, what was thrown away, how large its steps are.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

#include "support/drafters.h"
#include "support/engine_harness.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using namespace std::chrono_literals;
using test::CoreHarness;
using test::greedy;

std::uint64_t ended_by(const EngineStats& stats, FinishReason reason) {
  return stats.finished_by[static_cast<std::size_t>(reason)];
}

TEST(EngineStats, CountsRequestsByTheReasonTheirReadersWereTold) {
  CoreHarness harness({}, {.max_sequences = 2});
  const auto id_of = [&](unsigned seed, int max_tokens) {
    return harness.submit(greedy(test::random_tokens(10, seed), max_tokens));
  };
  for (unsigned i = 0; i < 3; ++i) id_of(i, 2);
  Request hello = greedy(test::random_tokens(10, 7), 3);
  hello.sampling.logit_bias = {{9707, 100.f}};
  hello.stop = {"lo"};
  harness.submit(hello);
  harness.run();
  // A stop string is there when it is cancelled, and waits because a longer one may begin before
  // it: its reader is told "stop".
  hello.stop = {"lo", "Hello!"};
  const RequestId undecided = harness.submit(hello);
  harness.step();
  EXPECT_FALSE(harness.received[undecided].ended());
  harness.core->cancel(undecided);
  // Twice, which counts once.
  const RequestId queued = id_of(9, 2);
  harness.core->cancel(queued);
  harness.core->cancel(queued);

  const EngineStats stats = harness.core->stats();
  std::array<std::uint64_t, kFinishReasons> told = {};
  for (const auto& [id, received] : harness.received) {
    ASSERT_TRUE(received.finished);
    ++told[static_cast<std::size_t>(received.finished->reason)];
  }
  EXPECT_EQ(stats.finished_by, told);
  EXPECT_EQ(stats.finished, harness.received.size());
  EXPECT_EQ(ended_by(stats, FinishReason::length), 3u);
  EXPECT_EQ(ended_by(stats, FinishReason::interrupted), 1u);
  EXPECT_EQ(ended_by(stats, FinishReason::stop), 2u);
}

TEST(EngineStats, CountsTokensOfCancelledRequestsThatWereWorkedFor) {
  CoreHarness harness({.max_step_tokens = 40}, {.max_sequences = 1});
  const auto cancelled = [&] { return harness.core->stats().cancelled_tokens; };
  const auto prompt = test::random_tokens(100, 1);
  // In the queue: nothing.
  const RequestId queued = harness.submit(greedy(prompt, 9));
  harness.core->cancel(queued);
  EXPECT_EQ(cancelled(), 0u);
  // In the prompt: what was read.
  const RequestId read = harness.submit(greedy(prompt, 9));
  harness.step();
  harness.core->cancel(read);
  EXPECT_EQ(cancelled(), 40u);
  // Found in the cache: no work. Of the others, 68 were read, and three drawn.
  const RequestId drawn = harness.submit(greedy(prompt, 9));
  for (int i = 0; i < 4; ++i) harness.step();
  harness.core->cancel(drawn);
  EXPECT_EQ(harness.received[drawn].finished->usage.cached_tokens, 32);
  EXPECT_EQ(harness.received[drawn].finished->usage.generated_tokens, 3);
  EXPECT_EQ(cancelled(), 40u + 68 + 3);
  // Who came to his own end has wasted nothing.
  harness.submit(greedy(prompt, 3));
  harness.run();
  EXPECT_EQ(cancelled(), 40u + 68 + 3);
}

TEST(EngineStats, KnowsItsLargestAndItsLongestStep) {
  CoreHarness harness(
      {.max_step_tokens = 40},
      {.max_sequences = 2, .speculation = test::eager(test::drafters<test::HistoryDrafter>(9u))});
  std::vector<int> sizes;
  harness.backend.on_eval = [&](std::span<const EvalItem> items) -> Result<void> {
    sizes.push_back(0);
    for (const EvalItem& item : items) sizes.back() += static_cast<int>(item.tokens.size());
    harness.clock.advance(sizes.size() == 2 ? 70ms : 20ms);
    return {};
  };
  harness.submit(greedy(test::random_tokens(33, 1), 20));
  harness.submit(greedy(test::random_tokens(4, 2), 20));
  harness.run();
  const EngineStats stats = harness.core->stats();
  EXPECT_EQ(stats.steps, sizes.size());
  EXPECT_EQ(stats.largest_step, *std::ranges::max_element(sizes));
  EXPECT_EQ(stats.largest_step, 37);
  EXPECT_EQ(stats.step_tokens,
            static_cast<std::uint64_t>(std::accumulate(sizes.begin(), sizes.end(), 0)));
  EXPECT_GT(stats.step_tokens, stats.prompt_tokens + 38);  // proposals count too
  EXPECT_EQ(stats.longest_step, 70ms);
}

}  // namespace
}  // namespace kipp
