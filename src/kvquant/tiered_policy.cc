#include "kvquant/tiered_policy.h"

#include <climits>
#include <utility>

namespace kvquant {
namespace {

bool is_width(BitWidth width) {
  switch (width) {
    case BitWidth::int2:
    case BitWidth::int4:
    case BitWidth::int8:
    case BitWidth::bf16:
      return true;
  }
  return false;
}

Status check_width(BitWidth width, const QuantScheme& scheme, const char* band, Side side) {
  if (!is_width(width)) {
    return Status::fail(Code::invalid_argument,
                        "%s %s: expected a width of 16, 8, 4 or 2, found %d", band, name_of(side),
                        static_cast<int>(width));
  }
  if (width == BitWidth::bf16) return {};
  if (scheme.bits == BitWidth::bf16) {
    return Status::fail(Code::invalid_argument,
                        "%s %s: expected bf16, the only width of its scheme, found %s", band,
                        name_of(side), name_of(width));
  }
  if (width >= scheme.narrowest && width <= scheme.bits) return {};
  return Status::fail(
      Code::invalid_argument,
      "%s %s: expected bf16, or a width its scheme can be read at (%s to %s), found %s", band,
      name_of(side), name_of(scheme.narrowest), name_of(scheme.bits), name_of(width));
}

// Bands are added up, and a distance compared with the sum: it must not overflow.
constexpr int kMostBlocks = INT_MAX / 4;

Status check_blocks(int blocks, const char* field) {
  if (blocks >= 0 && blocks <= kMostBlocks) return {};
  return Status::fail(Code::invalid_argument, "%s: expected 0 to %d, found %d", field, kMostBlocks,
                      blocks);
}

Status check_mid_blocks(int blocks) {
  if (blocks == TieredKvPolicy::kAsRecent || (blocks >= 0 && blocks <= kMostBlocks)) return {};
  return Status::fail(Code::invalid_argument,
                      "mid_blocks: expected 0 to %d, or %d for as many as recent_blocks, found %d",
                      kMostBlocks, TieredKvPolicy::kAsRecent, blocks);
}

}  // namespace

const char* name_of(Band band) {
  switch (band) {
    case Band::open:
      return "open";
    case Band::sink:
      return "sink";
    case Band::recent:
      return "recent";
    case Band::mid:
      return "mid";
    case Band::far:
      return "far";
  }
  return "unknown band";
}

Band TieredKvPolicy::band(int query_position, int key_position) const {
  const int key_block = key_position / kBlockPositions;
  const int distance = query_position / kBlockPositions - key_block;
  if (distance == 0) return Band::open;
  if (key_block < sink_blocks) return Band::sink;
  if (distance <= recent_blocks) return Band::recent;
  if (distance <= recent_blocks + mid_width()) return Band::mid;
  return Band::far;
}

Tier TieredKvPolicy::of(Band band) const {
  switch (band) {
    case Band::open:
      break;
    case Band::sink:
      return sink;
    case Band::recent:
      return recent;
    case Band::mid:
      return mid;
    case Band::far:
      return far;
  }
  return {BitWidth::bf16, BitWidth::bf16};
}

Status validate(const TieredKvPolicy& policy, const KvScheme& scheme) {
  if (Status status = check_blocks(policy.sink_blocks, "sink_blocks"); !status.ok()) return status;
  if (Status status = check_blocks(policy.recent_blocks, "recent_blocks"); !status.ok())
    return status;
  if (Status status = check_mid_blocks(policy.mid_blocks); !status.ok()) return status;
  for (const Side side : {Side::key, Side::value}) {
    const QuantScheme& codes = scheme.side(side);
    for (const Band band : {Band::sink, Band::recent, Band::mid, Band::far}) {
      Status status = check_width(policy.of(band).side(side), codes, name_of(band), side);
      if (!status.ok()) return status;
    }
    for (const auto& [near, beyond] :
         {std::pair{Band::recent, Band::mid}, {Band::mid, Band::far}}) {
      const BitWidth close = policy.of(near).side(side);
      const BitWidth distant = policy.of(beyond).side(side);
      if (distant <= close) continue;
      return Status::fail(
          Code::invalid_argument,
          "%s %s: expected at most %s, the width of the %s band, found %s: a plane that was "
          "freed would be needed again",
          name_of(beyond), name_of(side), name_of(close), name_of(near), name_of(distant));
    }
  }
  return {};
}

}  // namespace kvquant
