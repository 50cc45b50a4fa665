// Workers for one step at a time: fixed ranges, no queue, no stealing. Which thread computes what
// depends on the count of threads alone, and kernels make each result in one thread, so results do
// not depend on it at all.
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

  // Calls body(begin, end, thread) for every thread whose share [count * t / T, count * (t + 1) /
  // T) is not empty and returns when all are done. The caller computes the last share, so that a
  // count of 1 wakes nobody. One caller at a time; body may not call the pool and may not throw.
  // Allocates nothing.
  template <class Body>
  void parallel_for(int count, Body&& body) {
    using Fn = std::remove_reference_t<Body>;
    run(count, const_cast<void*>(static_cast<const void*>(&body)),
        [](void* context, int begin, int end, int thread) {
          (*static_cast<Fn*>(context))(begin, end, thread);
        });
  }

 private:
  using Call = void (*)(void* context, int begin, int end, int thread);

  ThreadPool() = default;
  void run(int count, void* context, Call call);
  void work(int thread, int threads);
  void run_share(int thread, int threads) const;
  template <class Ready>
  void await(const Ready& ready, std::condition_variable& wake, std::atomic<int>& sleepers);
  void rouse(std::condition_variable& wake, const std::atomic<int>& sleepers);

  std::vector<std::thread> workers_;
  bool spin_ = false;
  // The job, written by the caller before `generation_` moves on.
  int count_ = 0;
  void* context_ = nullptr;
  Call call_ = nullptr;
  // Apart from each other, so that a worker that reports does not disturb those who wait.
  alignas(64) std::atomic<std::uint64_t> generation_ = 0;
  std::atomic<bool> stop_ = false;
  alignas(64) std::atomic<int> unfinished_ = 0;
  alignas(64) std::mutex mutex_;  // for sleeping only
  std::condition_variable work_;
  std::condition_variable done_;
  std::atomic<int> idle_ = 0;     // workers asleep on work_
  std::atomic<int> waiting_ = 0;  // 1 while the caller sleeps on done_
};

}  // namespace kipp
