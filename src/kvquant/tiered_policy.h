// Which precision a query reads a key at: a pure function of the two positions. Nothing about
// batches, chunks, cache hits or memory pressure enters, so none of them can change what is read.
#pragma once

#include "kvquant/kv_scheme.h"

namespace kvquant {

// Widths a block is read at.
struct Tier {
  BitWidth key = BitWidth::bf16;
  BitWidth value = BitWidth::bf16;

  BitWidth side(Side s) const { return s == Side::key ? key : value; }
  friend bool operator==(const Tier&, const Tier&) = default;
};

enum class Band : std::uint8_t { open = 0, sink = 1, recent = 2, mid = 3, far = 4 };
constexpr int kBands = 5;

const char* name_of(Band band);

// With query block q, key block k and d = q - k, in blocks of kBlockPositions:
//
//   d = 0                     open     BF16
//   k < sink_blocks           sink
//   d <= recent_blocks        recent
//   d <= recent + mid         mid
//   else                      far
struct TieredKvPolicy {
  static constexpr int kAsRecent = -1;

  int sink_blocks = 1;
  int recent_blocks = 8;
  int mid_blocks = kAsRecent;  // as wide as the recent band

  Tier sink = {BitWidth::bf16, BitWidth::bf16};
  Tier recent = {BitWidth::bf16, BitWidth::bf16};
  Tier mid = {BitWidth::int4, BitWidth::int4};
  Tier far = {BitWidth::int2, BitWidth::int2};

  int mid_width() const { return mid_blocks == kAsRecent ? recent_blocks : mid_blocks; }

  // 0 <= key_position <= query_position.
  Band band(int query_position, int key_position) const;
  Tier tier(int query_position, int key_position) const {
    return of(band(query_position, key_position));
  }
  Tier of(Band band) const;
};

// Every width is one the scheme can be read at, and none grows with distance (a plane that was
// freed would be needed again).
Status validate(const TieredKvPolicy& policy, const KvScheme& scheme);

}  // namespace kvquant
