// The CUDA runtime imitated on plain memory, so that the backend and its kernels run where there is
// no GPU: for tests alone, never in a product. Fresh memory is poisoned (the first and last 4 MiB
// of an allocation), so that what is read before it was written shows as NaN; each allocation is
// one of the host's, so that an address sanitizer sees every access past its end; and the n-th call
// can be made to fail.
#pragma once

#include <cstddef>

#include "backend/cuda/runtime.h"

namespace kipp::cuda::runtime {

// cudaError_t values that a test asks for.
inline constexpr Status kOutOfMemory = 2;
inline constexpr Status kNoDevice = 100;
inline constexpr Status kInsufficientDriver = 35;
inline constexpr Status kNoKernelImage = 209;
inline constexpr Status kIllegalAddress = 700;
inline constexpr Status kLaunchOutOfResources = 701;
inline constexpr Status kNotReady = 600;

// One of its calls fails: the one after `calls_before` more have succeeded.
struct Fault {
  Status status = 0;  // 0: none fails
  int calls_before = 0;
};

// The machine that is imitated, and what it was asked for.
struct EmulatedMachine {
  Properties properties = {.name = "an emulated device",
                           .major = 9,
                           .minor = 0,
                           .processors = 4,
                           .l2_bytes = std::size_t{1} << 20,
                           .shared_block_bytes = std::size_t{227} << 10,
                           .memory_bytes = std::size_t{4} << 30};
  int driver = 13000;
  int runtime = 13000;
  Status open_status = 0;  // what opening the device returns

  Fault allocation;  // of either memory
  Fault launch;      // what last_launch() returns
  Fault copy;        // copies and fills
  Fault wait;        // wait() and wait_for()

  // Both memories, streams and events that were not given back yet.
  int live_objects = 0;
  std::size_t device_bytes = 0;  // allocated now
  int launches = 0;              // calls of last_launch()
  int copies = 0;                // to the device
};

// Of this process; tests set and reset it between calls.
EmulatedMachine& emulated_machine();

}  // namespace kipp::cuda::runtime
