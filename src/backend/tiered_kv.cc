#include "backend/tiered_kv.h"

#include <algorithm>
#include <bit>
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

std::size_t index(BlockId block) { return static_cast<std::size_t>(block); }

// Bytes of one head's codes, or rows.
constexpr std::size_t head_bytes(Plane plane) {
  return static_cast<std::size_t>(units_of(plane)) * kKvUnitBytes / kKvHeads;
}

// Where the units of a plane begin among those of its side.
constexpr std::size_t first_unit(Plane plane) {
  switch (plane) {
    case Plane::hi2:
      return 0;
    case Plane::mid2:
      return 1;
    case Plane::low4:
      return 2;
    case Plane::bf16:
      break;
  }
  return 4;
}

// What one step can write whole.
std::size_t whole_blocks(int max_step_tokens) {
  return static_cast<std::size_t>(max_step_tokens / kBlockPositions);
}

std::string name_of(Side side, Plane plane) {
  return fmt::format("{} plane {}", kvquant::name_of(side), kvquant::name_of(plane));
}

}  // namespace

std::size_t TieredKv::bytes_needed(const ModelConfig& config, const KvConfig& kv,
                                   int max_step_tokens) {
  const auto blocks = static_cast<std::size_t>(kv.blocks);
  const auto sides = static_cast<std::size_t>(config.layers) * kvquant::kSides;
  const std::size_t of_unit = kKvUnitBytes + sizeof(Unit);
  const std::size_t of_block = kv.policy.parameter_bytes(config) +
                               sides * kUnitsOfSide * sizeof(Unit) + sizeof(PlaneBits) +
                               sizeof(int);
  return static_cast<std::size_t>(kv.units) * of_unit + blocks * of_block +
         whole_blocks(max_step_tokens) * kvquant::kSides * kKvHeads * kHeadRowsBytes;
}

Result<TieredKv> TieredKv::create(const ModelConfig& config, const KvConfig& kv,
                                  int max_step_tokens) {
  if (kv.units < 1) {
    return fail(ErrorCode::invalid, "kv.units: expected at least 1, found {}", kv.units);
  }
  KIPP_TRY(kv.policy.check_layers(config));
  auto layout =
      kvquant::BlockLayout::make({.kv_heads = 1, .head_width = kHeadDim}, kv.policy.scheme());
  if (!layout.ok()) return fail(ErrorCode::invalid, "kv: {}", layout.status().message());

  TieredKv cache;
  cache.policy_ = kv.policy;
  cache.head_layout_ = layout.value();
  const std::vector<int> units = kv.policy.units_by_plane(config);
  for (const LayerGroup group : {LayerGroup::common, LayerGroup::apart}) {
    cache.tiers_[static_cast<std::size_t>(group)] = kv.policy.tiers(group);
    for (const Side side : kSides) {
      for (int p = 0; p < kvquant::kPlanes; ++p) {
        const auto plane = static_cast<Plane>(p);
        const PlaneBits bit = plane_bit(group, side, plane);
        const int n = units[static_cast<std::size_t>(std::countr_zero(bit))];
        if (n == 0) continue;
        cache.planes_.push_back({side, plane, group, bit, n});
        cache.all_planes_ |= bit;
        if (plane == Plane::bf16) cache.bf16_planes_ |= bit;
      }
    }
  }
  for (int band = 0; band < kvquant::kBands; ++band) {
    cache.planes_of_band_[band] = kv.policy.planes(static_cast<Band>(band)) & cache.all_planes_;
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    cache.group_of_layer_.push_back(
        static_cast<std::uint8_t>(kv.policy.group_of(layer, config.layers)));
  }

  const auto blocks = static_cast<std::size_t>(kv.blocks);
  const auto sides = static_cast<std::size_t>(config.layers) * kvquant::kSides;
  cache.parameter_bytes_ = kv.policy.parameter_bytes(config);
  const auto n_units = static_cast<std::size_t>(kv.units);
  KIPP_TRY_ASSIGN(arena, HugeBuffer::create(n_units * kKvUnitBytes));
  KIPP_TRY_ASSIGN(parameters, HugeBuffer::create(blocks * cache.parameter_bytes_));
  KIPP_TRY_ASSIGN(table, HugeBuffer::create(blocks * sides * kUnitsOfSide * sizeof(Unit)));
  KIPP_TRY_ASSIGN(freed, HugeBuffer::create(n_units * sizeof(Unit)));
  KIPP_TRY_ASSIGN(rows, HugeBuffer::create(whole_blocks(max_step_tokens) * kvquant::kSides *
                                           kKvHeads * kHeadRowsBytes));
  cache.arena_ = std::move(arena);
  cache.parameters_ = std::move(parameters);
  cache.table_ = std::move(table);
  cache.freed_ = std::move(freed);
  cache.units_ = kv.units;
  cache.held_.assign(blocks, 0);
  cache.step_rows_ = std::move(rows);
  cache.step_rows_of_.assign(blocks, kNoRows);
  cache.completed_.reserve(static_cast<std::size_t>(max_step_tokens));
  return cache;
}

