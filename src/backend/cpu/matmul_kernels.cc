// The loops around the kernels, compiled once per CPU target; the best one is chosen at the first
// product. SSSE3 is left out because no CPU of interest stops there, scalable vectors because they
// cannot be kept in arrays.
#include <algorithm>
#include <utility>

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

// How far ahead weights that are read in order are asked for. Less than 4 KiB did not hide the
// memory, 16 KiB began to lose again.
constexpr std::ptrdiff_t kAheadBytes = 8192;

template <Scheme kScheme, PairAdd kPairAdd>
void run_tile(const Tile& tile, int tokens) {
  switch (tokens) {
    case 1:
      return Kernel<kScheme, 1, kPairAdd>::run(tile);
    case 2:
      return Kernel<kScheme, 2, kPairAdd>::run(tile);
    case 3:
      return Kernel<kScheme, 3, kPairAdd>::run(tile);
    case 4:
      return Kernel<kScheme, 4, kPairAdd>::run(tile);
    default:
      return Kernel<kScheme, kGroupTokens, kPairAdd>::run(tile);
  }
}

// The sums of a run, [strips][tokens][kStripRows], to the rows of the result.
void write_out(const Job& job, int panel, const Run& run, const float* acc) {
  for (int t = 0; t < run.tokens; ++t) {
    for (int strip = 0; strip < kStrips; ++strip) {
      const int row = panel * kPanelRows + strip * kStripRows;
      const int rows = std::min(kStripRows, job.out.cols - row);
      const float* sum = acc + (strip * run.tokens + t) * kStripRows;
      float* out = job.out.row(run.first_token + t).data() + row;
      for (int i = 0; i < rows; ++i) out[i] = job.write == Write::add ? out[i] + sum[i] : sum[i];
    }
  }
}

// All groups of a run times one chunk of a panel: strip by strip, so that its weights stay in the
// first-level cache while the groups pass by.
template <Scheme kScheme, PairAdd kPairAdd>
void multiply_chunk(const Job& job, const Run& run, const std::byte* blocks, int begin, int end,
                    float* acc) {
  const std::ptrdiff_t chunk_bytes = (end - begin) * block_layout(kScheme).bytes;
  const int step = strips_at_once(job.in.rows / job.groups);  // of the smallest group
  for (int strip = 0; strip < kStrips; strip += step) {
    for (int group = run.first_group; group < run.end_group; ++group) {
      const int token = job.first_token(group);
      const int tokens = job.first_token(group + 1) - token;
      const int at_once = strips_at_once(tokens);
      for (int s = strip; s < strip + step; s += at_once) {
        run_tile<kScheme, kPairAdd>(
            {.block = blocks,
             .strip = s,
             .n_blocks = end - begin,
             .x = run.inputs(token, begin),
             .pairs = run.pairs(token, begin),
             .inputs = run.block_inputs(token, begin),
             .acc = acc + (s * run.tokens + token - run.first_token) * kStripRows,
             .acc_tokens = run.tokens,
             .ahead = at_once == kStrips ? kAheadBytes : chunk_bytes},
            tokens);
      }
    }
  }
}

template <Scheme kScheme, PairAdd kPairAdd>
void multiply(const Job& job, int task, int thread) {
  const int panel = task / job.runs;
  const Run run(job, task % job.runs);
  float* acc = job.scratch->outputs(thread);
  std::fill_n(acc, kPanelRows * run.tokens, 0.0f);
  for (int begin = 0; begin < job.blocks(); begin += kChunkBlocks) {
    const int end = std::min(begin + kChunkBlocks, job.blocks());
    const std::byte* blocks = job.scratch->weights(thread);
    if (job.w->panels != nullptr) {
      blocks = job.w->panels + panel * panel_bytes(kScheme, job.w->cols) +
               begin * block_layout(kScheme).bytes;
    } else {
      pack_blocks(job.w->mapped, panel, begin, end, job.scratch->weights(thread));
    }
    multiply_chunk<kScheme, kPairAdd>(job, run, blocks, begin, end, acc);
  }
  write_out(job, panel, run, acc);
}

template <PairAdd kPairAdd>
void multiply_quantized(const Job& job, int task, int thread) {
  switch (job.w->scheme) {
    case Scheme::bf16:
      return;
    case Scheme::q8_0:
      return multiply<Scheme::q8_0, kPairAdd>(job, task, thread);
    case Scheme::affine4_gs32:
      return multiply<Scheme::affine4_gs32, kPairAdd>(job, task, thread);
    case Scheme::scale4_gs32:
      return multiply<Scheme::scale4_gs32, kPairAdd>(job, task, thread);
  }
}

void multiply_on_target(const Job& job, int task, int thread) {
  if (job.w->scheme == Scheme::bf16) {
    return multiply<Scheme::bf16, PairAdd::plain>(job, task, thread);
  }
#if HWY_TARGET == HWY_AVX3
  if (__builtin_cpu_supports("avx512vnni")) {
    return multiply_quantized<PairAdd::fused>(job, task, thread);
  }
#endif
  multiply_quantized<PairAdd::plain>(job, task, thread);
}

}  // namespace
}  // namespace kipp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kipp::cpu {

HWY_EXPORT(multiply_on_target);

void multiply_task(const Job& job, int task, int thread) {
  HWY_DYNAMIC_DISPATCH(multiply_on_target)(job, task, thread);
}

}  // namespace kipp::cpu
#endif
