// What the kernels of this folder are written in: CUDA's execution model and the instructions that
// matter, under names that mean the same to nvcc and to a C++ compiler. Kernels call these and
// never an intrinsic, so that tests run the very sources that a GPU runs (emulation.h says what
// that shows and what not).
//
// Lane layouts are those of the PTX document. `lane` counts 0..31, group = lane / 4, pair = lane
// % 4. Floating-point results must not depend on what a compiler fuses: the build passes
// -fmad=false, and where one rounding is wanted the source says fma().
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "backend/cuda/kernels.h"

#if defined(__CUDACC__)
#define KIPP_KERNEL __global__
#define KIPP_DEVICE __device__ __forceinline__
#define KIPP_LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#define KIPP_UNROLL _Pragma("unroll")
#else
#include <bit>
#include <cstring>

#include "backend/cuda/emulation.h"
#define KIPP_KERNEL
#define KIPP_DEVICE inline
#define KIPP_LAUNCH_BOUNDS(threads, blocks)
#define KIPP_UNROLL
#endif

namespace kipp::cuda {

inline constexpr LaunchCode kLaunched = 0;
inline constexpr LaunchCode kInvalidShape = 1;  // cudaErrorInvalidValue
inline constexpr int kWarpSize = 32;

struct alignas(16) Words4 {
  std::uint32_t w[4];
};
struct alignas(8) Words2 {
  std::uint32_t w[2];
};
struct alignas(16) Floats4 {
  float f[4];
};
struct alignas(8) Floats2 {
  float f[2];
};

struct Grid {
  int x = 1;
  int y = 1;
  int z = 1;
};

constexpr std::size_t at(int row, int cols) {
  return static_cast<std::size_t>(row) * static_cast<std::size_t>(cols);
}

// The size of an array, where it comes from a template's argument.
constexpr std::size_t count(int n) { return static_cast<std::size_t>(n); }

template <class T, class From>
KIPP_DEVICE T load(const From* from) {
  return *reinterpret_cast<const T*>(from);
}
template <class T, class To>
KIPP_DEVICE void store(To* to, const T& value) {
  *reinterpret_cast<T*>(to) = value;
}

#if defined(__CUDACC__)

KIPP_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
KIPP_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
KIPP_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
KIPP_DEVICE int block_z() { return static_cast<int>(blockIdx.z); }
KIPP_DEVICE void sync_block() { __syncthreads(); }
KIPP_DEVICE void sync_warp() { __syncwarp(); }

// Kernels of a stream overlap (programmatic dependent launch, compute capability 9.0): a block may
// start while the kernel before it still runs, so that its launch costs nothing and weights, which
// no kernel of a step writes, can be on their way. Every thread calls wait_for_previous() before it
// touches what a kernel may have written or still reads.
KIPP_DEVICE void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel's blocks may take what room this one leaves, once all of its blocks say so.
KIPP_DEVICE void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// The block's shared memory as one T, whose size the launch was given.
template <class T>
KIPP_DEVICE T& shared_as() {
  extern __shared__ __align__(128) unsigned char kipp_shared_bytes[];
  return *reinterpret_cast<T*>(kipp_shared_bytes);
}

KIPP_DEVICE float shuffle_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
KIPP_DEVICE int shuffle_xor(int value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

// Bit l: lane l's flag.
KIPP_DEVICE std::uint32_t ballot(bool flag) { return __ballot_sync(0xffffffffu, flag); }
KIPP_DEVICE int bit_count(std::uint32_t bits) { return __popc(bits); }

KIPP_DEVICE float bits_to_float(std::uint32_t bits) { return __uint_as_float(bits); }
KIPP_DEVICE std::uint32_t float_to_bits(float value) { return __float_as_uint(value); }
KIPP_DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
KIPP_DEVICE float f16_bits_to_float(std::uint32_t half) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<unsigned short>(half)));
  return value;
}
// 2^x within 2 units in the last place; 0 for -infinity.
KIPP_DEVICE float exp2_fast(float x) {
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}
KIPP_DEVICE float exp_exact(float x) { return expf(x); }
// Two BF16, rounded to nearest even: `low` in the low half.
KIPP_DEVICE std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
// a - b in each half; exact for what the kernels subtract.
KIPP_DEVICE std::uint32_t sub_bf16(std::uint32_t a, std::uint32_t b) {
  std::uint32_t difference;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(difference)
      : "r"(a), "r"(0x3f803f80u), "r"(b ^ 0x80008000u));
  return difference;
}
// The high halves of two words: `low`'s in the low half.
KIPP_DEVICE std::uint32_t high_halves(std::uint32_t low, std::uint32_t high) {
  return __byte_perm(low, high, 0x7632);
}

