// Workers for one step at a time. Every thread has a range of tasks of its own, which it takes in
// order, so that it streams through memory; who is done takes from the ranges of others. A thread
// that lost its core to a neighbour thus holds up no more than the task it is in, and one that
// never got a core holds up nobody. Each result is made by one task, so it does not depend on who
// took it.
//
// A worker spins for a short while after a job, because the next op of a step comes within
// microseconds, and then sleeps, so that an idle engine costs nothing. The caller waits the same
// way. With more threads than the process has cores nobody spins: the one who spins would hold the
// core that the other needs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/types.h"

namespace kipp {

class ThreadPool {
 public:
  // threads >= 1, the caller's included: 1 starts no worker.
  static Result<std::unique_ptr<ThreadPool>> create(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Cuts `count` items into one share per thread, [count * s / T, count * (s + 1) / T), calls
  // body(begin, end, share) for those that are not empty and returns when all are done. No two
  // calls of one job have the same share, so that scratch memory may be indexed by it. A count of 1
  // wakes nobody. One caller at a time; body may not call the pool and may not throw. Allocates
  // nothing.
  template <class Body>
  void parallel_for(int count, Body&& body) {
    const int shares = threads();
    const auto edge = [&](int s) { return edge_of(count, s, shares); };
    if (shares == 1 || count <= 1) {
      if (count > 0) body(0, count, shares - 1);
      return;
    }
    const auto share = [&](int s, int) {
      if (edge(s) < edge(s + 1)) body(edge(s), edge(s + 1), s);
    };
    run({shares, {}}, share);
  }

  // Calls body(task, thread) for each of `count` tasks; no two calls with one thread overlap. A
  // thread begins with the tasks of its share, as above. The rest as with parallel_for.
  template <class Body>
  void parallel_tasks(int count, Body&& body) {
    run({count, {}}, body);
  }

  // The same with shares by cost: those of thread t are [edges[t], edges[t + 1]); threads() + 1
  // edges.
  template <class Body>
  void parallel_tasks(std::span<const int> edges, Body&& body) {
    run({edges.back(), edges}, body);
  }

 private:
  using Call = void (*)(void* context, int task, int thread);

  struct Tasks {
    int count = 0;
    std::span<const int> edges;  // empty: even shares
  };

  // What is left of a thread's own tasks. `next` carries the job's number above the task's, so that
  // a thread which comes late from an earlier job cannot take from it.
  struct alignas(64) Range {
    std::atomic<std::uint64_t> next = 0;
    std::atomic<int> end = 0;
  };

  ThreadPool() = default;

  static int edge_of(int count, int share, int shares) {
    return static_cast<int>(static_cast<std::int64_t>(count) * share / shares);
  }

  template <class Body>
  void run(const Tasks& tasks, Body& body) {
    if (workers_.empty() || tasks.count <= 1) {
      for (int task = 0; task < tasks.count; ++task) body(task, threads() - 1);
      return;
    }
    run(tasks, const_cast<void*>(static_cast<const void*>(&body)),
        [](void* context, int task, int thread) { (*static_cast<Body*>(context))(task, thread); });
  }
  void run(const Tasks& tasks, void* context, Call call);
  void work(int thread);
  void take_tasks(std::uint64_t job, int thread);
  int take_from(Range& range, std::uint64_t job, int thread);
  template <class Ready>
  void await(const Ready& ready, std::condition_variable& wake, std::atomic<int>& sleepers);
  void rouse(std::condition_variable& wake, const std::atomic<int>& sleepers);

  std::vector<std::thread> workers_;
  std::unique_ptr<Range[]> ranges_;
  bool spin_ = false;
  // The job, written by the caller while all ranges are empty. Atomic because a late thread may
  // look; what it sees then it does not use.
  std::atomic<void*> context_ = nullptr;
  std::atomic<Call> call_ = nullptr;
  // Apart from each other, so that a worker that reports does not disturb those who wait.
  alignas(64) std::atomic<std::uint64_t> job_ = 0;
  std::atomic<bool> stop_ = false;
  alignas(64) std::atomic<int> unfinished_ = 0;  // tasks
  alignas(64) std::mutex mutex_;                 // for sleeping only
  std::condition_variable work_;
  std::condition_variable done_;
  std::atomic<int> idle_ = 0;     // workers asleep on work_
  std::atomic<int> waiting_ = 0;  // 1 while the caller sleeps on done_
};

}  // namespace kipp
