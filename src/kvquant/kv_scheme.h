// What a cache stores: the width, grouping and rotation of keys and of values, each side apart. A
// scheme is validated once, when a BlockLayout is made of it; everything after that may rely on it.
#pragma once

#include <cstdint>

#include "kvquant/status.h"

namespace kvquant {

// Positions in a block. Complete blocks are immutable and are what codes are made of.
constexpr int kBlockPositions = 32;

// Bits of one element. Wider compares greater.
enum class BitWidth : std::uint8_t { int2 = 2, int4 = 4, int8 = 8, bf16 = 16 };

enum class Side : std::uint8_t { key = 0, value = 1 };
constexpr int kSides = 2;

// Which elements share a scale and an offset.
enum class Grouping : std::uint8_t {
  per_token = 0,    // group_size neighbouring channels of one token's row
  per_channel = 1,  // group_size neighbouring positions of one channel: needs a complete block
};

struct KvShape {
  int kv_heads = 0;
  int head_width = 0;  // a multiple of 16, at most 512

  constexpr int row() const {
    return kv_heads * head_width;
  }  // elements of one token, one side; at most 8192
  friend bool operator==(const KvShape&, const KvShape&) = default;
};

struct QuantScheme {
  // Width of the codes. int8 codes can be read at int8, int4 and int2, int4 codes at int4 and int2:
  // see KvBlock. bf16 stores no codes at all, and then the fields below are ignored.
  BitWidth bits = BitWidth::int8;

  Grouping grouping = Grouping::per_token;

  // per_token: divides the row (kv_heads * head_width). per_channel: divides kBlockPositions.
  int group_size = 128;

  // scale * (code - middle) in place of offset + scale * code: half the parameters, and as a rule
  // more error.
  bool symmetric = false;

  // Each head's row is turned by the orthonormal Hadamard transform before it is coded, and turned
  // back when it is read: outlier channels are spread over the whole row. The head width must be a
  // power of two.
  bool hadamard = false;

  // The narrowest width codes will be read at. Below int4 it costs a second pair of parameters per
  // group: the int2 levels fitted to the values, in place of cell centres.
  BitWidth narrowest = BitWidth::int2;

  // Range of a group that codes cover, in per cent around its middle; what lies outside is clipped.
  // Below 100 only where bits <= int4: it helps int2 a little and ruins int8.
  int clip_percent = 100;

  // Codes exist only once a block has all of its positions; until then rows are BF16. True of every
  // tiered cache by its policy, and of per-channel groups by their nature: a group spans positions.
  bool waits_for_complete_block() const { return grouping == Grouping::per_channel; }

  friend bool operator==(const QuantScheme&, const QuantScheme&) = default;
};

struct KvScheme {
  QuantScheme key;
  QuantScheme value;

  const QuantScheme& side(Side s) const { return s == Side::key ? key : value; }
  friend bool operator==(const KvScheme&, const KvScheme&) = default;
};

// One sentence naming side, field, expected and found, or success.
Status validate(const KvShape& shape);
Status validate(const KvShape& shape, const KvScheme& scheme);

const char* name_of(BitWidth width);  // "bf16", "int8", "int4", "int2"
const char* name_of(Side side);       // "key", "value"

}  // namespace kvquant
