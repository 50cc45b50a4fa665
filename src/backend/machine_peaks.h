// What this machine can do at most: the yardsticks that a benchmark's shares refer to, measured in
// the same run because a virtual machine's neighbours change them from minute to minute.
#pragma once

#include <cstddef>

#include "base/thread_pool.h"
#include "base/types.h"

namespace kipp {

// All threads of `pool` together sum `bytes` of huge-page memory, well beyond any cache: bytes per
// second, the best of `passes`.
Result<double> measure_read_bandwidth(ThreadPool& pool, std::size_t bytes, int passes);

// Independent chains of FP32 multiply-adds in the registers of all threads of `pool`, on the vector
// width the kernels use: floating-point operations per second (two per multiply-add), the best of
// `passes` of a few milliseconds.
double measure_multiply_add(ThreadPool& pool, int passes);

}  // namespace kipp
