#include "backend/cuda/emulation.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define KIPP_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KIPP_FIBER_ASAN 1
#endif
#endif
#if defined(KIPP_FIBER_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

// A switch of stacks in a few nanoseconds: swapcontext makes a system call each time, and an
// emulated test makes 1e7 switches. Elsewhere ucontext does the same, slowly.
#if defined(__x86_64__)
extern "C" void kipp_fiber_switch(void** save, void* load);
asm(R"(
.text
.p2align 4
.type kipp_fiber_switch, @function
kipp_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size kipp_fiber_switch, . - kipp_fiber_switch
)");
#endif

namespace kipp::cuda::emulation {

constinit thread_local Here here;

namespace {

constexpr std::size_t kStackBytes = std::size_t{192} << 10;
// The tops of the stacks are apart by more than whole pages, or they would all fall into the same
// few sets of the caches.
constexpr std::size_t kStackShift = 1088;
constexpr std::size_t kStackShifts = 60;
constexpr std::uint64_t kCanary = 0x6b697070'73746163u;
constexpr int kPoison = 0xff;  // NaN as float, as BF16 and as FP16
constexpr int kCopyBytes = 16;

[[noreturn]] void misuse(const char* what) {
  std::fprintf(stderr, "emulated kernel: %s\n", what);
  std::abort();
}

struct Stack {
  char* low = nullptr;
  std::size_t bytes = 0;
};

class Context {
 public:
#if defined(__x86_64__)
  void prepare(const Stack& stack, void (*entry)()) {
    auto* top = reinterpret_cast<std::uint64_t*>(stack.low + stack.bytes);
    *--top = 0;  // a return address that entry never uses; keeps its frame aligned
    *--top = reinterpret_cast<std::uint64_t>(entry);
    for (int saved = 0; saved < 6; ++saved) *--top = 0;
    at_ = top;
  }
  void switch_to(Context& other) { kipp_fiber_switch(&at_, other.at_); }

 private:
  void* at_ = nullptr;
#else
  void prepare(const Stack& stack, void (*entry)()) {
    getcontext(&at_);
    at_.uc_stack.ss_sp = stack.low;
    at_.uc_stack.ss_size = stack.bytes;
    at_.uc_link = nullptr;
    makecontext(&at_, entry, 0);
  }
  void switch_to(Context& other) { swapcontext(&at_, &other.at_); }

