#include "backend/tiered_kv.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "kvquant/codec.h"

namespace kipp {

using kvquant::Band;
using kvquant::BitWidth;
using kvquant::Plane;
using kvquant::Side;

namespace {

constexpr Side kSides[] = {Side::key, Side::value};
constexpr Plane kCodePlanes[] = {Plane::hi2, Plane::mid2, Plane::low4};
constexpr std::size_t kHeadRowsBytes = std::size_t{kBlockPositions} * kHeadDim * 2;
constexpr std::size_t kPartBytes = TieredPlanes::kPartBytes;
constexpr auto kNumbering = TieredPlanes::Numbering::cache;

std::size_t index(BlockId block) { return static_cast<std::size_t>(block); }

std::size_t step_rows_bytes(int max_step_tokens) {
  return TieredPlanes::whole_blocks(max_step_tokens) * kvquant::kSides * kKvHeads * kHeadRowsBytes;
}

}  // namespace

std::size_t TieredKv::bytes_needed(const ModelConfig& config, const KvConfig& kv,
                                   int max_step_tokens) {
  return TieredPlanes::bytes_needed(config, kv, kNumbering) +
         static_cast<std::size_t>(kv.units) * kKvUnitBytes +
         static_cast<std::size_t>(kv.blocks) * kv.policy.parameter_bytes(config) +
         step_rows_bytes(max_step_tokens);
}

Result<TieredKv> TieredKv::create(const ModelConfig& config, const KvConfig& kv,
                                  int max_step_tokens) {
  KIPP_TRY_ASSIGN(planes, TieredPlanes::create(config, kv, max_step_tokens, kNumbering));
  auto layout =
      kvquant::BlockLayout::make({.kv_heads = 1, .head_width = kHeadDim}, kv.policy.scheme());
  if (!layout.ok()) return fail(ErrorCode::invalid, "kv: {}", layout.status().message());

  TieredKv cache(std::move(planes));
  cache.head_layout_ = layout.value();
  KIPP_TRY_ASSIGN(arena, HugeBuffer::create(static_cast<std::size_t>(kv.units) * kKvUnitBytes));
  KIPP_TRY_ASSIGN(parameters, HugeBuffer::create(static_cast<std::size_t>(kv.blocks) *
                                                 cache.planes_.parameter_bytes()));
  KIPP_TRY_ASSIGN(rows, HugeBuffer::create(step_rows_bytes(max_step_tokens)));
  cache.arena_ = std::move(arena);
  cache.parameters_ = std::move(parameters);
  cache.step_rows_ = std::move(rows);
  return cache;
}

// --- where things are

std::byte* TieredKv::head_at(Side side, Plane plane, BlockId block, int layer, int head) const {
  const std::size_t at = static_cast<std::size_t>(head) * TieredPlanes::head_bytes(plane);
  const auto units = planes_.units(block, layer, side, plane);
  return memory(units[at / kKvUnitBytes]) + at % kKvUnitBytes;
}

std::byte* TieredKv::params(BlockId block) const {
  return parameters_.bytes().data() + index(block) * planes_.parameter_bytes();
}

std::byte* TieredKv::params_of_head(BlockId block, int layer, Side side, Pair pair,
                                    int head) const {
  return params_of_side(block, layer, side) + static_cast<std::size_t>(pair) * 2 * kPartBytes +
         static_cast<std::size_t>(head) * (kPartBytes / kKvHeads);
}

const std::uint16_t* TieredKv::rows(Side side, BlockId block, int layer, int head) const {
  if (planes_.has(block, layer, side, Plane::bf16)) {
    return reinterpret_cast<const std::uint16_t*>(head_at(side, Plane::bf16, block, layer, head));
  }
  const int place = planes_.rows_place(block);
  assert(place != TieredPlanes::kNoRows);
  const std::size_t heads_before =
      (static_cast<std::size_t>(place) * 2 + static_cast<std::size_t>(side)) * kKvHeads +
      static_cast<std::size_t>(head);
  return reinterpret_cast<const std::uint16_t*>(step_rows_.bytes().data() +
                                                heads_before * kHeadRowsBytes);
}

CodeHead TieredKv::codes(Side side, BlockId block, int layer, int head, BitWidth width) const {
  const auto at = [&](Plane plane) {
    assert(planes_.has(block, layer, side, plane));
    return reinterpret_cast<const std::uint8_t*>(head_at(side, plane, block, layer, head));
  };
  const Pair pair = width == BitWidth::int2 ? Pair::fitted : Pair::range;
  const std::byte* scales = params_of_head(block, layer, side, pair, head);
  return {.hi2 = at(Plane::hi2),
          .mid2 = width >= BitWidth::int4 ? at(Plane::mid2) : nullptr,
          .low4 = width >= BitWidth::int8 ? at(Plane::low4) : nullptr,
          .scales = reinterpret_cast<const std::uint16_t*>(scales),
          .offsets = reinterpret_cast<const std::uint16_t*>(scales + kPartBytes),
          .width = width};
}

// --- planes and their bytes

void TieredKv::move(BlockId from, BlockId to, PlaneBits planes) {
  planes_.for_each_part(planes_.move(from, to, planes), [&](Side side, Plane plane, int layer) {
    if (plane == Plane::bf16) return;
    std::memcpy(params_of_side(to, layer, side), params_of_side(from, layer, side),
                planes_.pairs(side) * 2 * kPartBytes);
  });
}

void TieredKv::copy(std::span<const BlockCopy> copies) {
  for (const BlockCopy& c : copies) {
    planes_.for_each_part(held(c.from) & held(c.to), [&](Side side, Plane plane, int layer) {
      const auto out = planes_.units(c.to, layer, side, plane);
      const auto in = planes_.units(c.from, layer, side, plane);
      for (std::size_t i = 0; i < in.size(); ++i) {
        std::memcpy(memory(out[i]), memory(in[i]), kKvUnitBytes);
      }
    });
    const std::size_t bytes = planes_.parameter_bytes();
    if (bytes != 0) std::memcpy(params(c.to), params(c.from), bytes);
  }
}

Result<void> TieredKv::encode(BlockId block, int layer, kvquant::KvBackend& backend,
                              EncodeScratch& scratch) {
  for (int head = 0; head < kKvHeads; ++head) {
    KIPP_TRY(encode_head(block, layer, head, backend, scratch));
  }
  return {};
}

Result<void> TieredKv::encode_head(BlockId block, int layer, int head, kvquant::KvBackend& backend,
                                   EncodeScratch& scratch) {
  kvquant::KvBlock coded;
  bool any = false;
  for (const Side side : kSides) {
    const auto s = static_cast<std::size_t>(side);
    coded.plane(side, Plane::bf16) = scratch.bf16[s];
    if (!planes_.has_codes(block, layer, side)) continue;
    any = true;
    for (const Plane plane : kCodePlanes) {
      coded.plane(side, plane) = scratch.codes[s][static_cast<std::size_t>(plane)];
    }
  }
  if (!any) return {};
  for (const Side side : kSides) {
    const std::uint16_t* from = rows(side, block, layer, head);
    float* to = scratch.rows[static_cast<std::size_t>(side)];
    for (std::size_t i = 0; i < EncodeScratch::kRows; ++i) to[i] = bf16_to_f32(from[i]);
  }
  const auto status =
      backend.quantize_append(head_layout_, scratch.rows[0], scratch.rows[1], coded);
  if (!status.ok()) return tl::unexpected(refusal(block, layer, head, scratch, status));
  for (const Side side : kSides) {
    if (!planes_.has_codes(block, layer, side)) continue;
    const auto& codes = scratch.codes[static_cast<std::size_t>(side)];
    for (const Plane plane : kCodePlanes) {
      if (!planes_.has(block, layer, side, plane)) continue;
      std::memcpy(head_at(side, plane, block, layer, head), codes[static_cast<std::size_t>(plane)],
                  TieredPlanes::head_bytes(plane));
    }
    for (std::size_t pair = 0; pair < planes_.pairs(side); ++pair) {
      const Plane of =
          static_cast<Pair>(pair) == Pair::range ? head_layout_.range_plane(side) : Plane::hi2;
      const kvquant::PlaneLayout& parts = head_layout_.plane(side, of);
      const std::uint8_t* from = codes[static_cast<std::size_t>(of)];
      std::byte* to = params_of_head(block, layer, side, static_cast<Pair>(pair), head);
      std::memcpy(to, from + parts.scales, kPartBytes / kKvHeads);
      std::memcpy(to + kPartBytes, from + parts.offsets, kPartBytes / kKvHeads);
    }
  }
  return {};
}

// kvquant sees one head alone; the sentence says which.
Error TieredKv::refusal(BlockId block, int layer, int head, const EncodeScratch& scratch,
                        const kvquant::Status& status) const {
  for (const Side side : kSides) {
    const float largest = planes_.largest_value(side);
    const auto& values = scratch.rows[static_cast<std::size_t>(side)];
    const auto* bad =
        std::ranges::find_if(values, [&](float x) { return !(std::fabs(x) <= largest); });
    if (bad == std::end(values)) continue;
    const auto at = static_cast<int>(bad - values);
    return planes_.refusal({.side = side,
                            .layer = layer,
                            .head = head,
                            .position = at / kHeadDim,
                            .block = block,
                            .found = *bad});
  }
  return {ErrorCode::invalid,
          fmt::format("kv: layer {}, head {}, block {}: {}", layer, head, block, status.message())};
}

// --- a block as bytes

Result<void> TieredKv::read(BlockId block, std::span<std::byte> out) const {
  KIPP_TRY(planes_.check(block, out.size()));
  std::byte* at = out.data();
  planes_.for_each_part(held(block), [&](Side side, Plane plane, int layer) {
    for (const Unit unit : planes_.units(block, layer, side, plane)) {
      at = std::copy_n(memory(unit), kKvUnitBytes, at);
    }
  });
  for (int layer = 0; layer < planes_.layers(); ++layer) {
    for (const Side side : kSides) {
      const std::size_t n = planes_.pairs(side) * 2 * kPartBytes;
      at = planes_.has_codes(block, layer, side)
               ? std::copy_n(params_of_side(block, layer, side), n, at)
               : std::fill_n(at, n, std::byte{0});
    }
  }
  return {};
}

Result<void> TieredKv::write(BlockId block, std::span<const std::byte> in) {
  KIPP_TRY(planes_.check(block, in.size()));
  const std::byte* at = in.data();
  planes_.for_each_part(held(block), [&](Side side, Plane plane, int layer) {
    for (const Unit unit : planes_.units(block, layer, side, plane)) {
      std::copy_n(at, kKvUnitBytes, memory(unit));
      at += kKvUnitBytes;
    }
  });
  std::copy_n(at, planes_.parameter_bytes(), params(block));
  return {};
}

}  // namespace kipp
