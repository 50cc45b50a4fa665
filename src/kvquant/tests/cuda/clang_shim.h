// What clang needs to compile codec.h as CUDA device code on a machine without CUDA's headers: the
// attributes, and those functions of its device library that codec.h calls. Included before all
// else; only compiled, never linked.
#pragma once

#define __CUDACC__ 1
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))

#include <cmath>
#include <cstring>

__device__ inline void* memcpy(void* to, const void* from, std::size_t bytes) {
  return __builtin_memcpy(to, from, bytes);
}
__device__ inline float fabsf(float x) { return __builtin_fabsf(x); }
__device__ inline float fminf(float a, float b) { return __builtin_fminf(a, b); }
__device__ inline float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
__device__ inline float sqrtf(float x) { return __nvvm_sqrt_rn_f(x); }
__device__ inline long lrintf(float x) { return __nvvm_f2ll_rn(x); }
