// The engine's thread and everybody else: one terminal event for each request under any mixture of
// submits, cancels, readers and stops. Meant to run under ThreadSanitizer too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <mutex>
#include <random>
#include <thread>

#include "base/snapshot.h"
#include "engine/engine.h"
#include "support/engine_harness.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using namespace std::chrono_literals;
using test::expect_answer;
using test::expected_answer;
using test::HistoryBackend;
using test::HistoryLimits;
using test::Received;
using testing::HasSubstr;

Request greedy(unsigned seed, std::size_t prompt, int max_tokens) {
  return test::greedy(test::random_tokens(prompt, seed), max_tokens);
}

class EngineThreads : public testing::Test {
 protected:
  static constexpr HistoryLimits kLimits{
      .blocks = 16, .max_step_tokens = 32, .max_logit_rows = 8, .context_length = 512};
  static constexpr int kCapacity = 16 * kBlockPositions;

  std::unique_ptr<Engine> start(const EngineOptions& options, const Clock& clock = steady_clock()) {
    auto engine = Engine::start({.backend = &backend_,
                                 .pool = &pool_,
                                 .tokenizer = &tokenizer_,
                                 .stop_tokens = stop_tokens_,
                                 .context_length = kLimits.context_length,
                                 .clock = &clock},
                                options);
    EXPECT_TRUE(engine) << engine.error().message;
    return *std::move(engine);
  }
  // Once the engine has stopped.
  void expect_at_rest() {
    EXPECT_TRUE(pool_.check());
    EXPECT_EQ(pool_.stats().pinned + pool_.stats().private_blocks + pool_.stats().reserved, 0);
  }

  HistoryBackend backend_{kLimits};
  BlockPool pool_{kLimits.blocks};
  const Tokenizer tokenizer_;
  const std::vector<Token> stop_tokens_ = {test::kHarnessStop};
};

// One request and what its reader has seen.
struct Call {
  Request request;
  std::mutex mutex;
  Received received;
  bool cancelled = false;
};

