#include "backend/reference/reference_ops.h"

#include <algorithm>
#include <cmath>

#include "backend/ops_concept.h"
#include "backend/reference/reference_math.h"
#include "base/float16.h"
#include "model/memory.h"
#include "model/rope.h"

namespace kipp::reference {

static_assert(Qwen3Ops<ReferenceOps>);

namespace {

constexpr int kHalf = kHeadDim / 2;
// Decoded weight rows that stay in the first-level cache while all rows of a step pass by.
constexpr int kPanelRows = 8;

void keep(float value, float* at) { *at = value; }
void keep(float value, std::uint16_t* at) { *at = f32_to_bf16(value); }

}  // namespace

ReferenceOps::ReferenceOps(const ModelConfig& config, PagedKv& kv, int max_step_tokens)
    : ReferenceOps(config, kv.blocks(), max_step_tokens) {
  paged_ = &kv;
}

ReferenceOps::ReferenceOps(const ModelConfig& config, TieredKv& kv, int max_step_tokens)
    : ReferenceOps(config, kv.blocks(), max_step_tokens) {
  tiered_ = &kv;
  encode_scratch_ = std::make_unique<EncodeScratch>();
  turned_.resize(offset(config.queries_per_kv_head(), kHeadDim));
  from_codes_.resize(turned_.size());
}

ReferenceOps::ReferenceOps(const ModelConfig& config, int kv_blocks, int max_step_tokens)
    : config_(config) {
  const auto buffer = [&](int cols) {
    storage_.push_back(std::make_unique_for_overwrite<float[]>(offset(max_step_tokens, cols)));
    return Rows{storage_.back().get(), 0, cols};
  };
  const StepWidths w = step_widths(config);
  buffers_ = {.x = buffer(w.x),
              .h = buffer(w.h),
              .qkv = buffer(w.qkv),
              .ctx = buffer(w.ctx),
              .gate_up = buffer(w.gate_up),
              .act = buffer(w.act),
              .last = buffer(w.last),
              .logits = buffer(w.logits)};
  panel_.resize(offset(kPanelRows, std::max({w.h, w.ctx, w.act})));
  const int positions = std::min(config.context_length, kv_blocks * kBlockPositions);
  scores_.resize(offset(config.queries_per_kv_head(), positions));
  inverse_frequency_.resize(kHalf);
  rope_inverse_frequency(config.rope_theta, inverse_frequency_);
  cos_.resize(offset(max_step_tokens, kHalf));
  sin_.resize(offset(max_step_tokens, kHalf));
}

ReferenceOps::Buffers& ReferenceOps::begin_step(const StepPlan& step) {
  step_ = &step;
  stored_ = {};
  Buffers& b = buffers_;
  for (Rows* rows : {&b.x, &b.h, &b.qkv, &b.ctx, &b.gate_up, &b.act}) rows->rows = step.rows();
  for (Rows* rows : {&b.last, &b.logits}) rows->rows = static_cast<int>(step.logit_rows.size());
  for (int r = 0; r < step.rows(); ++r) {
    rope_angles(step.positions[static_cast<std::size_t>(r)], inverse_frequency_,
                std::span(cos_).subspan(offset(r, kHalf), kHalf),
                std::span(sin_).subspan(offset(r, kHalf), kHalf));
  }
  return buffers_;
}

void ReferenceOps::embed(Rows& out, const MatrixView& table, std::span<const Token> tokens) {
  for (int r = 0; r < out.rows; ++r) {
    decode_row(table, tokens[static_cast<std::size_t>(r)], out.row(r));
  }
}

void ReferenceOps::rms_norm(Rows& out, const Rows& in, std::span<const float> weight) {
  for (int r = 0; r < in.rows; ++r) reference::rms_norm(out.row(r), in.row(r), weight);
}

void ReferenceOps::matmul(Rows& out, const Rows& in, const StackedMatrix& w) {
  multiply(out, in, w, Write::set);
}

void ReferenceOps::matmul_add(Rows& out, const Rows& in, const StackedMatrix& w) {
  multiply(out, in, w, Write::add);
}

void ReferenceOps::multiply(Rows& out, const Rows& in, const StackedMatrix& w, Write write) {
  if (in.rows == 0) return;  // a step may ask for no logits
  const int cols = w.cols();
  int part_at = 0;  // where this matrix's outputs begin in a row of `out`
  for (const MatrixView& part : w.views()) {
    for (int first = 0; first < part.rows; first += kPanelRows) {
      const int n = std::min(kPanelRows, part.rows - first);
      for (int i = 0; i < n; ++i) {
        decode_row(part, first + i,
                   std::span(panel_).subspan(offset(i, cols), static_cast<std::size_t>(cols)));
      }
      for (int r = 0; r < in.rows; ++r) {
        const float* x = in.row(r).data();
        float* y = out.row(r).data() + part_at + first;
        for (int i = 0; i < n; ++i) {
          const float sum = dot(panel_.data() + offset(i, cols), x, cols);
          y[i] = write == Write::add ? y[i] + sum : sum;
        }
      }
    }
    part_at += part.rows;
  }
}

void ReferenceOps::qk_norm_rope(Rows& qkv, std::span<const float> q_norm,
                                std::span<const float> k_norm) {
  for (int r = 0; r < qkv.rows; ++r) {
    const auto cos = std::span(cos_).subspan(offset(r, kHalf), kHalf);
    const auto sin = std::span(sin_).subspan(offset(r, kHalf), kHalf);
    for (int head = 0; head < config_.query_heads + kKvHeads; ++head) {  // keys follow the queries
      const auto values = head_of(qkv.row(r), 0, head);
      reference::rms_norm(values, values, head < config_.query_heads ? q_norm : k_norm);
      rope(values, cos, sin);
    }
  }
}

void ReferenceOps::kv_append(int layer, const Rows& qkv) {
  if (tiered_ != nullptr) {
    append_tiered(layer, qkv);
  } else if (paged_->store() == KvStore::bf16) {
    append<std::uint16_t>(layer, qkv);
  } else {
    append<float>(layer, qkv);
  }
}

template <class T>
void ReferenceOps::append(int layer, const Rows& qkv) {
  const int k_at = config_.attention_width();
  for (int r = 0; r < qkv.rows; ++r) {
    const auto row = static_cast<std::size_t>(r);
    const auto pos = static_cast<std::size_t>(step_->positions[row]);
    const BlockId block = step_->table(step_->item_of_row[row])[pos / kBlockPositions];
    const std::size_t slot = pos % kBlockPositions * kHeadDim;
    for (int g = 0; g < kKvHeads; ++g) {
      const auto k = head_of(qkv.row(r), k_at, g);
      const auto v = head_of(qkv.row(r), k_at + kKvWidth, g);
      T* keys = paged_->keys<T>(block, layer, g) + slot;
      T* values = paged_->values<T>(block, layer, g) + slot;
      for (std::size_t i = 0; i < kHeadDim; ++i) {
        keep(k[i], keys + i);
        keep(v[i], values + i);
      }
    }
  }
}

void ReferenceOps::attend(int layer, Rows& ctx, const Rows& qkv) {
  if (tiered_ != nullptr) {
    attend_tiered(layer, ctx, qkv);
  } else if (paged_->store() == KvStore::bf16) {
    attend_stored<std::uint16_t>(layer, ctx, qkv);
  } else {
    attend_stored<float>(layer, ctx, qkv);
  }
}

// Per row and KV head: scores of the group's queries against each cached key, softmax over
// positions, then the weighted values added in position order. A key or value is widened once for
// the whole group.
template <class T>
void ReferenceOps::attend_stored(int layer, Rows& ctx, const Rows& qkv) {
  const int group = config_.queries_per_kv_head();
  float buffer[kHeadDim];
  for (int r = 0; r < qkv.rows; ++r) {
    const auto row = static_cast<std::size_t>(r);
    const int cached = step_->positions[row] + 1;
    const auto table = step_->table(step_->item_of_row[row]);
    const auto block_of = [&](int pos) {
      return table[static_cast<std::size_t>(pos) / kBlockPositions];
    };
    const auto slot_of = [](int pos) { return offset(pos % kBlockPositions, kHeadDim); };
    const auto scores_of = [&](int q) {
      return std::span(scores_).subspan(offset(q, cached), static_cast<std::size_t>(cached));
    };
    for (int g = 0; g < kKvHeads; ++g) {
      for (int pos = 0; pos < cached; ++pos) {
        const float* k = widen(paged_->keys<T>(block_of(pos), layer, g) + slot_of(pos), buffer);
        for (int q = 0; q < group; ++q) {
          const float score = dot(head_of(qkv.row(r), 0, g * group + q).data(), k, kHeadDim);
          scores_of(q)[static_cast<std::size_t>(pos)] = score * kScoreScale;
        }
      }
      for (int q = 0; q < group; ++q) {
        const double sum = softmax_terms(scores_of(q));
        for (float& s : scores_of(q)) s = static_cast<float>(static_cast<double>(s) / sum);
        const auto out = head_of(ctx.row(r), 0, g * group + q);
        std::fill(out.begin(), out.end(), 0.0f);
      }
      for (int pos = 0; pos < cached; ++pos) {
        const float* v = widen(paged_->values<T>(block_of(pos), layer, g) + slot_of(pos), buffer);
        for (int q = 0; q < group; ++q) {
          const float p = scores_of(q)[static_cast<std::size_t>(pos)];
          float* out = head_of(ctx.row(r), 0, g * group + q).data();
          for (int i = 0; i < kHeadDim; ++i) out[i] += p * v[i];
        }
      }
    }
  }
}

void ReferenceOps::silu_mul(Rows& out, const Rows& gate_up) {
  const auto width = static_cast<std::size_t>(out.cols);
  for (int r = 0; r < out.rows; ++r) {
    const auto both = gate_up.row(r);
    reference::silu_mul(out.row(r), both.first(width), both.subspan(width));
  }
}

void ReferenceOps::take_rows(Rows& out, const Rows& in, std::span<const int> rows) {
  for (int i = 0; i < out.rows; ++i) {
    const auto from = in.row(rows[static_cast<std::size_t>(i)]);
    std::copy(from.begin(), from.end(), out.row(i).begin());
  }
}

}  // namespace kipp::reference
