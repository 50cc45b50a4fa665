#include "backend/cpu/tiered_writer.h"

#include "backend/cpu/kernels.h"

namespace kipp::cpu {

using kvquant::Side;

namespace {

// Fewer rows than this one thread has stored before another is awake.
constexpr int kSerialRows = 8;

}  // namespace

std::size_t TieredWriter::bytes_needed(int threads) {
  return static_cast<std::size_t>(threads) * sizeof(EncodeScratch);
}

TieredWriter::TieredWriter(const ModelConfig& config, TieredKv& kv, ThreadPool& pool)
    : keys_at_(config.attention_width()),
      kv_(kv),
      pool_(pool),
      scratch_(std::make_unique_for_overwrite<EncodeScratch[]>(
          static_cast<std::size_t>(pool.threads()))),
      refused_(std::make_unique<Result<void>[]>(static_cast<std::size_t>(pool.threads()))) {}

void TieredWriter::begin_step(const StepPlan& step) {
  step_ = &step;
  coded_ = {};
}

void TieredWriter::write(int layer, const Rows& qkv) {
  if (qkv.rows < kSerialRows) {
    for (int r = 0; r < qkv.rows; ++r) write_row(layer, r, qkv);
  } else {
    pool_.parallel_for(qkv.rows, [&](int begin, int end, int) {
      for (int r = begin; r < end; ++r) write_row(layer, r, qkv);
    });
  }
  if (!kv_.completed().empty()) make_codes(layer);
}

void TieredWriter::write_row(int layer, int row, const Rows& qkv) {
  const auto at = static_cast<std::size_t>(row);
  const auto pos = static_cast<std::size_t>(step_->positions[at]);
  const BlockId block = step_->table(step_->item_of_row[at])[pos / kBlockPositions];
  const std::size_t slot = pos % kBlockPositions * kHeadDim;
  const float* keys = qkv.row(row).data() + keys_at_;
  for (int g = 0; g < kKvHeads; ++g, keys += kHeadDim) {
    store_bf16({kv_.rows(Side::key, block, layer, g) + slot, kHeadDim}, {keys, kHeadDim});
    store_bf16({kv_.rows(Side::value, block, layer, g) + slot, kHeadDim},
               {keys + kKvWidth, kHeadDim});
  }
}

void TieredWriter::make_codes(int layer) {
  const auto blocks = kv_.completed();
  pool_.parallel_tasks(static_cast<int>(blocks.size()) * kKvHeads, [&](int task, int thread) {
    const BlockId block = blocks[static_cast<std::size_t>(task / kKvHeads)];
    const auto of = static_cast<std::size_t>(thread);
    auto coded = kv_.encode_head(block, layer, task % kKvHeads, kvquant_, scratch_[of]);
    if (!coded) refused_[of] = std::move(coded);
  });
  for (int t = 0; t < pool_.threads(); ++t) {
    Result<void>& refused = refused_[static_cast<std::size_t>(t)];
    if (refused) continue;
    if (coded_) coded_ = std::move(refused);
    refused = {};
  }
}

}  // namespace kipp::cpu
