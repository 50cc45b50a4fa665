// Attention over blocks of bit planes, as kernels: attention.h, with keys and values that may each
// be BF16 rows or codes (backend/tiered_kv.h).
//
// A query that meets codes is turned by the Hadamard transform where they are, and made a 16-bit
// integer per dimension with a scale of its own, so that its products with codes are sums of
// integers: exact, whatever the order and the vector width. Likewise the weights of a block times
// the scales of its values become 16-bit integers, with the greatest as unit. Both are made from
// what the query sees and nothing else. One rounding of a query costs an NMSE of 1e-9 of its
// scores (a normal query: the unit is 1/32512 of its greatest element, about 3 deviations).
//
// Values from codes are summed as the transform left them, in a state of their own beside that of
// values from rows. Both are merged run by run, and joined once, at the end, where the first is
// turned back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cpu/attention.h"
#include "backend/tiered_kv.h"

namespace kipp::cpu {

// Keys or values of one KV head of one block.
struct TieredSide {
  const std::uint16_t* rows = nullptr;  // [kBlockPositions, kHeadDim] BF16; null: codes
  CodeHead codes;
};

struct TieredHead {
  TieredSide keys, values;
};

// What a run leaves of each query of a tile.
struct TieredState {
  AttentionState codes;  // of the blocks whose values are codes
  AttentionState rows;   // of the others
};

// A tile's queries as integers: 256 * high + low, with `scale` the value of 1.
struct alignas(64) CodedQueries {
  std::int8_t high[kTileQueries][kHeadDim];
  std::int8_t low[kTileQueries][kHeadDim];
  float scale[kTileQueries];
  std::int32_t sum[kTileQueries];  // of its dimensions
};

// Codes of 32 positions and 128 channels as the products want them (code_kernel-inl.h).
struct alignas(64) CodeBytes {
  static constexpr int kNibbles = kBlockPositions * kHeadDim / 2;
  std::uint8_t top[kNibbles];        // the top four bits of codes, or two at int2
  std::uint8_t low[kNibbles];        // the low four of int8 codes
  std::uint8_t whole[2 * kNibbles];  // int8 codes, where they are multiplied whole
};

// Of one thread.
struct alignas(64) TieredScratch {
  AttentionScratch rows;
  CodeBytes keys, values;
  // value = base + step * (2 * code - greatest code), by position
  float key_base[kBlockPositions], key_step[kBlockPositions];
  float value_base[kBlockPositions], value_step[kBlockPositions];
  std::int8_t weight_high[kTileQueries][kBlockPositions];
  std::int8_t weight_low[kTileQueries][kBlockPositions];
  float weight_unit[kTileQueries];
  std::int32_t weight_sum[kTileQueries];
  float base_sum[kTileQueries];  // of weights times value_base
  // Of the queries in registers, kTileQueries at most.
  std::int32_t sums[kTileQueries * kBlockPositions];
  std::int32_t more_sums[kTileQueries * kBlockPositions];
};

// The tile's queries for keys that are codes.
void code_queries(CodedQueries& coded, const QueryTile& tile, bool rotated);

// Sets `state` from a run, as attend_run does. The tile's positions are all of one block, and only
// the block they lie in may be seen in part. While block i is at hand the lines of ahead[i] are
// asked for.
void attend_tiered_run(const TieredState& state, const QueryTile& tile, const CodedQueries& coded,
                       std::span<const TieredHead> blocks, int seen,
                       std::span<const TieredHead> ahead, TieredScratch& scratch);

// The weighted means; `rotated` says whether values were turned before they were coded. Leaves
// state.codes undefined.
void finish_tiered_attention(float* out, std::ptrdiff_t stride, const TieredState& state,
                             int positions, int heads, bool rotated);

}  // namespace kipp::cpu
