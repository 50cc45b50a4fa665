// Inputs as the kernels read them: floats for bf16, integers of 16 bits for the quantized schemes.
// Plain loops that the compiler turns into vectors of each target; every value depends on its own
// block alone, in arithmetic that rounds the same everywhere.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "backend/cpu/matmul_job.h"

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/matmul_inputs.cc"
#include <hwy/foreach_target.h>
// After it, so that the file is read once per target.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kipp::cpu::HWY_NAMESPACE {
namespace {

// Rounds a block to integers, to nearest, so that the largest magnitude becomes kLargest. An
// infinite or undefined value makes the scale, and with it every output, undefined: it must not
// pass as a number.
void quantize(const float* x, std::int16_t* integers, BlockInput* input) {
  constexpr std::int32_t kLargest = 32767;
  constexpr float kTiny = 0x1p-100f;  // below it kLargest / largest could be infinite
  constexpr std::int32_t kInfinity = 0x7f800000;
  std::int32_t bits = std::bit_cast<std::int32_t>(kTiny);  // magnitudes order like integers
  for (int i = 0; i < kQuantBlock; ++i) {
    bits = std::max(bits, std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff);
  }
  const auto largest = std::bit_cast<float>(bits);
  const float inverse = static_cast<float>(kLargest) / largest;
  constexpr float kRound = 0x1.8p23f;  // added, it leaves the rounded value in the low bits
  std::int32_t sum = 0;
  for (int i = 0; i < kQuantBlock; ++i) {
    const std::int32_t rounded =
        std::bit_cast<std::int32_t>(x[i] * inverse + kRound) - std::bit_cast<std::int32_t>(kRound);
    const std::int32_t integer = std::clamp(rounded, -kLargest, kLargest);
    integers[i] = static_cast<std::int16_t>(integer);
    sum += integer;
  }
  input->scale = bits >= kInfinity ? std::numeric_limits<float>::quiet_NaN()
                                   : largest / static_cast<float>(kLargest);
  input->sum = static_cast<float>(sum) * input->scale;
  input->offset = -8 * sum;
}

template <int kTokens>
void lay_out_group(const Job& job, const Run& run, int token) {
  const std::ptrdiff_t stride = job.in.cols;
  const float* rows = job.in.row(token).data();
  for (int block = 0; block < job.blocks(); ++block) {
    const float* x = rows + block * kQuantBlock;
    const int chunk = block / kChunkBlocks * kChunkBlocks;
    const int tokens_before = (block - chunk) * kTokens;
    if (job.w->scheme == Scheme::bf16) {
      float* out = run.inputs(token, chunk) + tokens_before * kQuantBlock;
      for (int c = 0; c < kQuantBlock; ++c) {
        for (int t = 0; t < kTokens; ++t) *out++ = x[t * stride + c];
      }
      continue;
    }
    std::int16_t integers[static_cast<std::size_t>(kTokens)][kQuantBlock];
    for (int t = 0; t < kTokens; ++t) {
      quantize(x + t * stride, integers[t], run.block_inputs(token, chunk) + tokens_before + t);
    }
    std::int32_t* out = run.pairs(token, chunk) + tokens_before * kPairs;
    for (int p = 0; p < kPairs; ++p) {
      for (int t = 0; t < kTokens; ++t) std::memcpy(out++, &integers[t][2 * p], sizeof(*out));
    }
  }
}

void lay_out_on_target(const Job& job, int begin, int end) {
  for (int index = 0; index < job.runs; ++index) {
    const Run run(job, index);
    for (int group = std::max(begin, run.first_group); group < std::min(end, run.end_group);
         ++group) {
      const int token = job.first_token(group);
      switch (job.first_token(group + 1) - token) {
        case 1:
          lay_out_group<1>(job, run, token);
          break;
        case 2:
          lay_out_group<2>(job, run, token);
          break;
        case 3:
          lay_out_group<3>(job, run, token);
          break;
        case 4:
          lay_out_group<4>(job, run, token);
          break;
        default:
          lay_out_group<kGroupTokens>(job, run, token);
      }
    }
  }
}

}  // namespace
}  // namespace kipp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kipp::cpu {

HWY_EXPORT(lay_out_on_target);

void lay_out_inputs(const Job& job, int begin, int end) {
  HWY_DYNAMIC_DISPATCH(lay_out_on_target)(job, begin, end);
}

}  // namespace kipp::cpu
#endif
