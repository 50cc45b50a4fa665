// The loops around the kernels, compiled once per CPU target; the best one is chosen at the first
// product. SSSE3 is left out because no CPU of interest stops there, scalable vectors because they
// cannot be kept in arrays.
#include <algorithm>

#include "backend/cpu/matmul_job.h"
#include "backend/cpu/matmul_pack.h"

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/matmul_kernels.cc"
#include <hwy/foreach_target.h>
// After it, so that the file is read once per target.
#include "backend/cpu/matmul_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kipp::cpu::HWY_NAMESPACE {
namespace {

template <Scheme kScheme>
void run_tile(const Tile& tile, int tokens) {
  switch (tokens) {
    case 1:
      return Kernel<kScheme, 1>::run(tile);
    case 2:
      return Kernel<kScheme, 2>::run(tile);
    case 3:
      return Kernel<kScheme, 3>::run(tile);
    case 4:
      return Kernel<kScheme, 4>::run(tile);
    case 5:
      return Kernel<kScheme, 5>::run(tile);
    default:
      return Kernel<kScheme, kGroupTokens>::run(tile);
  }
}

// The sums of a run, [strips][tokens][kStripRows], to the rows of the result.
void write_out(const Job& job, int panel, int first_token, int tokens, const float* acc) {
  for (int strip = 0; strip < kStrips; ++strip) {
    const int row = panel * kPanelRows + strip * kStripRows;
    const int rows = std::min(kStripRows, job.out.cols - row);
    for (int t = 0; t < tokens && rows > 0; ++t) {
      const float* sum = acc + (strip * tokens + t) * kStripRows;
      float* out = job.out.row(first_token + t).data() + row;
      for (int i = 0; i < rows; ++i) out[i] = job.write == Write::add ? out[i] + sum[i] : sum[i];
    }
  }
}

// One panel times one run, a chunk of columns at a time, so that the chunk's weights stay in the
// first-level cache while the groups pass by.
template <Scheme kScheme>
void multiply_task(const Job& job, int panel, int run, int thread) {
  const int n_blocks = job.w->cols / kQuantBlock;
  const int end_group = job.first_group(run + 1);
  const int first_token = job.first_token(job.first_group(run));
  const int tokens = job.first_token(end_group) - first_token;
  const int step = strips_at_once(job.tokens / job.groups);  // of the smallest group
  float* acc = job.scratch->outputs(thread);
  std::fill_n(acc, kPanelRows * tokens, 0.0f);
  for (int begin = 0; begin < n_blocks; begin += job.chunk_blocks) {
    const int end = std::min(begin + job.chunk_blocks, n_blocks);
    const std::byte* blocks;
    if (job.w->panels != nullptr) {
      blocks = job.w->panels + panel * panel_bytes(kScheme, job.w->cols) +
               begin * block_layout(kScheme).bytes;
    } else {
      std::byte* packed = job.scratch->weights(thread);
      pack_blocks(job.w->mapped, panel, begin, end, packed);
      blocks = packed;
    }
    for (int strip = 0; strip < kStrips; strip += step) {
      for (int group = job.first_group(run); group < end_group; ++group) {
        const int token = job.first_token(group);
        const int group_tokens = job.first_token(group + 1) - token;
        for (int s = strip; s < strip + step; s += strips_at_once(group_tokens)) {
          run_tile<kScheme>({.block = blocks,
                             .strip = s,
                             .n_blocks = end - begin,
                             .x = job.inputs(token, group_tokens, begin),
                             .sums = job.sums(token, group_tokens, begin),
                             .acc = acc + (s * tokens + token - first_token) * kStripRows,
                             .acc_tokens = tokens},
                            group_tokens);
        }
      }
    }
  }
  write_out(job, panel, first_token, tokens, acc);
}

template <Scheme kScheme>
void multiply(const Job& job, int begin, int end, int thread) {
  for (int task = begin; task < end; ++task) {
    multiply_task<kScheme>(job, task / job.runs, task % job.runs, thread);
  }
}

void multiply_on_target(const Job& job, int begin, int end, int thread) {
  switch (job.w->scheme) {
    case Scheme::bf16:
      return multiply<Scheme::bf16>(job, begin, end, thread);
    case Scheme::q8_0:
      return multiply<Scheme::q8_0>(job, begin, end, thread);
    case Scheme::affine4_gs32:
      return multiply<Scheme::affine4_gs32>(job, begin, end, thread);
    case Scheme::scale4_gs32:
      return multiply<Scheme::scale4_gs32>(job, begin, end, thread);
  }
}

}  // namespace
}  // namespace kipp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kipp::cpu {

HWY_EXPORT(multiply_on_target);

void multiply_tasks(const Job& job, int begin, int end, int thread) {
  HWY_DYNAMIC_DISPATCH(multiply_on_target)(job, begin, end, thread);
}

}  // namespace kipp::cpu
#endif
