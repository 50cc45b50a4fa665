#include "backend/cpu/matmul.h"

#include <algorithm>
#include <cassert>

#include "backend/cpu/matmul_job.h"

namespace kipp::cpu {

namespace {

constexpr int kChunkBlocks = 8;
// Fewer inputs than this are laid out by the caller alone: waking a thread would take longer.
constexpr int kSerialInputs = 8192;

constexpr std::size_t kAlign = 64;

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

constexpr std::size_t kOutputBytes =
    sizeof(float) * kPanelRows * kGroupTokens * static_cast<std::size_t>(kRunGroups);
constexpr auto kWeightBytes =
    static_cast<std::size_t>(block_layout(Scheme::bf16).bytes * kChunkBlocks);
constexpr std::size_t kThreadBytes = kOutputBytes + kWeightBytes;

// Sum of a block's inputs: halves are folded onto each other, so that the order is the same for
// every vector width.
float block_sum(const float* x) {
  float fold[kQuantBlock / 2];
  for (int i = 0; i < kQuantBlock / 2; ++i) fold[i] = x[i] + x[i + kQuantBlock / 2];
  for (int width = kQuantBlock / 4; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) fold[i] += fold[i + width];
  }
  return fold[0];
}

template <bool kFourBit, int kTokens>
void lay_out_group(const float* in, int cols, float* out, float* sums) {
  constexpr Scheme kOrder = kFourBit ? Scheme::scale4_gs32 : Scheme::bf16;
  for (int c = 0; c < cols; c += kQuantBlock) {
    for (int step = 0; step < kQuantBlock; ++step) {
      for (int t = 0; t < kTokens; ++t) {
        const float value = in[static_cast<std::ptrdiff_t>(t) * cols + c + column_of(kOrder, step)];
        *out++ = kFourBit ? value * input_factor(kOrder, step) : value;
      }
    }
    for (int t = 0; kFourBit && t < kTokens; ++t) {
      *sums++ = block_sum(in + static_cast<std::ptrdiff_t>(t) * cols + c);
    }
  }
}

template <bool kFourBit>
void lay_out(const Job& job, const Rows& in, int begin, int end) {
  for (int group = begin; group < end; ++group) {
    const int token = job.first_token(group);
    const int tokens = job.first_token(group + 1) - token;
    const float* x = in.row(token).data();
    float* out = job.scratch->inputs() + static_cast<std::ptrdiff_t>(token) * in.cols;
    float* sums =
        job.scratch->sums() + static_cast<std::ptrdiff_t>(token) * (in.cols / kQuantBlock);
    switch (tokens) {
      case 1:
        lay_out_group<kFourBit, 1>(x, in.cols, out, sums);
        break;
      case 2:
        lay_out_group<kFourBit, 2>(x, in.cols, out, sums);
        break;
      case 3:
        lay_out_group<kFourBit, 3>(x, in.cols, out, sums);
        break;
      case 4:
        lay_out_group<kFourBit, 4>(x, in.cols, out, sums);
        break;
      case 5:
        lay_out_group<kFourBit, 5>(x, in.cols, out, sums);
        break;
      default:
        lay_out_group<kFourBit, kGroupTokens>(x, in.cols, out, sums);
    }
  }
}

}  // namespace

Result<MatmulScratch> MatmulScratch::create(int threads, int max_tokens, int max_cols) {
  const std::size_t inputs =
      sizeof(float) * static_cast<std::size_t>(max_tokens) * static_cast<std::size_t>(max_cols);
  const std::size_t inputs_bytes = aligned(inputs);
  const std::size_t sums_bytes = aligned(inputs / kQuantBlock);
  KIPP_TRY_ASSIGN(memory, HugeBuffer::create(inputs_bytes + sums_bytes +
                                             kThreadBytes * static_cast<std::size_t>(threads)));
  MatmulScratch scratch;
  scratch.memory_ = std::move(memory);
  std::byte* at = scratch.memory_.bytes().data();
  scratch.inputs_ = reinterpret_cast<float*>(at);
  scratch.sums_ = reinterpret_cast<float*>(at + inputs_bytes);
  scratch.threads_ = at + inputs_bytes + sums_bytes;
  return scratch;
}

float* MatmulScratch::outputs(int thread) const {
  return reinterpret_cast<float*>(threads_ + kThreadBytes * static_cast<std::size_t>(thread));
}

std::byte* MatmulScratch::weights(int thread) const {
  return threads_ + kThreadBytes * static_cast<std::size_t>(thread) + kOutputBytes;
}

void matmul(ThreadPool& pool, const MatmulScratch& scratch, const Rows& out, const Rows& in,
            const PackedMatrix& w, Write write) {
  assert(out.cols == w.rows && in.cols == w.cols && out.rows == in.rows);
  if (in.rows == 0) return;  // a step may ask for no logits
  const int groups = (in.rows + kGroupTokens - 1) / kGroupTokens;
  const Job job = {.w = &w,
                   .scratch = &scratch,
                   .out = out,
                   .write = write,
                   .tokens = in.rows,
                   .groups = groups,
                   .runs = (groups + kRunGroups - 1) / kRunGroups,
                   .chunk_blocks = kChunkBlocks};
  const auto lay_out_groups = [&](int begin, int end, int) {
    four_bit(w.scheme) ? lay_out<true>(job, in, begin, end) : lay_out<false>(job, in, begin, end);
  };
  if (in.rows * in.cols <= kSerialInputs) {
    lay_out_groups(0, groups, 0);
  } else {
    pool.parallel_for(groups, lay_out_groups);
  }
  pool.parallel_for(job.tasks(), [&](int begin, int end, int thread) {
    multiply_tasks(job, begin, end, thread);
  });
}

}  // namespace kipp::cpu