// (a & mask) | bits in one instruction: ptxas makes two of it where both are constants.
KIPP_DEVICE std::uint32_t and_or(std::uint32_t a, std::uint32_t mask, std::uint32_t bits) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(a), "r"(mask), "r"(bits));
  return result;
}
// 2^23 + byte i of a word.
KIPP_DEVICE float byte_above_2_23(std::uint32_t word, int i) {
  return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440u + static_cast<unsigned>(i)));
}

// Read once by the whole grid: not kept in the first-level cache.
template <class T>
KIPP_DEVICE T load_streaming(const void* from) {
  T value;
  if constexpr (sizeof(T) == 16) {
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(value.w[0]), "=r"(value.w[1]), "=r"(value.w[2]), "=r"(value.w[3])
        : "l"(__cvta_generic_to_global(from)));
  } else {
    static_assert(sizeof(T) == 8);
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
        : "=r"(value.w[0]), "=r"(value.w[1])
        : "l"(__cvta_generic_to_global(from)));
  }
  return value;
}

KIPP_DEVICE void copy_async16(void* to_shared, const void* from_global, bool valid) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(to_shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from_global)), "r"(bytes)
               : "memory");
}
KIPP_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kGroupsLeft>
KIPP_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroupsLeft) : "memory");
}

KIPP_DEVICE void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                          std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// d = a b, without zeros to be written first.
KIPP_DEVICE void mma_bf16_first(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

KIPP_DEVICE Words4 ldmatrix_x4_trans(const void* shared_row) {
  Words4 r;
  const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
               : "r"(from)
               : "memory");
  return r;
}

KIPP_DEVICE int add_shared(int* counter, int n) { return atomicAdd(counter, n); }

// Asked once: all devices that a process uses are alike (kernels.h serves one).
inline bool kernels_overlap() {
  static const bool overlap = [] {
    int device = 0;
    int major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major >= 9;
  }();
  return overlap;
}

// `shared_bytes` of dynamic shared memory, which shared_as() reads.
template <class... P, class... A>
LaunchCode launch(void (*kernel)(P...), Grid grid, int threads, std::size_t shared_bytes,
                  Stream stream, const A&... arguments) {
  constexpr std::size_t kWithoutAsking = std::size_t{48} << 10;
  if (shared_bytes > kWithoutAsking) {
    const cudaError_t granted = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (granted != cudaSuccess) return static_cast<LaunchCode>(granted);
  }
  cudaLaunchAttribute overlap;
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                        static_cast<unsigned>(grid.z));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = reinterpret_cast<cudaStream_t>(stream);
  config.attrs = &overlap;
  config.numAttrs = kernels_overlap() ? 1 : 0;
  return static_cast<LaunchCode>(cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...));
}

#else

KIPP_DEVICE int thread_index() { return emulation::thread_index(); }
KIPP_DEVICE int block_x() { return emulation::block_index(0); }
KIPP_DEVICE int block_y() { return emulation::block_index(1); }
KIPP_DEVICE int block_z() { return emulation::block_index(2); }
KIPP_DEVICE void sync_block() { emulation::sync_block(); }
KIPP_DEVICE void sync_warp() {
  emulation::warp_collective(nullptr, [](void* const*) {});
}

KIPP_DEVICE void wait_for_previous() { emulation::wait_for_previous(); }
KIPP_DEVICE void let_next_start() {}

template <class T>
KIPP_DEVICE T& shared_as() {
  return *static_cast<T*>(emulation::shared_memory());
}

template <class T>
KIPP_DEVICE T shuffle_xor(T value, int mask) {
  struct Argument {
    T in, out;
    int mask;
  } argument{value, value, mask};
  emulation::warp_collective(&argument, [](void* const* lanes) {
    for (int lane = 0; lane < kWarpSize; ++lane) {
      auto& to = *static_cast<Argument*>(lanes[lane]);
      to.out = static_cast<Argument*>(lanes[lane ^ to.mask])->in;
    }
  });
  return argument.out;
}

