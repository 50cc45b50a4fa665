#include "base/thread_pool.h"

#include <chrono>
#include <system_error>

#if defined(__linux__)
#include <sched.h>
#endif

namespace kipp {

namespace {

// Longer than the scalar work between two ops of a step, shorter than waking a sleeper costs twice
// (measured on two virtual cores: 40 to 60 us).
constexpr std::chrono::microseconds kSpin(50);
constexpr int kPausesPerLook = 16;  // between two looks at the clock: about a microsecond

void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int usable_cores() {
#if defined(__linux__)
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return CPU_COUNT(&cores);
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(int threads) {
  if (threads < 1) {
    return fail(ErrorCode::invalid, "threads: must be at least 1, got {}", threads);
  }
  std::unique_ptr<ThreadPool> pool(new ThreadPool);
  pool->spin_ = threads <= usable_cores();
  try {
    pool->workers_.reserve(static_cast<std::size_t>(threads) - 1);
    for (int t = 0; t < threads - 1; ++t) {
      pool->workers_.emplace_back(&ThreadPool::work, pool.get(), t, threads);
    }
  } catch (const std::exception& error) {  // no thread, or no memory for one
    return fail(ErrorCode::exhausted, "threads: {} asked for, the system stopped at {}: {}",
                threads, pool->workers_.size() + 1, error.what());
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  generation_ += 1;
  rouse(work_, idle_);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_share(int thread, int threads) const {
  const auto edge = [&](std::int64_t t) { return static_cast<int>(count_ * t / threads); };
  const int begin = edge(thread);
  const int end = edge(thread + 1);
  if (begin < end) call_(context_, begin, end, thread);
}

// Returns once `ready`, which some thread makes true before it calls rouse(). Both sides order
// "announce, then look" (sleepers against the condition) sequentially: one of them sees the other.
template <class Ready>
void ThreadPool::await(const Ready& ready, std::condition_variable& wake,
                       std::atomic<int>& sleepers) {
  if (spin_) {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < kPausesPerLook; ++i) {
        if (ready()) return;
        pause_core();
      }
    } while (std::chrono::steady_clock::now() < deadline);
  }
  std::unique_lock lock(mutex_);
  sleepers.fetch_add(1);
  wake.wait(lock, ready);
  sleepers.fetch_sub(1);
}

void ThreadPool::rouse(std::condition_variable& wake, const std::atomic<int>& sleepers) {
  if (sleepers.load() == 0) return;
  { const std::lock_guard lock(mutex_); }  // who announced itself has looked, or sleeps already
  wake.notify_all();
}

void ThreadPool::work(int thread, int threads) {
  std::uint64_t seen = 0;
  for (;;) {
    await([&] { return generation_.load() != seen; }, work_, idle_);
    ++seen;
    if (stop_.load()) return;
    run_share(thread, threads);
    if (unfinished_.fetch_sub(1) == 1) rouse(done_, waiting_);
  }
}

void ThreadPool::run(int count, void* context, Call call) {
  count_ = count;
  context_ = context;
  call_ = call;
  const int last = threads() - 1;
  if (last == 0 || count <= 1) {
    run_share(last, threads());
    return;
  }
  unfinished_ = last;
  generation_ += 1;
  rouse(work_, idle_);
  run_share(last, threads());
  await([&] { return unfinished_.load() == 0; }, done_, waiting_);
}

}  // namespace kipp