// --- where things are

bool TieredKv::has_codes(BlockId block, int layer, Side side) const {
  return std::ranges::any_of(kCodePlanes,
                             [&](Plane plane) { return has(block, layer, side, plane); });
}

std::span<TieredKv::Unit> TieredKv::units_of_plane(BlockId block, int layer, Side side,
                                                   Plane plane) const {
  const std::size_t blocks = held_.size();
  const std::size_t of_side = (static_cast<std::size_t>(layer) * blocks + index(block)) * 2 +
                              static_cast<std::size_t>(side);
  auto* const units = reinterpret_cast<Unit*>(table_.bytes().data());
  return {units + of_side * kUnitsOfSide + first_unit(plane),
          static_cast<std::size_t>(units_of(plane))};
}

std::byte* TieredKv::head_at(Side side, Plane plane, BlockId block, int layer, int head) const {
  const std::size_t at = static_cast<std::size_t>(head) * head_bytes(plane);
  const auto units = units_of_plane(block, layer, side, plane);
  return memory(units[at / kKvUnitBytes]) + at % kKvUnitBytes;
}

std::byte* TieredKv::params(BlockId block) const {
  return parameters_.bytes().data() + index(block) * parameter_bytes_;
}

std::size_t TieredKv::pairs(Side side) const {
  const kvquant::QuantScheme& scheme = head_layout_.scheme().side(side);
  if (scheme.bits == BitWidth::bf16) return 0;
  return kvquant::has_fitted_pair(scheme) ? 2 : 1;
}

std::byte* TieredKv::params_of_side(BlockId block, int layer, Side side) const {
  const std::size_t keys = pairs(Side::key);
  const std::size_t before = static_cast<std::size_t>(layer) * (keys + pairs(Side::value)) +
                             (side == Side::value ? keys : 0);
  return params(block) + before * 2 * kPartBytes;
}

std::byte* TieredKv::params_of_head(BlockId block, int layer, Side side, Pair pair,
                                    int head) const {
  return params_of_side(block, layer, side) + static_cast<std::size_t>(pair) * 2 * kPartBytes +
         static_cast<std::size_t>(head) * (kPartBytes / kKvHeads);
}

const std::uint16_t* TieredKv::rows(Side side, BlockId block, int layer, int head) const {
  if (has(block, layer, side, Plane::bf16)) {
    return reinterpret_cast<const std::uint16_t*>(head_at(side, Plane::bf16, block, layer, head));
  }
  const int place = step_rows_of_[index(block)];
  assert(place != kNoRows);
  const std::size_t heads_before =
      (static_cast<std::size_t>(place) * 2 + static_cast<std::size_t>(side)) * kKvHeads +
      static_cast<std::size_t>(head);
  return reinterpret_cast<const std::uint16_t*>(step_rows_.bytes().data() +
                                                heads_before * kHeadRowsBytes);
}