KIPP_DEVICE std::uint32_t ballot(bool flag) {
  struct Argument {
    bool flag;
    std::uint32_t out;
  } argument{flag, 0};
  emulation::warp_collective(&argument, [](void* const* lanes) {
    std::uint32_t bits = 0;
    for (int lane = 0; lane < kWarpSize; ++lane) {
      if (static_cast<Argument*>(lanes[lane])->flag) bits |= 1u << lane;
    }
    for (int lane = 0; lane < kWarpSize; ++lane) static_cast<Argument*>(lanes[lane])->out = bits;
  });
  return argument.out;
}
KIPP_DEVICE int bit_count(std::uint32_t bits) { return std::popcount(bits); }

KIPP_DEVICE float bits_to_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
KIPP_DEVICE std::uint32_t float_to_bits(float value) { return std::bit_cast<std::uint32_t>(value); }
KIPP_DEVICE float fma(float a, float b, float c) { return std::fma(a, b, c); }
KIPP_DEVICE float f16_bits_to_float(std::uint32_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t rest = half & 0x7fffu;
  if (rest >= 0x7c00u) return bits_to_float(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  // As a float with FP16's fields, too small by 2^112: exact, subnormals included.
  return bits_to_float(sign | (float_to_bits(bits_to_float(rest << 13) * 0x1p112f)));
}
KIPP_DEVICE float exp2_fast(float x) { return std::exp2(x); }
KIPP_DEVICE float exp_exact(float x) { return std::exp(x); }
KIPP_DEVICE std::uint32_t pack_bf16(float low, float high) {
  const auto round = [](float value) {
    const std::uint32_t bits = float_to_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  };
  return round(low) | (round(high) << 16);
}
KIPP_DEVICE std::uint32_t sub_bf16(std::uint32_t a, std::uint32_t b) {
  return pack_bf16(bits_to_float(a << 16) - bits_to_float(b << 16),
                   bits_to_float(a & 0xffff0000u) - bits_to_float(b & 0xffff0000u));
}
KIPP_DEVICE std::uint32_t high_halves(std::uint32_t low, std::uint32_t high) {
  return (low >> 16) | (high & 0xffff0000u);
}

KIPP_DEVICE std::uint32_t and_or(std::uint32_t a, std::uint32_t mask, std::uint32_t bits) {
  return (a & mask) | bits;
}
KIPP_DEVICE float byte_above_2_23(std::uint32_t word, int i) {
  return bits_to_float(0x4b000000u | ((word >> (8 * i)) & 0xffu));
}

template <class T>
KIPP_DEVICE T load_streaming(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

KIPP_DEVICE void copy_async16(void* to_shared, const void* from_global, bool valid) {
  emulation::copy_async16(to_shared, valid ? from_global : nullptr);
}
KIPP_DEVICE void commit_copies() { emulation::commit_copies(); }
template <int kGroupsLeft>
KIPP_DEVICE void wait_copies() {
  emulation::wait_copies(kGroupsLeft);
}

// PTX ISA, "Matrix Fragments for mma.m16n8k16": a0,a1 at (row group, columns 2 pair ..), a2,a3 at
// row group + 8, a4..a7 the same at columns 2 pair + 8 ..; b0,b1 at (rows 2 pair .., column group),
// b2,b3 at rows 2 pair + 8 ..; c0,c1 at (row group, columns 2 pair ..), c2,c3 at row group + 8.
// Products are exact and added in double; the hardware's own additions differ in the last bits.
inline void mma_of_warp(void* const* lanes);

struct MmaArgument {
  float* d;
  const std::uint32_t* a;
  std::uint32_t b[2];
};

KIPP_DEVICE void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                          std::uint32_t b1) {
  MmaArgument argument{d, a, {b0, b1}};
  emulation::warp_collective(&argument, mma_of_warp);
}

KIPP_DEVICE void mma_bf16_first(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                std::uint32_t b1) {
  for (float& element : d) element = 0.0f;
  mma_bf16(d, a, b0, b1);
}

inline void mma_of_warp(void* const* lanes) {
  double a[16][16];  // by column, so that the loop over rows runs over neighbours
  double b[8][16];   // by column
  const auto low = [](std::uint32_t pair) {
    return static_cast<double>(bits_to_float(pair << 16));
  };
  const auto high = [](std::uint32_t pair) {
    return static_cast<double>(bits_to_float(pair & 0xffff0000u));
  };
  const MmaArgument* of_lane[kWarpSize];
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const auto& from = *(of_lane[lane] = static_cast<const MmaArgument*>(lanes[lane]));
    const int group = lane / 4;
    const int col = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      a[col + i / 2 * 8][group + i % 2 * 8] = low(from.a[i]);
      a[col + i / 2 * 8 + 1][group + i % 2 * 8] = high(from.a[i]);
    }
    for (int i = 0; i < 2; ++i) {
      b[group][col + i * 8] = low(from.b[i]);
      b[group][col + i * 8 + 1] = high(from.b[i]);
    }
  }
  for (int col = 0; col < 8; ++col) {
    bool zero = true;  // a column that holds no token: most of them, when one token is decoded
    for (int k = 0; k < 16; ++k) zero = zero && b[col][k] == 0.0;
    if (zero) continue;
    const auto d = [&](int row) -> float& {
      return of_lane[row % 8 * 4 + col / 2]->d[row / 8 * 2 + col % 2];
    };
    double sum[16];
    for (int row = 0; row < 16; ++row) sum[row] = static_cast<double>(d(row));
    for (int k = 0; k < 16; ++k) {
      for (int row = 0; row < 16; ++row) sum[row] += a[k][row] * b[col][k];
    }
    for (int row = 0; row < 16; ++row) d(row) = static_cast<float>(sum[row]);
  }
}

