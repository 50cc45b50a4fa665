// The emulation of a GPU that the other tests of the CUDA kernels stand on: lane layouts as the PTX
// document gives them, and misuse that it must not let pass.
#include "backend/cuda/emulation.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cuda/device_code.h"
#include "base/float16.h"
#include "support/cuda_rows.h"

namespace kipp::cuda {
namespace {

struct MmaTest {
  const std::uint16_t* a;  // [16, 16]
  const std::uint16_t* b;  // [16, 8]
  const float* c;          // [16, 8]
  float* d;
};

// PTX ISA, mma.m16n8k16 with .bf16: element i of a lane's fragment, groupID = lane >> 2,
// threadID_in_group = lane % 4.
int a_row(int lane, int i) { return i < 2 || (i >= 4 && i < 6) ? lane >> 2 : (lane >> 2) + 8; }
int a_col(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i >= 4 ? 8 : 0); }
int b_row(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0); }
int b_col(int lane) { return lane >> 2; }
int c_row(int lane, int i) { return i < 2 ? lane >> 2 : (lane >> 2) + 8; }
int c_col(int lane, int i) { return lane % 4 * 2 + (i & 1); }

void mma_kernel(MmaTest test) {
  wait_for_previous();
  const int lane = lane_index();
  std::uint32_t a[4];
  std::uint32_t b[2];
  float d[4];
  for (int i = 0; i < 8; i += 2) {
    a[i / 2] = test.a[a_row(lane, i) * 16 + a_col(lane, i)] |
               static_cast<std::uint32_t>(test.a[a_row(lane, i + 1) * 16 + a_col(lane, i + 1)])
                   << 16;
  }
  for (int i = 0; i < 4; i += 2) {
    b[i / 2] = test.b[b_row(lane, i) * 8 + b_col(lane)] |
               static_cast<std::uint32_t>(test.b[b_row(lane, i + 1) * 8 + b_col(lane)]) << 16;
  }
  for (int i = 0; i < 4; ++i) d[i] = test.c[c_row(lane, i) * 8 + c_col(lane, i)];
  mma_bf16(d, a, b[0], b[1]);
  for (int i = 0; i < 4; ++i) test.d[c_row(lane, i) * 8 + c_col(lane, i)] = d[i];
}

TEST(CudaEmulation, MmaIsAProductInTheLayoutOfThePtxDocument) {
  const auto bf16_of = [](std::uint64_t seed, std::size_t n) {
    std::vector<std::uint16_t> bits;
    for (const float v : test::normal_floats(seed, n)) bits.push_back(f32_to_bf16(v));
    return bits;
  };
  const auto a = bf16_of(1, 256);
  auto b = bf16_of(2, 128);
  for (int k = 0; k < 16; ++k) b[static_cast<std::size_t>(k * 8 + 5)] = 0;  // an absent token
  const auto c = test::normal_floats(3, 128);
  std::vector<float> d(128, NAN);
  ASSERT_EQ(
      launch(mma_kernel, Grid{}, 32, 0, nullptr, MmaTest{a.data(), b.data(), c.data(), d.data()}),
      kLaunched);
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t col = 0; col < 8; ++col) {
      double sum = static_cast<double>(c[row * 8 + col]);
      for (std::size_t k = 0; k < 16; ++k) {
        sum += static_cast<double>(bf16_to_f32(a[row * 16 + k])) *
               static_cast<double>(bf16_to_f32(b[k * 8 + col]));
      }
      EXPECT_NEAR(d[row * 8 + col], sum, 1e-5) << row << ", " << col;
    }
  }
}

struct TransposeTest {
  std::uint16_t matrices[4][8][8];
};

// Lane l of ldmatrix.x4.trans receives of matrix i the elements (2 (l % 4), l / 4) in the low half
// and (2 (l % 4) + 1, l / 4) in the high half.
void transpose_kernel(const std::uint16_t* from, std::uint32_t* to) {
  wait_for_previous();
  auto& shared = shared_as<TransposeTest>();
  const int lane = lane_index();
  for (int i = lane; i < 256; i += 32) shared.matrices[i / 64][i / 8 % 8][i % 8] = from[i];
  sync_block();
  const Words4 r = ldmatrix_x4_trans(&shared.matrices[lane / 8][lane % 8][0]);
  for (int i = 0; i < 4; ++i) to[i * 32 + lane] = r.w[i];
}

TEST(CudaEmulation, LdmatrixTransposes) {
  std::vector<std::uint16_t> from(256);
  for (std::size_t i = 0; i < 256; ++i) from[i] = static_cast<std::uint16_t>(i);
  std::vector<std::uint32_t> to(128);
  ASSERT_EQ(
      launch(transpose_kernel, Grid{}, 32, sizeof(TransposeTest), nullptr, from.data(), to.data()),
      kLaunched);
  for (std::uint32_t i = 0; i < 4; ++i) {
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      const std::uint32_t low = i * 64 + lane % 4 * 2 * 8 + lane / 4;
      EXPECT_EQ(to[i * 32 + lane], low | ((low + 8) << 16)) << i << ", lane " << lane;
    }
  }
}