 private:
  ucontext_t at_;
#endif
};

enum class State : std::uint8_t { ready, in_collective, at_barrier, done };

struct Copy {
  void* to;
  const void* from;
};

struct Fiber {
  Context context;
  Stack stack;
  State state = State::done;
  bool started = false;
  bool waited = false;                   // for the kernel before
  void* argument = nullptr;              // of the collective it waits in
  std::vector<Copy> open;                // not committed yet
  std::deque<std::vector<Copy>> groups;  // committed, oldest first
};

struct Warp {
  WarpOp op = nullptr;
  int arrived = 0;
};

struct AlignedDelete {
  void operator()(void* memory) const { ::operator delete (memory, std::align_val_t{128}); }
};

class Machine {
 public:
  Machine() {
    const std::size_t bytes = kStackBytes * kMaxThreads;
    stacks_ = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (stacks_ == MAP_FAILED) misuse("no memory for the stacks of a block");
    for (int t = 0; t < kMaxThreads; ++t) {
      const auto number = static_cast<std::size_t>(t);
      fibers_[t].stack = {stacks_ + number * kStackBytes,
                          kStackBytes - number % kStackShifts * kStackShift};
    }
  }
  ~Machine() { munmap(stacks_, kStackBytes * kMaxThreads); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void run(const Launch& launch, void (*body)(void*), void* argument) {
    if (launch.threads <= 0 || launch.threads > kMaxThreads || launch.threads % kWarpLanes != 0) {
      misuse("the threads of a block must be a multiple of 32, at most 1024");
    }
    body_ = body;
    argument_ = argument;
    threads_ = launch.threads;
    shared_.reset(::operator new (launch.shared_bytes, std::align_val_t{128}));
    here.shared = shared_.get();
    const int blocks = launch.grid[0] * launch.grid[1] * launch.grid[2];
    for (int i = 0; i < blocks; ++i) {
      const int b = descending_ ? blocks - 1 - i : i;
      here.block[0] = b % launch.grid[0];
      here.block[1] = b / launch.grid[0] % launch.grid[1];
      here.block[2] = b / launch.grid[0] / launch.grid[1];
      std::memset(shared_.get(), kPoison, launch.shared_bytes);
      run_block();
    }
    shared_.reset();
  }

  // Goes on with the next lane where it can, else with whoever the scheduler finds.
  void leave(State state) {
    Fiber& fiber = fibers_[here.thread];
    fiber.state = state;
    Fiber* keeps = state == State::done ? nullptr : &fiber;
    const int next = next_lane();
    if (next >= 0 && fibers_[next].state == State::ready) {
      make_current(next);
      from_scheduler_ = false;
      switch_stacks(fiber.context, fibers_[next].context, keeps, fibers_[next].stack);
    } else {
      switch_stacks(fiber.context, scheduler_, keeps, scheduler_stack_);
    }
  }

  void collective(void* argument, WarpOp op) {
    Warp& warp = warps_[here.thread / kWarpLanes];
    if (warp.arrived != 0 && warp.op != op) misuse("the lanes of a warp diverged at a collective");
    warp.op = op;
    fibers_[here.thread].argument = argument;
    if (++warp.arrived < kWarpLanes) {
      leave(State::in_collective);
      return;
    }
    void* arguments[kWarpLanes];
    const int first = here.thread / kWarpLanes * kWarpLanes;
    for (int lane = 0; lane < kWarpLanes; ++lane) arguments[lane] = fibers_[first + lane].argument;
    op(arguments);
    warp.arrived = 0;
    for (int lane = 0; lane < kWarpLanes; ++lane) fibers_[first + lane].state = State::ready;
  }

  void copy(void* to, const void* from) {
    const Fiber& fiber = fibers_[here.thread];
    const auto meets = [&](const Copy& other) { return other.to == to; };
    for (const auto& group : fiber.groups) {
      if (std::ranges::any_of(group, meets)) misuse("a copy begins where one is under way");
    }
    std::memset(to, kPoison, kCopyBytes);
    fibers_[here.thread].open.push_back({to, from});
  }
  void commit() {
    Fiber& fiber = fibers_[here.thread];
    fiber.groups.push_back(std::move(fiber.open));
    fiber.open.clear();
  }
  void wait(int groups_left) {
    Fiber& fiber = fibers_[here.thread];
    while (fiber.groups.size() > static_cast<std::size_t>(groups_left)) {
      for (const Copy& copy : fiber.groups.front()) {
        if (copy.from == nullptr) {
          std::memset(copy.to, 0, kCopyBytes);
        } else {
          std::memcpy(copy.to, copy.from, kCopyBytes);
        }
      }
      fiber.groups.pop_front();
    }
  }

  void wait_for_previous() { fibers_[here.thread].waited = true; }

  void set_descending(bool descending) { descending_ = descending; }

  // The life of a fiber: one thread, and as many of its warp after it as have not begun, so that
  // kernels in which nobody waits need no switches.
  void enter() {
    finish_switch(nullptr, from_scheduler_ ? &scheduler_stack_ : nullptr);
    for (;;) {
      body_(argument_);
      Fiber& fiber = fibers_[here.thread];
      if (!fiber.open.empty() || !fiber.groups.empty()) misuse("a thread ended before its copies");
      if (!fiber.waited) misuse("a thread ended without waiting for the kernel before it");
      const int next = next_lane();
      if (next < 0 || fibers_[next].state != State::ready || fibers_[next].started) break;
      fiber.state = State::done;
      std::swap(fiber.stack, fibers_[next].stack);
      fibers_[next].started = true;
      here.thread = next;
    }
    leave(State::done);
  }

 private:
  void run_block() {
    for (int t = 0; t < threads_; ++t) {
      fibers_[t].state = State::ready;
      fibers_[t].started = false;
      fibers_[t].waited = false;
    }
    const int warps = threads_ / kWarpLanes;
    for (;;) {
      for (int i = 0; i < warps; ++i) run_warp(descending_ ? warps - 1 - i : i);
      int waiting = 0;
      for (int t = 0; t < threads_; ++t) {
        if (fibers_[t].state == State::in_collective) misuse("not all lanes reached a collective");
        waiting += fibers_[t].state == State::at_barrier ? 1 : 0;
      }
      if (waiting == 0) return;
      if (waiting != threads_) misuse("not all threads of a block reached a barrier");
      for (int t = 0; t < threads_; ++t) fibers_[t].state = State::ready;
    }
  }

  void run_warp(int warp) {
    bool progress = true;
    while (progress) {
      progress = false;
      for (int i = 0; i < kWarpLanes; ++i) {
        const int lane = descending_ ? kWarpLanes - 1 - i : i;
        const int t = warp * kWarpLanes + lane;
        if (fibers_[t].state != State::ready) continue;
        resume(t);
        progress = true;
      }
    }
  }

  // The neighbour whose turn follows in this warp, or -1.
  int next_lane() const {
    const int lane = here.thread % kWarpLanes;
    if (descending_) return lane == 0 ? -1 : here.thread - 1;
    return lane == kWarpLanes - 1 ? -1 : here.thread + 1;
  }

  void make_current(int t) {
    Fiber& fiber = fibers_[t];
    here.thread = t;
    if (!fiber.started) {
      fiber.started = true;
      std::memcpy(fiber.stack.low, &kCanary, sizeof(kCanary));
      fiber.context.prepare(fiber.stack, entry);
    }
  }

  void resume(int t) {
    make_current(t);
    from_scheduler_ = true;
    switch_stacks(scheduler_, fibers_[t].context, &fibers_[t], fibers_[t].stack);
    // At the end alone: the canary is a line of memory that nothing else of the fiber touches.
    const Fiber& last = fibers_[here.thread];
    if (last.state == State::done && std::memcmp(last.stack.low, &kCanary, sizeof(kCanary)) != 0) {
      misuse("a thread used more stack than the emulation gives it");
    }
  }

  // Leaves `from` for `to`, whose stack is given; returns when somebody comes back. A null `keeps`
  // says that nobody will.
  void switch_stacks(Context& from, Context& to, const Fiber* keeps, const Stack& stack) {
    void* fake = nullptr;
#if defined(KIPP_FIBER_ASAN)
    __sanitizer_start_switch_fiber(keeps != nullptr ? &fake : nullptr, stack.low, stack.bytes);
#else
    static_cast<void>(keeps);
    static_cast<void>(stack);
#endif
    from.switch_to(to);
    finish_switch(fake, nullptr);
  }
  static void finish_switch([[maybe_unused]] void* fake, [[maybe_unused]] Stack* left) {
#if defined(KIPP_FIBER_ASAN)
    const void* low = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(fake, &low, &bytes);
    if (left != nullptr) *left = {static_cast<char*>(const_cast<void*>(low)), bytes};
#endif
  }
  static void entry();

  char* stacks_ = nullptr;
  const std::unique_ptr<Fiber[]> owned_ = std::make_unique<Fiber[]>(kMaxThreads);
  Fiber* const fibers_ = owned_.get();
  Warp warps_[kMaxThreads / kWarpLanes];
  Context scheduler_;
  Stack scheduler_stack_;  // of the thread that called run(), as the sanitizer says
  std::unique_ptr<void, AlignedDelete> shared_;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  int threads_ = 0;
  bool from_scheduler_ = false;  // the switch under way
  bool descending_ = false;
};

thread_local std::unique_ptr<Machine> machine_of_thread;
// The same once it is made: a plain pointer, since every index a kernel reads comes by here.
constinit thread_local Machine* made_machine = nullptr;

Machine& machine() {
  if (made_machine == nullptr) {
    machine_of_thread = std::make_unique<Machine>();
    made_machine = machine_of_thread.get();
  }
  return *made_machine;
}

void Machine::entry() { machine().enter(); }

}  // namespace

void run(const Launch& launch, void (*body)(void*), void* argument) {
  machine().run(launch, body, argument);
}
void set_descending(bool descending) { machine().set_descending(descending); }
void wait_for_previous() { machine().wait_for_previous(); }
void sync_block() { machine().leave(State::at_barrier); }
void warp_collective(void* argument, WarpOp op) { machine().collective(argument, op); }
void copy_async16(void* to, const void* from) { machine().copy(to, from); }
void commit_copies() { machine().commit(); }
void wait_copies(int groups_left) { machine().wait(groups_left); }

}  // namespace kipp::cuda::emulation