// Four 8x8 matrices of 16-bit elements, transposed: lanes 8 i .. 8 i + 7 point to the rows of
// matrix i; a lane receives elements (2 pair, group) and (2 pair + 1, group) of each.
KIPP_DEVICE Words4 ldmatrix_x4_trans(const void* shared_row) {
  struct Argument {
    const std::uint16_t* row;
    Words4 out;
  } argument{static_cast<const std::uint16_t*>(shared_row), {}};
  emulation::warp_collective(&argument, [](void* const* lanes) {
    for (int lane = 0; lane < kWarpSize; ++lane) {
      auto& to = *static_cast<Argument*>(lanes[lane]);
      for (int i = 0; i < 4; ++i) {
        const auto row = [&](int r) { return static_cast<Argument*>(lanes[i * 8 + r])->row; };
        const int first = lane % 4 * 2;
        to.out.w[i] =
            row(first)[lane / 4] | (static_cast<std::uint32_t>(row(first + 1)[lane / 4]) << 16);
      }
    }
  });
  return argument.out;
}

KIPP_DEVICE int add_shared(int* counter, int n) {
  const int before = *counter;
  *counter = before + n;
  return before;
}

template <class... P, class... A>
LaunchCode launch(void (*kernel)(P...), Grid grid, int threads, std::size_t shared_bytes, Stream,
                  const A&... arguments) {
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
  } call{kernel, {static_cast<P>(arguments)...}};
  emulation::run(
      {{grid.x, grid.y, grid.z}, threads, shared_bytes},
      [](void* argument) {
        auto& c = *static_cast<Call*>(argument);
        std::apply(c.kernel, c.arguments);
      },
      &call);
  return kLaunched;
}

#endif

KIPP_DEVICE int lane_index() { return thread_index() % kWarpSize; }
KIPP_DEVICE int warp_index() { return thread_index() / kWarpSize; }

KIPP_DEVICE float bf16_low(std::uint32_t pair) { return bits_to_float(pair << 16); }
KIPP_DEVICE float bf16_high(std::uint32_t pair) { return bits_to_float(pair & 0xffff0000u); }

// Two values as two BF16 terms each: v = hi + lo within 2^-17 of v.
struct SplitPair {
  std::uint32_t hi, lo;
};
KIPP_DEVICE SplitPair split_bf16(float low, float high) {
  SplitPair pair;
  pair.hi = pack_bf16(low, high);
  pair.lo = pack_bf16(low - bf16_low(pair.hi), high - bf16_high(pair.hi));
  return pair;
}

// Over all lanes, in one order: lanes 16 apart first, then 8, 4, 2, 1. All lanes get it.
KIPP_DEVICE float warp_sum(float value) {
  KIPP_UNROLL
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

}  // namespace kipp::cuda