TEST_F(EngineThreads, EverySubmittedRequestEndsOnce) {
  constexpr int kClients = 4;
  constexpr int kEach = 500;
  const auto engine = start({.max_sequences = 6, .max_queue = kClients * kEach});
  std::vector<std::vector<std::unique_ptr<Call>>> calls(kClients);
  std::atomic<bool> done = false;
  std::thread watcher([&] {
    std::uint64_t steps = 0;
    while (!done.load()) {
      const EngineStats stats = engine->stats();
      EXPECT_GE(stats.steps, steps);
      EXPECT_LE(stats.running, 6);
      EXPECT_EQ(stats.pool.total, stats.pool.free + stats.pool.private_blocks + stats.pool.pinned +
                                      stats.pool.evictable);
      steps = stats.steps;
      std::this_thread::sleep_for(1ms);
    }
  });
  std::vector<std::thread> clients;
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      std::mt19937 random(static_cast<unsigned>(c));
      auto& mine = calls[static_cast<std::size_t>(c)];
      std::vector<RequestId> ids;
      for (int i = 0; i < kEach; ++i) {
        auto& call = mine.emplace_back(std::make_unique<Call>());
        call->request = greedy(static_cast<unsigned>(random() % 3), 1 + random() % 90,
                               static_cast<int>(random() % 4));
        const auto id = engine->submit(call->request, [&call = *call](RequestId, Event event) {
          const std::lock_guard lock(call.mutex);
          call.received.add(std::move(event));
        });
        ASSERT_TRUE(id) << id.error().message;
        ids.push_back(*id);
        if (random() % 3 == 0) {
          const std::size_t victim = random() % ids.size();
          mine[victim]->cancelled = true;
          engine->cancel(ids[victim]);
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const auto all_ended = [&] { return engine->stats().finished == kClients * kEach; };
  for (int i = 0; i < 12'000 && !all_ended(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(all_ended());
  engine->stop();
  done = true;
  watcher.join();

  int n = 0;
  for (const auto& mine : calls) {
    for (const auto& call : mine) {
      ASSERT_TRUE(call->received.ended_once());
      ASSERT_TRUE(call->received.finished);
      if (call->cancelled || n++ % 25 != 0) continue;  // working all of them out takes long
      expect_answer(call->received, expected_answer(call->request, stop_tokens_, kCapacity));
    }
  }
  expect_at_rest();
}

TEST_F(EngineThreads, StopEndsWhatIsOpenAndRefusesTheRest) {
  constexpr unsigned kClients = 3;
  for (unsigned round = 0; round < 30; ++round) {
    const auto engine = start({.max_sequences = 2, .max_queue = kClients * 1000});
    std::vector<std::vector<std::unique_ptr<Call>>> calls(kClients);
    std::latch under_way(kClients);
    std::vector<std::thread> clients;
    for (unsigned c = 0; c < kClients; ++c) {
      clients.emplace_back([&, c] {
        bool refused = false;
        for (unsigned i = 0; i < 1000 && !refused; ++i) {
          auto call = std::make_unique<Call>();
          const auto id =
              engine->submit(greedy(i, 20 + round, 8), [&call = *call](RequestId, Event event) {
                const std::lock_guard lock(call.mutex);
                call.received.add(std::move(event));
              });
          if (id) {
            if (i % 4 == c) engine->cancel(*id);
            calls[c].push_back(std::move(call));
          } else {
            refused = true;
            EXPECT_THAT(id.error().message, HasSubstr("stopped"));
            EXPECT_EQ(id.error().code, ErrorCode::interrupted);
            EXPECT_EQ(call->received.terminals, 0);
          }
          if (i == round) under_way.count_down();
        }
      });
    }
    under_way.wait();
    std::thread other([&] { engine->stop(); });
    engine->stop();
    // Whoever is open has ended by now, while others still try to submit.
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.running + stats.waiting, 0);
    other.join();
    for (std::thread& client : clients) client.join();
    std::size_t n_calls = 0;
    for (const auto& mine : calls) {
      ASSERT_GT(mine.size(), round);
      n_calls += mine.size();
      for (const auto& call : mine) {
        ASSERT_TRUE(call->received.ended_once());
        if (call->received.failed) {
          EXPECT_THAT(call->received.failed->message, HasSubstr("stopped"));
          EXPECT_EQ(call->received.failed->code, ErrorCode::interrupted);
        }
      }
    }
    EXPECT_EQ(stats.finished + stats.failed, n_calls);
    expect_at_rest();
  }
}

// What waits behind a long step is gone before the next one begins, and never costs anything.
TEST_F(EngineThreads, CancelledInTheQueueNeverStarts) {
  std::latch entered(1), leave(1);
  std::vector<RequestId> evaluated;  // the engine's, until it has stopped
  backend_.on_eval = [&](std::span<const EvalItem> items) -> Result<void> {
    if (evaluated.empty()) {
      entered.count_down();
      leave.wait();
    }
    for (const EvalItem& item : items) evaluated.push_back(static_cast<RequestId>(item.seq));
    return {};
  };
  Call busy;
  std::vector<std::unique_ptr<Call>> gone;
  const auto engine = start({.max_sequences = 1});
  const auto sink = [](Call& call) -> EventSink {
    return [&call](RequestId, Event event) {
      const std::lock_guard lock(call.mutex);
      call.received.add(std::move(event));
    };
  };
  const auto first = engine->submit(greedy(1, 5, 3), sink(busy));
  ASSERT_TRUE(first);
  entered.wait();
  for (unsigned i = 0; i < 5; ++i) {
    gone.push_back(std::make_unique<Call>());
    const auto id = engine->submit(greedy(i, 40, 3), sink(*gone.back()));
    ASSERT_TRUE(id);
    engine->cancel(*id);
  }
  leave.count_down();
  for (int i = 0; i < 1000 && engine->stats().finished < 6; ++i) std::this_thread::sleep_for(5ms);
  engine->stop();
  EXPECT_EQ(busy.received.how(), "length");
  for (const auto& call : gone) {
    EXPECT_TRUE(call->received.ended_once());
    EXPECT_EQ(call->received.how(), "interrupted");
    EXPECT_TRUE(call->received.progress.empty());
  }
  for (const RequestId id : evaluated) EXPECT_EQ(id, *first);
  EXPECT_EQ(engine->stats().cancelled_tokens, 0u);
  expect_at_rest();
}

TEST_F(EngineThreads, ASinkThatAnswersTheStopWithAnotherRequestIsRefused) {
  const auto engine = start({.max_sequences = 2});
  std::atomic<int> refused = 0;
  std::latch entered(1);
  EventSink sink = [&](RequestId, Event event) {
    const auto* progress = std::get_if<PromptProgress>(&event);
    if (progress != nullptr && progress->done == 0) entered.count_down();
    if (!std::holds_alternative<Failed>(event)) return;
    const auto again = engine->submit(greedy(2, 10, 2), [](RequestId, Event) { FAIL(); });
    refused += int{!again && again.error().code == ErrorCode::interrupted};
  };
  ASSERT_TRUE(engine->submit(greedy(1, 40, 500), sink));
  entered.wait();
  engine->stop();
  EXPECT_EQ(refused.load(), 1);
  expect_at_rest();
}

TEST_F(EngineThreads, SinksMaySubmitAndCancel) {
  const auto engine = start({.max_sequences = 2});
  std::atomic<int> ended = 0;
  EventSink second = [&](RequestId, Event event) {
    if (std::holds_alternative<Finished>(event)) ++ended;
  };
  const auto id = engine->submit(greedy(1, 40, 50), [&](RequestId self, Event event) {
    if (std::holds_alternative<TextDelta>(event)) engine->cancel(self);
    if (const auto* finished = std::get_if<Finished>(&event)) {
      EXPECT_EQ(finished->reason, FinishReason::interrupted);
      EXPECT_LT(finished->usage.generated_tokens, 4);
      ++ended;
      EXPECT_TRUE(engine->submit(greedy(2, 10, 2), second));
    }
  });
  ASSERT_TRUE(id);
  for (int i = 0; i < 1000 && ended.load() < 2; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(ended.load(), 2);
}

TEST_F(EngineThreads, AnIdleEngineShowsThatItLives) {
  test::ManualClock clock;
  const auto engine = start({.max_sequences = 2}, clock);
  clock.advance(5s);
  for (int i = 0; i < 1000 && engine->stats().heartbeat < 5s; ++i) {
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(engine->stats().heartbeat, 5s);
}

TEST_F(EngineThreads, AStuckStepShowsInAnOldHeartbeat) {
  test::ManualClock clock;
  std::latch entered(1), leave(1);
  backend_.on_eval = [&](auto) -> Result<void> {
    entered.count_down();
    leave.wait();
    return {};
  };
  const auto engine = start({.max_sequences = 2}, clock);
  ASSERT_TRUE(engine->submit(greedy(1, 5, 1), [](RequestId, Event) {}));
  entered.wait();
  clock.advance(9s);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(engine->stats().heartbeat, 0s);
  leave.count_down();
}

TEST(Snapshot, ReadersSeeWholeValues) {
  struct Value {
    std::array<std::uint64_t, 9> same = {};
    std::uint32_t also = 0;
  };
  Snapshot<Value> snapshot;
  std::thread writer([&] {
    for (std::uint64_t i = 1; i <= 20'000; ++i) {
      Value value;
      value.same.fill(i);
      value.also = static_cast<std::uint32_t>(i);
      snapshot.write(value);
    }
  });
  std::uint64_t last = 0;
  while (last < 20'000) {
    const Value value = snapshot.read();
    for (const std::uint64_t word : value.same) ASSERT_EQ(word, value.same[0]);
    ASSERT_EQ(value.also, value.same[0]);
    ASSERT_GE(value.same[0], last);
    last = value.same[0];
  }
  writer.join();
}

}  // namespace
}  // namespace kipp
