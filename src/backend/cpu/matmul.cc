#include "backend/cpu/matmul.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "backend/cpu/matmul_job.h"

namespace kipp::cpu {

namespace {

// Fewer inputs than this are laid out by the caller alone: waking a thread would take longer.
constexpr int kSerialInputs = 8192;

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

constexpr std::size_t kOutputBytes =
    sizeof(float) * kPanelRows * kGroupTokens * static_cast<std::size_t>(kRunGroups);
constexpr auto kWeightBytes =
    static_cast<std::size_t>(block_layout(Scheme::bf16).bytes * kChunkBlocks);
constexpr std::size_t kThreadBytes = kOutputBytes + kWeightBytes;

// Sum of a block's inputs: halves are folded onto each other, so that a compiler may use vectors of
// any width without changing a bit.
float block_sum(const float* x) {
  float fold[kQuantBlock / 2];
  for (int i = 0; i < kQuantBlock / 2; ++i) fold[i] = x[i] + x[i + kQuantBlock / 2];
  for (int width = kQuantBlock / 4; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) fold[i] += fold[i + width];
  }
  return fold[0];
}

// One block of columns of a group: x[t] are its rows.
template <bool kFourBit, int kTokens>
void lay_out_block(const float* x, int cols, float* out, float* sums) {
  constexpr Scheme kOrder = kFourBit ? Scheme::scale4_gs32 : Scheme::bf16;
  const auto stride = static_cast<std::ptrdiff_t>(cols);
  for (int step = 0; step < kQuantBlock; ++step) {
    for (int t = 0; t < kTokens; ++t) {
      const float value = x[t * stride + column_of(kOrder, step)];
      *out++ = kFourBit ? value * input_factor(kOrder, step) : value;
    }
  }
  for (int t = 0; kFourBit && t < kTokens; ++t) sums[t] = block_sum(x + t * stride);
}

template <bool kFourBit>
void lay_out_block(const float* x, int cols, float* out, float* sums, int tokens) {
  switch (tokens) {
    case 1:
      return lay_out_block<kFourBit, 1>(x, cols, out, sums);
    case 2:
      return lay_out_block<kFourBit, 2>(x, cols, out, sums);
    case 3:
      return lay_out_block<kFourBit, 3>(x, cols, out, sums);
    case 4:
      return lay_out_block<kFourBit, 4>(x, cols, out, sums);
    default:
      return lay_out_block<kFourBit, kGroupTokens>(x, cols, out, sums);
  }
}

// The inputs of groups [begin, end) of a run, in the order the kernels read.
template <bool kFourBit>
void lay_out(const Job& job, const Rows& in, const Run& run, int begin, int end) {
  for (int group = begin; group < end; ++group) {
    const int token = job.first_token(group);
    const int tokens = job.first_token(group + 1) - token;
    const float* x = in.row(token).data();
    for (int block = 0; block < job.blocks(); ++block) {
      const int chunk = block / kChunkBlocks * kChunkBlocks;
      const int in_chunk = block - chunk;
      lay_out_block<kFourBit>(x + block * kQuantBlock, in.cols,
                              run.inputs(token, chunk) + in_chunk * kQuantBlock * tokens,
                              run.sums(token, chunk) + in_chunk * tokens, tokens);
    }
  }
}

void lay_out_groups(const Job& job, const Rows& in, int begin, int end) {
  for (int index = 0; index < job.runs; ++index) {
    const Run run(job, index);
    const int first = std::max(begin, run.first_group);
    const int last = std::min(end, run.end_group);
    if (four_bit(job.w->scheme)) {
      lay_out<true>(job, in, run, first, last);
    } else {
      lay_out<false>(job, in, run, first, last);
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
                   .groups = groups,
                   .runs = (groups + kRunGroups - 1) / kRunGroups};
  if (in.rows * in.cols <= kSerialInputs) {
    lay_out_groups(job, in, 0, groups);
  } else {
    pool.parallel_for(groups,
                      [&](int begin, int end, int) { lay_out_groups(job, in, begin, end); });
  }
  pool.parallel_for(job.tasks(), [&](int begin, int end, int thread) {
    multiply_tasks(job, begin, end, thread);
  });
}

}  // namespace kipp::cpu
