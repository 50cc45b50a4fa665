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

// The job's number above the number of the next task. Job numbers wrap after 2^32, a month of
// decoding; to be fooled, a thread would have to sleep through all of it.
constexpr std::uint64_t next_task(std::uint64_t job, int task) {
  return job << 32 | static_cast<std::uint32_t>(task);
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
    pool->ranges_ = std::make_unique<Range[]>(static_cast<std::size_t>(threads));
    pool->workers_.reserve(static_cast<std::size_t>(threads) - 1);
    for (int t = 0; t < threads - 1; ++t) {
      pool->workers_.emplace_back(&ThreadPool::work, pool.get(), t);
    }
  } catch (const std::exception& error) {  // no thread, or no memory for one
    return fail(ErrorCode::exhausted, "threads: {} asked for, the system stopped at {}: {}",
                threads, pool->workers_.size() + 1, error.what());
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  job_ += 1;
  rouse(work_, idle_);
  for (std::thread& worker : workers_) worker.join();
}

// Takes tasks until none is left, and returns how many. When the exchange succeeds, the range was
// still that of `job`, so the job was not over and what was read of it belongs to it.
int ThreadPool::take_from(Range& range, std::uint64_t job, int thread) {
  int taken = 0;
  std::uint64_t next = range.next.load();
  while (next >> 32 == (job & 0xffffffffu)) {
    const auto task = static_cast<int>(next & 0xffffffffu);
    void* context = context_.load();
    const Call call = call_.load();
    if (task >= range.end.load()) break;
    if (!range.next.compare_exchange_weak(next, next + 1)) continue;
    call(context, task, thread);
    ++taken;
    next = range.next.load();
  }
  return taken;
}

void ThreadPool::take_tasks(std::uint64_t job, int thread) {
  for (int i = 0; i < threads(); ++i) {
    const int owner = (thread + i) % threads();
    const int taken = take_from(ranges_[static_cast<std::size_t>(owner)], job, thread);
    if (taken > 0 && unfinished_.fetch_sub(taken) == taken) rouse(done_, waiting_);
  }
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

void ThreadPool::work(int thread) {
  std::uint64_t seen = 0;
  for (;;) {
    await([&] { return job_.load() != seen; }, work_, idle_);
    seen = job_.load();
    if (stop_.load()) return;
    take_tasks(seen, thread);
  }
}

void ThreadPool::run(const Tasks& tasks, void* context, Call call) {
  const std::uint64_t job = job_.load() + 1;
  context_ = context;
  call_ = call;
  unfinished_ = tasks.count;
  for (int t = 0; t < threads(); ++t) {
    const auto edge = [&](int share) {
      return tasks.edges.empty() ? edge_of(tasks.count, share, threads())
                                 : tasks.edges[static_cast<std::size_t>(share)];
    };
    Range& range = ranges_[static_cast<std::size_t>(t)];
    // In this order: a thread still looking for tasks of the last job must not see its exhausted
    // range with an end that is further off.
    range.next = next_task(job, edge(t));
    range.end = edge(t + 1);
  }
  job_ = job;
  rouse(work_, idle_);
  take_tasks(job, threads() - 1);
  await([&] { return unfinished_.load() == 0; }, done_, waiting_);
}

}  // namespace kipp
