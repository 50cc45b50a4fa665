#include "backend/cpu/matmul.h"

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

}  // namespace

Result<MatmulScratch> MatmulScratch::create(int threads, int max_tokens, int max_cols) {
  const std::size_t inputs =
      static_cast<std::size_t>(max_tokens) * static_cast<std::size_t>(max_cols);
  const std::size_t inputs_bytes = aligned(inputs * sizeof(float));
  const std::size_t blocks_bytes = aligned(inputs / kQuantBlock * sizeof(BlockInput));
  KIPP_TRY_ASSIGN(memory, HugeBuffer::create(inputs_bytes + blocks_bytes +
                                             kThreadBytes * static_cast<std::size_t>(threads)));
  MatmulScratch scratch;
  scratch.memory_ = std::move(memory);
  scratch.inputs_ = scratch.memory_.bytes().data();
  scratch.block_inputs_ = scratch.inputs_ + inputs_bytes;
  scratch.threads_ = scratch.block_inputs_ + blocks_bytes;
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
                   .in = in,
                   .out = out,
                   .write = write,
                   .groups = groups,
                   .runs = (groups + kRunGroups - 1) / kRunGroups};
  if (in.rows * in.cols <= kSerialInputs) {
    lay_out_inputs(job, 0, groups);
  } else {
    pool.parallel_for(groups, [&](int begin, int end, int) { lay_out_inputs(job, begin, end); });
  }
  pool.parallel_tasks(job.tasks(), [&](int task, int thread) { multiply_task(job, task, thread); });
}

}  // namespace kipp::cpu
