#include "kvquant/tiered_cache.h"

#include <algorithm>
#include <new>

namespace kvquant {
namespace {

constexpr Side kBothSides[] = {Side::key, Side::value};
constexpr Plane kEveryPlane[] = {Plane::hi2, Plane::mid2, Plane::low4, Plane::bf16};

int blocks_for(int positions) {
  return positions / kBlockPositions + (positions % kBlockPositions != 0);
}

// Planes of a complete block that some query in `band` reads or, that band being left behind, in
// one beyond it. BF16 rows have no codes in them, so a band that reads them keeps the codes of
// those to come as well; a band of no blocks is read by nobody.
PlaneSet lasting_planes(const TieredKvPolicy& policy, Band band, Side side) {
  if (band == Band::sink) return planes_for(policy.sink.side(side));
  PlaneSet planes = planes_for(policy.far.side(side));
  if (band <= Band::mid && policy.mid_width() > 0) {
    planes = planes | planes_for(policy.mid.side(side));
  }
  if (band <= Band::recent && policy.recent_blocks > 0) {
    planes = planes | planes_for(policy.recent.side(side));
  }
  return planes;
}

// What a block is given when its last position arrives: its rows, and every code it will ever be
// read at.
PlaneSet first_planes(const TieredKvPolicy& policy, bool sink, Side side) {
  const PlaneSet rows = planes_for(BitWidth::bf16);
  return rows | lasting_planes(policy, sink ? Band::sink : Band::recent, side);
}

}  // namespace

// The most planes of each kind that are held at once when demote() is called as often as was
// promised.
PlaneArena::Counts TieredCacheCore::plane_counts(const CacheConfig& config) {
  const TieredKvPolicy& policy = config.policy;
  const int all = blocks_for(config.max_positions);
  const int fresh =
      config.undemoted_positions == 0
          ? all
          : std::min(all, blocks_for(config.undemoted_positions) + 1);  // and the open one
  const int sinks = std::min(all, policy.sink_blocks);
  PlaneArena::Counts counts;
  for (const Side side : kBothSides) {
    for (const Plane plane : kEveryPlane) {
      const auto lasts = [&](Band band) { return lasting_planes(policy, band, side).has(plane); };
      const bool first = first_planes(policy, false, side).has(plane) ||
                         (sinks > 0 && first_planes(policy, true, side).has(plane));
      std::int64_t held = first ? fresh : 0;
      if (lasts(Band::sink)) held += sinks;
      if (lasts(Band::recent)) held += policy.recent_blocks;
      if (lasts(Band::mid)) held += policy.mid_width();
      if (lasts(Band::far)) held = all;
      counts.planes[static_cast<int>(side)][static_cast<int>(plane)] =
          static_cast<int>(std::min<std::int64_t>(held, all));
    }
  }
  return counts;
}

Expected<std::size_t> TieredCacheCore::bytes_needed(const CacheConfig& config) {
  const Expected<BlockLayout> layout = BlockLayout::make(config.shape, config.scheme);
  if (!layout.ok()) return layout.status();
  if (Status status = validate(config.policy, layout.value().scheme()); !status.ok()) return status;
  if (config.max_positions < 1) {
    return Status::fail(Code::invalid_argument, "max_positions: expected at least 1, found %d",
                        config.max_positions);
  }
  if (config.undemoted_positions < 0) {
    return Status::fail(Code::invalid_argument,
                        "undemoted_positions: expected at least 0, found %d",
                        config.undemoted_positions);
  }
  return PlaneArena::bytes_needed(layout.value(), plane_counts(config));
}

Status TieredCacheCore::init(const CacheConfig& config) {
  if (const Expected<std::size_t> bytes = bytes_needed(config); !bytes.ok()) return bytes.status();
  config_ = config;
  layout_ = BlockLayout::make(config.shape, config.scheme).value();
  if (Status status = arena_.reserve(layout_, plane_counts(config)); !status.ok()) return status;
  const auto blocks = static_cast<std::size_t>(blocks_for(config.max_positions));
  blocks_.reset(new (std::nothrow) KvBlock[blocks]);
  if (blocks_ == nullptr) {
    return Status::fail(Code::out_of_memory,
                        "cache: the system has no memory for %zu block records", blocks);
  }
  return {};
}

Status TieredCacheCore::take_planes(int index, Side side, PlaneSet planes) {
  KvBlock& block = blocks_[static_cast<std::size_t>(index)];
  for (const Plane plane : kEveryPlane) {
    if (!planes.has(plane) || block.plane(side, plane) != nullptr) continue;
    block.plane(side, plane) = arena_.take(side, plane);
    if (block.plane(side, plane) == nullptr) {
      return Status::fail(
          Code::out_of_memory,
          "append: no %s plane %s is left for block %d: undemoted_positions sets memory aside for "
          "%d positions between two calls of demote(length())",
          name_of(side), name_of(plane), index, config_.undemoted_positions);
    }
  }
  return {};
}

void TieredCacheCore::free_planes(int index, Side side, PlaneSet keep) {
  KvBlock& block = blocks_[static_cast<std::size_t>(index)];
  for (const Plane plane : kEveryPlane) {
    if (keep.has(plane) || block.plane(side, plane) == nullptr) continue;
    arena_.give_back(side, plane, block.plane(side, plane));
    block.plane(side, plane) = nullptr;
  }
}

Status TieredCacheCore::append(KvBackend& backend, std::span<const float> k,
                               std::span<const float> v) {
  const auto row = static_cast<std::size_t>(layout_.shape().row());
  if (k.size() != v.size() || k.size() % row != 0) {
    return Status::fail(
        Code::invalid_argument,
        "append: expected k and v of equal size in whole rows of %zu elements, found %zu and %zu",
        row, k.size(), v.size());
  }
  const int before = length_;
  const std::size_t room = static_cast<std::size_t>(config_.max_positions - before);
  if (k.size() / row > room) {
    return Status::fail(
        Code::invalid_argument,
        "append: expected at most %zu more positions of max_positions %d, found %zu", room,
        config_.max_positions, k.size() / row);
  }
  Status status;
  for (int left = static_cast<int>(k.size() / row); left > 0;) {
    const int index = length_ / kBlockPositions;
    KvBlock& block = blocks_[static_cast<std::size_t>(index)];
    const int rows = std::min(left, kBlockPositions - block.positions);
    const bool completes = block.positions + rows == kBlockPositions;
    for (const Side side : kBothSides) {
      const PlaneSet planes =
          completes ? first_planes(config_.policy, index < config_.policy.sink_blocks, side)
                    : planes_for(BitWidth::bf16);
      if (status = take_planes(index, side, planes); !status.ok()) break;
    }
    const std::size_t from = static_cast<std::size_t>(length_ - before) * row;
    const std::size_t elements = static_cast<std::size_t>(rows) * row;
    if (status.ok()) {
      status = backend.quantize_append(layout_, k.subspan(from, elements),
                                       v.subspan(from, elements), block);
    }
    if (!status.ok()) {
      cut(before, index + 1);
      if (status.code() != Code::not_finite) return status;
      // Say where in the sequence it stands, not where in the block.
      if (Status at = check_values(layout_, Side::key, k, before); !at.ok()) return at;
      if (Status at = check_values(layout_, Side::value, v, before); !at.ok()) return at;
      return status;
    }
    length_ += rows;
    left -= rows;
  }
  return {};
}

Status TieredCacheCore::truncate(int length) {
  if (length < 0 || length > length_) {
    return Status::fail(Code::invalid_argument, "truncate: expected 0 to the length %d, found %d",
                        length_, length);
  }
  const int inside = length % kBlockPositions;
  const int index = length / kBlockPositions;
  for (const Side side : kBothSides) {
    if (inside == 0 || block(index).plane(side, Plane::bf16) != nullptr) continue;
    return Status::fail(
        Code::unavailable,
        "truncate to %d: block %d was demoted and has no bf16 rows to go back to; %d and %d are "
        "possible",
        length, index, length - inside, length - inside + kBlockPositions);
  }
  cut(length, blocks_for(length_));
  return {};
}

// Leaves `length` positions in blocks of which the first `touched` may hold planes.
void TieredCacheCore::cut(int length, int touched) {
  const int kept = blocks_for(length);
  for (int index = kept; index < touched; ++index) {
    for (const Side side : kBothSides) free_planes(index, side, PlaneSet());
    blocks_[static_cast<std::size_t>(index)].positions = 0;
  }
  if (const int inside = length % kBlockPositions; inside != 0) {  // the last one is open
    for (const Side side : kBothSides) free_planes(kept - 1, side, planes_for(BitWidth::bf16));
    blocks_[static_cast<std::size_t>(kept - 1)].positions = inside;
  }
  length_ = length;
  settled_ = std::min(settled_, length / kBlockPositions);
}

Status TieredCacheCore::demote(int query_position) {
  if (query_position < 0) {
    return Status::fail(Code::invalid_argument,
                        "demote: expected a position of at least 0, found %d", query_position);
  }
  const int left_behind = std::min(length_, query_position) / kBlockPositions;
  for (int index = settled_; index < left_behind; ++index) {
    const Band band = config_.policy.band(query_position, index * kBlockPositions);
    for (const Side side : kBothSides) {
      free_planes(index, side, lasting_planes(config_.policy, band, side));
    }
    if (index == settled_ && (band == Band::sink || band == Band::far)) ++settled_;
  }
  return {};
}

Status TieredCacheCore::check_block_read(int query_position, int index) const {
  const KvBlock& block = blocks_[static_cast<std::size_t>(index)];
  const Band band = config_.policy.band(query_position, index * kBlockPositions);
  if (!block.complete() && band != Band::open) {
    return Status::fail(
        Code::unavailable,
        "dequantize: block %d is still open, and a query at position %d would read it in the %s "
        "band, which exists once the block is complete",
        index, query_position, name_of(band));
  }
  for (const Side side : kBothSides) {
    const BitWidth width = config_.policy.of(band).side(side);
    if (block.present(side).contains(planes_for(width))) continue;
    return Status::fail(
        Code::unavailable,
        "dequantize: a query at position %d reads the %ss of block %d as %s, and that was freed by "
        "demote()",
        query_position, name_of(side), index, name_of(width));
  }
  return {};
}

Status TieredCacheCore::dequantize(KvBackend& backend, int query_position, int first, int count,
                                   const AttentionInput& out) const {
  if (first < 0 || count < 0 || first > length_ || count > length_ - first) {
    return Status::fail(Code::invalid_argument,
                        "dequantize: expected positions within [0, %d), found %d positions from %d",
                        length_, count, first);
  }
  const auto row = static_cast<std::size_t>(layout_.shape().row());
  if (out.k.size() != static_cast<std::size_t>(count) * row || out.v.size() != out.k.size()) {
    return Status::fail(Code::invalid_argument,
                        "dequantize: expected room for %zu elements each, found %zu and %zu",
                        static_cast<std::size_t>(count) * row, out.k.size(), out.v.size());
  }
  if (count > 0 && query_position < first + count - 1) {
    return Status::fail(
        Code::invalid_argument,
        "dequantize: a query at position %d cannot read position %d, which comes after it",
        query_position, first + count - 1);
  }
  const int end = first + count;
  for (int index = first / kBlockPositions; index < blocks_for(end) && count > 0; ++index) {
    if (Status status = check_block_read(query_position, index); !status.ok()) return status;
  }
  for (int at = first; at < end;) {
    const int inside = at % kBlockPositions;
    const int rows = std::min(end - at, kBlockPositions - inside);
    const std::size_t from = static_cast<std::size_t>(at - first) * row;
    const std::size_t elements = static_cast<std::size_t>(rows) * row;
    Status status = backend.dequantize_for_attention(
        layout_, block(at / kBlockPositions), config_.policy.tier(query_position, at), inside, rows,
        out.k.subspan(from, elements), out.v.subspan(from, elements));
    if (!status.ok()) return status;
    at += rows;
  }
  return {};
}

MemoryReport TieredCacheCore::memory() const {
  MemoryReport report;
  for (int index = 0; index < blocks_for(length_); ++index) {
    const KvBlock& block = blocks_[static_cast<std::size_t>(index)];
    const Band band = config_.policy.band(length_, index * kBlockPositions);
    MemoryReport::Part& part = report.bands[static_cast<int>(band)];
    part.blocks += 1;
    for (const Side side : kBothSides) part.bytes += layout_.bytes(side, block.present(side));
  }
  for (const MemoryReport::Part& part : report.bands) report.held += part.bytes;
  report.reserved = arena_.bytes();
  if (length_ > 0) {
    const double elements = 2.0 * length_ * layout_.shape().row();
    report.bits_per_element = 8.0 * static_cast<double>(report.held) / elements;
  }
  return report;
}

}  // namespace kvquant