CodeHead TieredKv::codes(Side side, BlockId block, int layer, int head, BitWidth width) const {
  const auto at = [&](Plane plane) {
    assert(has(block, layer, side, plane));
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

// --- which planes there are

TieredKv::Unit TieredKv::take() {
  if (free_count_ == 0) return static_cast<Unit>(touched_++);
  return reinterpret_cast<const Unit*>(freed_.bytes().data())[--free_count_];
}

void TieredKv::give_back(Unit unit) {
  reinterpret_cast<Unit*>(freed_.bytes().data())[free_count_++] = unit;
}

// Calls visit(side, plane, layer) for the parts of these planes in the order of a block's bytes.
template <class Visit>
void TieredKv::for_each_unit(PlaneBits planes, const Visit& visit) const {
  for (const PlaneBit& p : planes_) {
    if ((planes & p.bit) == 0) continue;
    for (int layer = 0; layer < static_cast<int>(group_of_layer_.size()); ++layer) {
      if (group(layer) == static_cast<std::size_t>(p.group)) visit(p.side, p.plane, layer);
    }
  }
}

void TieredKv::hold(std::span<const PlaneChange> changes) {
  for (const PlaneChange& change : changes) {
    PlaneBits& now = held_[index(change.block)];
    for_each_unit(now & ~change.planes, [&](Side side, Plane plane, int layer) {
      for (const Unit unit : units_of_plane(change.block, layer, side, plane)) give_back(unit);
    });
    now &= change.planes;
    for (const PlaneBit& p : planes_) {
      if ((change.planes & ~now & p.bit) == 0 || p.units > free_units()) continue;
      for_each_unit(p.bit, [&](Side side, Plane plane, int layer) {
        for (Unit& unit : units_of_plane(change.block, layer, side, plane)) unit = take();
      });
      now |= p.bit;
    }
  }
}

void TieredKv::move(BlockId from, BlockId to, PlaneBits planes) {
  const PlaneBits moved = planes & held(from) & ~held(to);
  for_each_unit(moved, [&](Side side, Plane plane, int layer) {
    std::ranges::copy(units_of_plane(from, layer, side, plane),
                      units_of_plane(to, layer, side, plane).begin());
    if (plane == Plane::bf16) return;
    std::memcpy(params_of_side(to, layer, side), params_of_side(from, layer, side),
                pairs(side) * 2 * kPartBytes);
  });
  held_[index(from)] &= ~moved;
  held_[index(to)] |= moved;
}

void TieredKv::copy(std::span<const BlockCopy> copies) {
  for (const BlockCopy& c : copies) {
    for_each_unit(held(c.from) & held(c.to), [&](Side side, Plane plane, int layer) {
      const auto out = units_of_plane(c.to, layer, side, plane);
      const auto in = units_of_plane(c.from, layer, side, plane);
      for (std::size_t i = 0; i < in.size(); ++i) {
        std::memcpy(memory(out[i]), memory(in[i]), kKvUnitBytes);
      }
    });
    if (parameter_bytes_ != 0) std::memcpy(params(c.to), params(c.from), parameter_bytes_);
  }
}

// --- a step

Result<void> TieredKv::begin_step(const StepPlan& step) {
  for (const BlockId block : completed_) step_rows_of_[index(block)] = kNoRows;
  completed_.clear();
  int whole = 0;
  for (int row = 0; row < step.rows();) {
    const int item = step.item_of_row[static_cast<std::size_t>(row)];
    const int pos = step.positions[static_cast<std::size_t>(row)];
    const auto table = step.table(item);
    while (row < step.rows() && step.item_of_row[static_cast<std::size_t>(row)] == item) ++row;
    const int end = step.positions[static_cast<std::size_t>(row) - 1] + 1;
    const int first_query = pos / kBlockPositions;
    const int last_query = (end - 1) / kBlockPositions;
    for (int key = 0; key <= last_query; ++key) {
      KIPP_TRY(check_reads(step, item, key, std::max(first_query, key + 1), last_query));
      if (key < first_query) continue;
      const BlockId block = table[static_cast<std::size_t>(key)];
      const int begins = key * kBlockPositions;
      const int ends = begins + kBlockPositions;
      const bool holds_rows = (held(block) & bf16_planes_) == bf16_planes_;
      if (pos <= begins && end >= ends) {
        if (!holds_rows) step_rows_of_[index(block)] = whole++;
      } else if (!holds_rows) {
        KIPP_TRY(check_write(item, block, std::max(pos, begins), std::min(end, ends)));
      }
      if (end >= ends) completed_.push_back(block);
    }
  }
  return {};
}

// Every plane that queries of these blocks read of the item's block `key`.
Result<void> TieredKv::check_reads(const StepPlan& step, int item, int key, int first_query,
                                   int last_query) const {
  const BlockId block = step.table(item)[static_cast<std::size_t>(key)];
  for (int query = first_query; query <= last_query; ++query) {
    const Band band = tiers_[0].band(query * kBlockPositions, key * kBlockPositions);
    const PlaneBits needed = planes_of_band_[static_cast<std::size_t>(band)];
    const PlaneBits missing = needed & ~held(block);
    if (missing == 0) continue;
    const auto p = std::ranges::find_if(
        planes_, [&](const PlaneBit& plane) { return (plane.bit & missing) != 0; });
    return fail(ErrorCode::invalid,
                "items[{}].blocks[{}]: expected block {} to hold its {}, which positions from {} "
                "on read, found it without",
                item, key, block, name_of(p->side, p->plane), query * kBlockPositions);
  }
  return {};
}

Result<void> TieredKv::check_write(int item, BlockId block, int begin, int end) const {
  for (const PlaneBit& p : planes_) {
    if (p.plane != Plane::bf16 || (held(block) & p.bit) != 0) continue;
    return fail(ErrorCode::invalid,
                "items[{}]: expected block {} to hold its {}, of which positions {} to {} are "
                "written, found it without",
                item, block, name_of(p.side, p.plane), begin, end - 1);
  }
  return {};
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
    if (!has_codes(block, layer, side)) continue;
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
    if (!has_codes(block, layer, side)) continue;
    const auto& codes = scratch.codes[static_cast<std::size_t>(side)];
    for (const Plane plane : kCodePlanes) {
      if (!has(block, layer, side, plane)) continue;
      std::memcpy(head_at(side, plane, block, layer, head), codes[static_cast<std::size_t>(plane)],
                  head_bytes(plane));
    }
    for (std::size_t pair = 0; pair < pairs(side); ++pair) {
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
    const float largest = kvquant::largest_value(head_layout_.scheme().side(side), kHeadDim);
    const auto& values = scratch.rows[static_cast<std::size_t>(side)];
    const auto* bad =
        std::ranges::find_if(values, [&](float x) { return !(std::fabs(x) <= largest); });
    if (bad == std::end(values)) continue;
    const auto at = static_cast<int>(bad - values);
    return {ErrorCode::invalid,
            fmt::format("kv: {} in layer {}, head {}, position {} of block {}: expected a finite "
                        "number of magnitude at most {}, found {}",
                        kvquant::name_of(side), layer, head, at / kHeadDim, block, largest, *bad)};
  }
  return {ErrorCode::invalid,
          fmt::format("kv: layer {}, head {}, block {}: {}", layer, head, block, status.message())};
}

// --- a block as bytes

std::size_t TieredKv::block_bytes(PlaneBits planes) const {
  std::size_t units = 0;
  for (const PlaneBit& p : planes_) {
    if ((planes & p.bit) != 0) units += static_cast<std::size_t>(p.units);
  }
  return units * kKvUnitBytes + parameter_bytes_;
}

Result<void> TieredKv::check(BlockId block, std::size_t bytes) const {
  if (block < 0 || block >= blocks()) {
    return fail(ErrorCode::invalid, "block: expected one from 0 to {}, found {}", blocks() - 1,
                block);
  }
  if (bytes != block_bytes(held(block))) {
    return fail(ErrorCode::invalid,
                "block {}: expected {} bytes, those of its plane set 0x{:04x}, found {}", block,
                block_bytes(held(block)), held(block), bytes);
  }
  return {};
}

Result<void> TieredKv::read(BlockId block, std::span<std::byte> out) const {
  KIPP_TRY(check(block, out.size()));
  std::byte* at = out.data();
  for_each_unit(held(block), [&](Side side, Plane plane, int layer) {
    for (const Unit unit : units_of_plane(block, layer, side, plane)) {
      at = std::copy_n(memory(unit), kKvUnitBytes, at);
    }
  });
  for (int layer = 0; layer < static_cast<int>(group_of_layer_.size()); ++layer) {
    for (const Side side : kSides) {
      const std::size_t n = pairs(side) * 2 * kPartBytes;
      at = has_codes(block, layer, side) ? std::copy_n(params_of_side(block, layer, side), n, at)
                                         : std::fill_n(at, n, std::byte{0});
    }
  }
  return {};
}

Result<void> TieredKv::write(BlockId block, std::span<const std::byte> in) {
  KIPP_TRY(check(block, in.size()));
  const std::byte* at = in.data();
  for_each_unit(held(block), [&](Side side, Plane plane, int layer) {
    for (const Unit unit : units_of_plane(block, layer, side, plane)) {
      std::copy_n(at, kKvUnitBytes, memory(unit));
      at += kKvUnitBytes;
    }
  });
  std::copy_n(at, parameter_bytes_, params(block));
  return {};
}

}  // namespace kipp
