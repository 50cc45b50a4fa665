// The two ops that know of tiers. Plainly: every key and value becomes floats before it is used,
// those that were codes still turned by the Hadamard transform they were coded under. So queries
// are turned before they meet such keys, and what such values add up to is turned back; both kinds
// of position share one softmax. A fast backend does the same sums on the codes themselves.
#include <algorithm>

#include "backend/reference/reference_math.h"
#include "backend/reference/reference_ops.h"
#include "base/float16.h"
#include "kvquant/codec.h"

namespace kipp::reference {

using kvquant::BitWidth;
using kvquant::Side;

namespace {

// Codes of one position as floats: [kHeadDim].
const float* decode(const CodeHead& codes, const kvquant::QuantScheme& scheme, int position,
                    float* out) {
  const std::size_t quarter = offset(position, kHeadDim / 4);
  const std::size_t half = offset(position, kHeadDim / 2);
  const float scale = f16_to_f32(codes.scales[position]);
  const float bias = f16_to_f32(codes.offsets[position]);
  for (int c = 0; c < kHeadDim; ++c) {
    int top = kvquant::get2(codes.hi2 + quarter, kHeadDim, c);
    if (codes.width >= BitWidth::int4)
      top = top * 4 + kvquant::get2(codes.mid2 + quarter, kHeadDim, c);
    if (codes.width >= BitWidth::int8)
      top = top * 16 + kvquant::get4(codes.low4 + half, kHeadDim, c);
    const float level = codes.width == BitWidth::int2 ? kvquant::fitted_level(scheme, top)
                                                      : kvquant::level_of(scheme, codes.width, top);
    out[c] = bias + scale * level;
  }
  return out;
}

}  // namespace

void ReferenceOps::append_tiered(int layer, const Rows& qkv) {
  const int k_at = config_.attention_width();
  for (int r = 0; r < qkv.rows; ++r) {
    const auto row = static_cast<std::size_t>(r);
    const auto pos = static_cast<std::size_t>(step_->positions[row]);
    const BlockId block = step_->table(step_->item_of_row[row])[pos / kBlockPositions];
    const std::size_t slot = pos % kBlockPositions * kHeadDim;
    for (int g = 0; g < kKvHeads; ++g) {
      std::ranges::transform(head_of(qkv.row(r), k_at, g),
                             tiered_->rows(Side::key, block, layer, g) + slot, f32_to_bf16);
      std::ranges::transform(head_of(qkv.row(r), k_at + kKvWidth, g),
                             tiered_->rows(Side::value, block, layer, g) + slot, f32_to_bf16);
    }
  }
  for (const BlockId block : tiered_->completed()) {
    const auto coded = tiered_->encode(block, layer, kvquant_, *encode_scratch_);
    if (!coded && stored_) stored_ = coded;
  }
}

// As attend_stored, with two forms of queries and two sums of values.
void ReferenceOps::attend_tiered(int layer, Rows& ctx, const Rows& qkv) {
  const int group = config_.queries_per_kv_head();
  const kvquant::KvScheme& scheme = tiered_->policy().scheme();
  float buffer[kHeadDim];
  for (int r = 0; r < qkv.rows; ++r) {
    const auto row = static_cast<std::size_t>(r);
    const int pos = step_->positions[row];
    const int cached = pos + 1;
    const auto table = step_->table(step_->item_of_row[row]);
    const auto width_of = [&](Side side, int at) {
      return tiered_->tier(layer, pos / kBlockPositions, at / kBlockPositions).side(side);
    };
    // The key or value of one position as floats.
    const auto read = [&](Side side, int at, int g, BitWidth width) {
      const BlockId block = table[static_cast<std::size_t>(at / kBlockPositions)];
      const int slot = at % kBlockPositions;
      if (width == BitWidth::bf16) {
        return widen(tiered_->rows(side, block, layer, g) + offset(slot, kHeadDim), buffer);
      }
      return decode(tiered_->codes(side, block, layer, g, width), scheme.side(side), slot, buffer);
    };
    const auto scores_of = [&](int q) {
      return std::span(scores_).subspan(offset(q, cached), static_cast<std::size_t>(cached));
    };
    for (int g = 0; g < kKvHeads; ++g) {
      for (int q = 0; q < group; ++q) {
        const auto query = head_of(qkv.row(r), 0, g * group + q);
        float* turned = head_of(turned_, 0, q).data();
        std::ranges::copy(query, turned);
        if (scheme.key.hadamard) kvquant::hadamard(turned, kHeadDim);
      }
      for (int at = 0; at < cached; ++at) {
        const BitWidth width = width_of(Side::key, at);
        const float* k = read(Side::key, at, g, width);
        for (int q = 0; q < group; ++q) {
          const auto query = width == BitWidth::bf16 ? head_of(qkv.row(r), 0, g * group + q)
                                                     : head_of(turned_, 0, q);
          scores_of(q)[static_cast<std::size_t>(at)] = dot(query.data(), k, kHeadDim) * kScoreScale;
        }
      }
      for (int q = 0; q < group; ++q) {
        const double sum = softmax_terms(scores_of(q));
        for (float& s : scores_of(q)) s = static_cast<float>(static_cast<double>(s) / sum);
        std::ranges::fill(head_of(ctx.row(r), 0, g * group + q), 0.0f);
      }
      std::ranges::fill(from_codes_, 0.0f);
      for (int at = 0; at < cached; ++at) {
        const BitWidth width = width_of(Side::value, at);
        const float* v = read(Side::value, at, g, width);
        for (int q = 0; q < group; ++q) {
          const float p = scores_of(q)[static_cast<std::size_t>(at)];
          const auto out = width == BitWidth::bf16 ? head_of(ctx.row(r), 0, g * group + q)
                                                   : head_of(from_codes_, 0, q);
          for (std::size_t i = 0; i < kHeadDim; ++i) out[i] += p * v[i];
        }
      }
      for (int q = 0; q < group; ++q) {
        const auto coded = head_of(from_codes_, 0, q);
        if (scheme.value.hadamard) kvquant::hadamard(coded.data(), kHeadDim);
        const auto out = head_of(ctx.row(r), 0, g * group + q);
        for (std::size_t i = 0; i < kHeadDim; ++i) out[i] += coded[i];
      }
    }
  }
}

}  // namespace kipp::reference
