#include "base/thread_pool.h"

#include <gmock/gmock.h>
#include <pthread.h>

#include <chrono>
#include <ctime>
#include <numeric>
#include <thread>
#include <vector>

namespace kipp {
namespace {

using testing::Each;

std::unique_ptr<ThreadPool> pool_of(int threads) { return ThreadPool::create(threads).value(); }

TEST(ThreadPool, EveryItemOnceInItsShare) {
  for (const int threads : {1, 2, 3, 4, 16}) {
    const auto pool = pool_of(threads);
    EXPECT_EQ(pool->threads(), threads);
    for (const int count : {0, 1, 2, 3, 15, 16, 17, 1000}) {
      std::vector<int> visits(static_cast<std::size_t>(count));
      pool->parallel_for(count, [&](int begin, int end, int share) {
        if (count > 1) {  // one item is the caller's
          EXPECT_EQ(begin, static_cast<int>(static_cast<long>(count) * share / threads));
          EXPECT_EQ(end, static_cast<int>(static_cast<long>(count) * (share + 1) / threads));
        }
        EXPECT_LT(begin, end) << "an empty share needs no call";
        for (int i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      EXPECT_THAT(visits, Each(1)) << threads << " threads, " << count << " items";
    }
  }
}

TEST(ThreadPool, EveryTaskOnceAndNoThreadInTwo) {
  for (const int threads : {1, 2, 3, 16}) {
    const auto pool = pool_of(threads);
    for (const int count : {0, 1, 2, 15, 17, 1000}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
      std::vector<std::atomic<int>> busy(static_cast<std::size_t>(threads));
      const auto visit = [&](int task, int thread) {
        EXPECT_EQ(busy[static_cast<std::size_t>(thread)]++, 0);
        ++visits[static_cast<std::size_t>(task)];
        --busy[static_cast<std::size_t>(thread)];
      };
      pool->parallel_tasks(count, visit);
      std::vector<int> edges(static_cast<std::size_t>(threads) + 1, count);  // all are the first's
      edges[0] = 0;
      pool->parallel_tasks(edges, visit);
      for (const auto& n : visits) EXPECT_EQ(n.load(), 2);
    }
  }
}

// Whoever is done takes the tasks of a thread that is held up.
TEST(ThreadPool, TasksOfASlowThreadAreTakenOver) {
  const auto pool = pool_of(2);
  std::atomic<int> done = 0;
  std::atomic<bool> all = false;
  pool->parallel_tasks(100, [&](int task, int) {
    if (task == 0) {  // as long as it takes, but not for ever
      for (int i = 0; i < 1000 && !all; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      EXPECT_TRUE(all) << "its own other tasks waited for it";
    } else if (++done == 99) {
      all = true;
    }
  });
}

// Threads that come late from one job meet the next, over and over.
TEST(ThreadPool, LateThreadsTakeNothingTwice) {
  const auto pool = pool_of(8);  // more than most test machines have cores: somebody is late
  for (int job = 0; job < 20'000; ++job) {
    const int count = job % 13;
    std::atomic<int> visits = 0;
    pool->parallel_tasks(count, [&](int task, int) { visits += task + 1; });
    ASSERT_EQ(visits.load(), count * (count + 1) / 2) << "job " << job;
  }
}

TEST(ThreadPool, SharesOfHugeCountsDoNotOverflow) {
  constexpr int kCount = 2'000'000'000;
  std::atomic<long> sum = 0;
  pool_of(16)->parallel_for(kCount, [&](int begin, int end, int) { sum += end - begin; });
  EXPECT_EQ(sum.load(), kCount);
}

// What the body of one job wrote, the caller and every body of the next job see: this is where a
// sanitizer finds a missing order.
TEST(ThreadPool, JobsFollowEachOther) {
  for (const int threads : {1, 2, 3, 8, 16}) {
    const auto pool = pool_of(threads);
    constexpr int kItems = 64;
    std::vector<int> from(kItems);
    std::vector<int> to(kItems);
    std::iota(from.begin(), from.end(), 0);
    constexpr int kJobs = 300;
    for (int job = 0; job < kJobs; ++job) {
      pool->parallel_for(kItems, [&](int begin, int end, int) {
        for (int i = begin; i < end; ++i) {  // reads what another thread wrote
          to[static_cast<std::size_t>(i)] = from[static_cast<std::size_t>((i + 7) % kItems)] + 1;
        }
      });
      std::swap(from, to);
    }
    for (int i = 0; i < kItems; ++i) {
      EXPECT_EQ(from[static_cast<std::size_t>(i)], (i + 7 * kJobs) % kItems + kJobs);
    }
  }
}

TEST(ThreadPool, WakesWorkersThatSleep) {
  const auto pool = pool_of(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // far longer than they spin
    std::atomic<int> items = 0;
    pool->parallel_for(100, [&](int begin, int end, int) { items += end - begin; });
    EXPECT_EQ(items.load(), 100);
  }
}

double process_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST(ThreadPool, SleepsWhenThereIsNothingToDo) {
  const auto pool = pool_of(4);
  pool->parallel_for(4, [](int, int, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = process_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(process_seconds() - before, 0.05);
}

// The caller waits for a worker that takes long, or lost its core, without burning its own.
TEST(ThreadPool, CallerSleepsWhileAWorkerIsSlow) {
  const auto pool = pool_of(2);
  const double before = process_seconds();
  pool->parallel_for(2, [](int, int, int share) {
    if (share == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  });
  EXPECT_LT(process_seconds() - before, 0.1);
}

TEST(ThreadPool, RefusesNoThreads) {
  for (const int threads : {0, -1}) {
    const auto pool = ThreadPool::create(threads);
    ASSERT_FALSE(pool.has_value());
    EXPECT_EQ(pool.error().code, ErrorCode::invalid);
    EXPECT_EQ(pool.error().message, fmt::format("threads: must be at least 1, got {}", threads));
  }
}

// Threads whose stacks no address space holds cannot be started.
TEST(ThreadPool, SaysWhenTheSystemGivesNoThread) {
  pthread_attr_t usual;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  pthread_attr_t vast;
  ASSERT_EQ(pthread_attr_init(&vast), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&vast, std::size_t{1} << 60), 0);
  ASSERT_EQ(pthread_setattr_default_np(&vast), 0);
  const auto pool = ThreadPool::create(3);
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  pthread_attr_destroy(&vast);
  pthread_attr_destroy(&usual);
  ASSERT_FALSE(pool.has_value());
  EXPECT_EQ(pool.error().code, ErrorCode::exhausted);
  EXPECT_THAT(pool.error().message,
              testing::StartsWith("threads: 3 asked for, the system stopped at 1: "));
}

}  // namespace
}  // namespace kipp
