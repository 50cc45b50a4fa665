#include "backend/cpu/cpu_ops.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/ops_concept.h"
#include "model/memory.h"
#include "model/rope.h"

namespace kipp::cpu {

static_assert(Qwen3Ops<CpuOps>);

namespace {

constexpr int kHalf = kHeadDim / 2;
// Below this many floats the caller alone is done sooner than a thread is woken (a few
// microseconds).
constexpr int kSerialFloats = 16384;
constexpr int kColumnChunk = 1024;

constexpr std::size_t kLineFloats = 16;

std::size_t lines(std::size_t floats) {
  return (floats + kLineFloats - 1) / kLineFloats * kLineFloats;
}

std::size_t floats_of(int rows, int cols) {
  return lines(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
}

std::span<float> head_of(std::span<float> row, int begin, int head) {
  return row.subspan(static_cast<std::size_t>(begin + head * kHeadDim), kHeadDim);
}

int widest_input(const ModelConfig& config) {
  return std::max({config.hidden, config.attention_width(), config.intermediate});
}

// An upper bound of what MatmulScratch takes.
std::size_t matmul_bytes(const ModelConfig& config, const OpsLimits& limits, int threads) {
  const auto inputs = static_cast<std::size_t>(limits.max_step_tokens) *
                      static_cast<std::size_t>(widest_input(config)) * sizeof(float);
  return inputs + inputs / kQuantBlock + (static_cast<std::size_t>(threads) << 18);
}

// The buffers of a step in one memory; returns how many floats they take. Without memory it only
// counts.
std::size_t lay_out(const ModelConfig& config, const OpsLimits& limits, float* memory,
                    CpuOps::Buffers& buffers, float*& rotations) {
  const StepWidths w = step_widths(config);
  std::size_t used = 0;
  const auto take = [&](int rows, int cols) {
    float* at = memory == nullptr ? nullptr : memory + used;
    used += floats_of(rows, cols);
    return at;
  };
  const auto of_step = [&](int cols) { return Rows{take(limits.max_step_tokens, cols), 0, cols}; };
  const auto of_logits = [&](int cols) { return Rows{take(limits.max_logit_rows, cols), 0, cols}; };
  buffers = {.x = of_step(w.x),
             .h = of_step(w.h),
             .qkv = of_step(w.qkv),
             .ctx = of_step(w.ctx),
             .gate_up = of_step(w.gate_up),
             .act = of_step(w.act),
             .last = of_logits(w.last),
             .logits = of_logits(w.logits)};
  rotations = take(limits.max_step_tokens, kHeadDim);
  return used;
}

}  // namespace

std::size_t CpuOps::bytes_needed(const ModelConfig& config, const OpsLimits& limits,
                                 const KvConfig& kv, int threads) {
  Buffers buffers;
  float* rotations = nullptr;
  const std::size_t floats = lay_out(config, limits, nullptr, buffers, rotations);
  const std::size_t attention = kv.store == KvStore::tiered
                                    ? TieredAttention::bytes_needed(config, kv.blocks, threads) +
                                          TieredWriter::bytes_needed(threads)
                                    : PagedAttention::bytes_needed(config, kv.blocks, threads);
  return floats * sizeof(float) + attention + matmul_bytes(config, limits, threads);
}

Result<std::unique_ptr<CpuOps>> CpuOps::create(const ModelConfig& config, const OpsLimits& limits,
                                               PagedKv& kv, ThreadPool& pool) {
  std::unique_ptr<CpuOps> ops(new CpuOps(config, pool));
  KIPP_TRY_ASSIGN(attention, PagedAttention::create(config, kv, pool, limits.max_step_tokens));
  ops->paged_.reset(new Paged{.kv = kv, .attention = std::move(attention)});
  KIPP_TRY(ops->allocate(limits));
  return ops;
}

Result<std::unique_ptr<CpuOps>> CpuOps::create(const ModelConfig& config, const OpsLimits& limits,
                                               TieredKv& kv, ThreadPool& pool) {
  std::unique_ptr<CpuOps> ops(new CpuOps(config, pool));
  KIPP_TRY_ASSIGN(attention, TieredAttention::create(config, kv, pool, limits.max_step_tokens));
  ops->tiered_.reset(
      new Tiered{.writer = TieredWriter(config, kv, pool), .attention = std::move(attention)});
  KIPP_TRY(ops->allocate(limits));
  return ops;
}

Result<void> CpuOps::allocate(const OpsLimits& limits) {
  KIPP_TRY_ASSIGN(scratch, MatmulScratch::create(pool_.threads(), limits.max_step_tokens,
                                                 widest_input(config_)));
  scratch_ = std::move(scratch);
  const std::size_t floats = lay_out(config_, limits, nullptr, buffers_, rotations_);
  KIPP_TRY_ASSIGN(memory, HugeBuffer::create(floats * sizeof(float)));
  memory_ = std::move(memory);
  lay_out(config_, limits, reinterpret_cast<float*>(memory_.bytes().data()), buffers_, rotations_);
  return {};
}

CpuOps::CpuOps(const ModelConfig& config, ThreadPool& pool)
    : config_(config), pool_(pool), inverse_frequency_(kHalf) {
  rope_inverse_frequency(config.rope_theta, inverse_frequency_);
}

template <class Body>
void CpuOps::for_rows(int rows, int floats_per_row, const Body& body) {
  if (rows * floats_per_row <= kSerialFloats) {
    for (int r = 0; r < rows; ++r) body(r);
    return;
  }
  pool_.parallel_for(rows, [&](int begin, int end, int) {
    for (int r = begin; r < end; ++r) body(r);
  });
}

std::span<float> CpuOps::cos_of(int row) const {
  return {rotations_ + static_cast<std::ptrdiff_t>(row) * kHeadDim, kHalf};
}
std::span<float> CpuOps::sin_of(int row) const {
  return {rotations_ + static_cast<std::ptrdiff_t>(row) * kHeadDim + kHalf, kHalf};
}

CpuOps::Buffers& CpuOps::begin_step(const StepPlan& step) {
  step_ = &step;
  Buffers& b = buffers_;
  for (Rows* rows : {&b.x, &b.h, &b.qkv, &b.ctx, &b.gate_up, &b.act}) rows->rows = step.rows();
  for (Rows* rows : {&b.last, &b.logits}) rows->rows = static_cast<int>(step.logit_rows.size());
  // A sine costs more than the other ops do per float.
  for_rows(step.rows(), 16 * kHeadDim, [&](int r) {
    rope_angles(step.positions[static_cast<std::size_t>(r)], inverse_frequency_, cos_of(r),
                sin_of(r));
  });
  if (tiered_ != nullptr) {
    tiered_->writer.begin_step(step);
    tiered_->attention->begin_step(step);
  } else {
    paged_->attention->begin_step(step);
  }
  return buffers_;
}

void CpuOps::embed(Rows& out, const MatrixView& table, std::span<const Token> tokens) {
  for_rows(out.rows, out.cols, [&](int r) {
    const std::byte* stored = table.row(tokens[static_cast<std::size_t>(r)]).data();
    widen_bf16(out.row(r), {reinterpret_cast<const std::uint16_t*>(stored),
                            static_cast<std::size_t>(out.cols)});
  });
}

void CpuOps::rms_norm(Rows& out, const Rows& in, std::span<const float> weight) {
  for_rows(in.rows, in.cols, [&](int r) { cpu::rms_norm(out.row(r), in.row(r), weight); });
}

void CpuOps::matmul(Rows& out, const Rows& in, const PackedMatrix& w) {
  cpu::matmul(pool_, scratch_, out, in, w, Write::set);
}

void CpuOps::matmul_add(Rows& out, const Rows& in, const PackedMatrix& w) {
  cpu::matmul(pool_, scratch_, out, in, w, Write::add);
}

void CpuOps::qk_norm_rope(Rows& qkv, std::span<const float> q_norm, std::span<const float> k_norm) {
  for_rows(qkv.rows, qkv.cols, [&](int r) {
    for (int head = 0; head < config_.query_heads + kKvHeads; ++head) {  // keys follow the queries
      norm_rope_head(head_of(qkv.row(r), 0, head), head < config_.query_heads ? q_norm : k_norm,
                     cos_of(r), sin_of(r));
    }
  });
}

void CpuOps::kv_append(int layer, const Rows& qkv) {
  if (tiered_ != nullptr) return tiered_->writer.write(layer, qkv);
  PagedKv& kv = paged_->kv;
  for_rows(qkv.rows, 2 * kKvWidth, [&](int r) {
    if (kv.store() == KvStore::bf16) {
      append_row<std::uint16_t>(kv, layer, r, qkv);
    } else {
      append_row<float>(kv, layer, r, qkv);
    }
  });
}

template <class T>
void CpuOps::append_row(PagedKv& kv, int layer, int row, const Rows& qkv) {
  const auto at = static_cast<std::size_t>(row);
  const auto pos = static_cast<std::size_t>(step_->positions[at]);
  const BlockId block = step_->table(step_->item_of_row[at])[pos / kBlockPositions];
  const std::size_t slot = pos % kBlockPositions * kHeadDim;
  const auto keep = [](T* out, std::span<const float> head) {
    if constexpr (std::is_same_v<T, float>) {
      std::ranges::copy(head, out);
    } else {
      store_bf16({out, kHeadDim}, head);
    }
  };
  const int k_at = config_.attention_width();
  for (int g = 0; g < kKvHeads; ++g) {
    keep(kv.keys<T>(block, layer, g) + slot, head_of(qkv.row(row), k_at, g));
    keep(kv.values<T>(block, layer, g) + slot, head_of(qkv.row(row), k_at + kKvWidth, g));
  }
}

void CpuOps::attend(int layer, Rows& ctx, const Rows& qkv) {
  if (tiered_ != nullptr) return tiered_->attention->attend(layer, ctx, qkv);
  paged_->attention->attend(layer, ctx, qkv);
}

// By pieces of rows: a single row of a large checkpoint is worth sharing.
void CpuOps::silu_mul(Rows& out, const Rows& gate_up) {
  const int chunks = (out.cols + kColumnChunk - 1) / kColumnChunk;
  for_rows(out.rows * chunks, kColumnChunk, [&](int piece) {
    const int r = piece / chunks;
    const int first = piece % chunks * kColumnChunk;
    const auto begin = static_cast<std::size_t>(first);
    const auto n = static_cast<std::size_t>(std::min(kColumnChunk, out.cols - first));
    const auto both = gate_up.row(r);
    cpu::silu_mul(out.row(r).subspan(begin, n), both.subspan(begin, n),
                  both.subspan(static_cast<std::size_t>(out.cols) + begin, n));
  });
}

void CpuOps::take_rows(Rows& out, const Rows& in, std::span<const int> rows) {
  for (int i = 0; i < out.rows; ++i) {
    std::ranges::copy(in.row(rows[static_cast<std::size_t>(i)]), out.row(i).begin());
  }
}

}  // namespace kipp::cpu
