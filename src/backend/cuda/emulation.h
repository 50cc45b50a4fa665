// The CUDA execution model on one CPU thread, for tests: every thread of a block is a fiber, blocks
// run one after the other. device_code.h maps what kernels call to this, so that the same kernel
// sources run without a GPU. What it shows: wrong indices, wrong lane layouts, missing barriers
// (run once in each order), reads of shared memory that nobody wrote (it is poisoned with NaN
// patterns), copies that nobody waited for, divergence at a collective. What it cannot show: speed,
// races between blocks, the last bit of the tensor cores' additions and of ex2.approx.
//
// Misuse by a kernel (a thread that does not wait for the kernel before it, a barrier that not all
// threads reach, a collective that not all 32 lanes reach together) ends the process with a
// sentence. Kernels must not wait for other blocks.
#pragma once

#include <cstddef>

namespace kipp::cuda::emulation {

inline constexpr int kWarpLanes = 32;
inline constexpr int kMaxThreads = 1024;

struct Launch {
  int grid[3] = {1, 1, 1};
  int threads = 0;  // per block, a multiple of 32
  std::size_t shared_bytes = 0;
};

// Runs body(argument) as every thread of every block.
void run(const Launch& launch, void (*body)(void*), void* argument);

// Blocks, warps and lanes of later runs of this CPU thread take turns in descending order: a result
// that depends on who comes first shows by its bits.
void set_descending(bool descending);

// The rest is called by threads of a running launch.

// Who runs on this CPU thread: inline, because kernels ask for every index.
struct Here {
  int thread = 0;
  int block[3] = {};
  void* shared = nullptr;
};
extern constinit thread_local Here here;

inline int thread_index() { return here.thread; }
inline int block_index(int axis) { return here.block[axis]; }
inline void* shared_memory() { return here.shared; }
void sync_block();
// Every thread calls it: on a GPU the kernel before may still run until then.
void wait_for_previous();

// The last of a warp's lanes to arrive calls op once, with the arguments of lanes 0..31 (which may
// point into their stacks); then all go on. All must pass the same op.
using WarpOp = void (*)(void* const* arguments);
void warp_collective(void* argument, WarpOp op);

// 16 bytes from global to shared memory that arrive when the thread waits for their group; until
// then the destination is poison. from == nullptr: 16 zeros.
void copy_async16(void* to, const void* from);
void commit_copies();
void wait_copies(int groups_left);

}  // namespace kipp::cuda::emulation