TEST(CudaEmulation, Fp16OfEveryPatternIsTheBaseLibrarys) {
  for (std::uint32_t half = 0; half < 0x10000u; ++half) {
    const float expected = f16_to_f32(static_cast<std::uint16_t>(half));
    const float found = f16_bits_to_float(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(found)) << half;
    } else {
      EXPECT_EQ(float_to_bits(found), float_to_bits(expected)) << half;
    }
  }
}

struct Blocks {
  int index[64];
};

// Each thread adds its number to its neighbour's after a barrier, in blocks of two warps.
void barrier_kernel(int* out) {
  wait_for_previous();
  auto& shared = shared_as<Blocks>();
  const int thread = thread_index();
  shared.index[thread] = thread + 100 * block_x();
  sync_block();
  out[block_x() * 64 + thread] = shared.index[(thread + 40) % 64];
}

TEST(CudaEmulation, BarriersHoldInEitherOrder) {
  for (const bool descending : {false, true}) {
    emulation::set_descending(descending);
    std::vector<int> out(128);
    ASSERT_EQ(launch(barrier_kernel, Grid{2, 1, 1}, 64, sizeof(Blocks), nullptr, out.data()),
              kLaunched);
    for (int i = 0; i < 128; ++i) {
      EXPECT_EQ(out[static_cast<std::size_t>(i)], i / 64 * 100 + (i % 64 + 40) % 64);
    }
  }
  emulation::set_descending(false);
}

struct Landing {
  alignas(16) float values[2][4];
};

void copy_kernel(const float* from, float* out) {
  wait_for_previous();
  auto& shared = shared_as<Landing>();
  if (thread_index() != 0) return;
  copy_async16(shared.values[0], from, true);
  commit_copies();
  copy_async16(shared.values[1], from + 4, false);
  commit_copies();
  out[0] = shared.values[0][0];  // too early
  wait_copies<1>();
  out[1] = shared.values[0][3];
  out[2] = shared.values[1][0];  // still too early
  wait_copies<0>();
  out[3] = shared.values[1][0];
}

TEST(CudaEmulation, CopiesArriveWhenTheirGroupIsWaitedFor) {
  const std::vector<float> from{1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> out(4);
  ASSERT_EQ(launch(copy_kernel, Grid{}, 32, sizeof(Landing), nullptr, from.data(), out.data()),
            kLaunched);
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(out[1], 4);
  EXPECT_TRUE(std::isnan(out[2]));
  EXPECT_EQ(out[3], 0);
}

void unwritten_kernel(float* out) {
  wait_for_previous();
  out[thread_index()] = shared_as<Landing>().values[1][2];
}

TEST(CudaEmulation, UnwrittenSharedMemoryIsNotANumber) {
  std::vector<float> out(32);
  ASSERT_EQ(launch(unwritten_kernel, Grid{}, 32, sizeof(Landing), nullptr, out.data()), kLaunched);
  EXPECT_TRUE(std::ranges::all_of(out, [](float v) { return std::isnan(v); }));
}

void partial_barrier_kernel() {
  wait_for_previous();
  if (thread_index() < 40) sync_block();
}
void partial_collective_kernel() {
  wait_for_previous();
  if (lane_index() != 7) sync_warp();
}
void diverged_kernel(float* out) {
  wait_for_previous();
  if (lane_index() < 16) {
    sync_warp();
  } else {
    *out = shuffle_xor(1.0f, 1);
  }
}
void lost_copy_kernel(const float* from) {
  wait_for_previous();
  copy_async16(shared_as<Landing>().values[0], from, true);
}

void crowded_copy_kernel(const float* from) {
  wait_for_previous();
  for (int i = 0; i < 2; ++i) {
    copy_async16(shared_as<Landing>().values[0], from, true);
    commit_copies();
  }
  wait_copies<0>();
}
void hasty_kernel() {}

TEST(CudaEmulationDeathTest, MisuseEndsTheProcessWithASentence) {
  std::vector<float> values(4);
  float* value = values.data();
  EXPECT_DEATH(launch(partial_barrier_kernel, Grid{}, 64, 0, nullptr),
               "not all threads of a block reached a barrier");
  EXPECT_DEATH(launch(partial_collective_kernel, Grid{}, 32, 0, nullptr),
               "not all lanes reached a collective");
  EXPECT_DEATH(launch(diverged_kernel, Grid{}, 32, 0, nullptr, value), "diverged at a collective");
  EXPECT_DEATH(launch(lost_copy_kernel, Grid{}, 32, sizeof(Landing), nullptr,
                      static_cast<const float*>(value)),
               "ended before its copies");
  EXPECT_DEATH(launch(crowded_copy_kernel, Grid{}, 32, sizeof(Landing), nullptr,
                      static_cast<const float*>(value)),
               "a copy begins where one is under way");
  EXPECT_DEATH(launch(hasty_kernel, Grid{}, 32, 0, nullptr), "without waiting for the kernel");
  EXPECT_DEATH(launch(partial_collective_kernel, Grid{}, 33, 0, nullptr), "a multiple of 32");
}

}  // namespace
}  // namespace kipp::cuda
