// The storage layout of 32 positions of keys and values, frozen at version 1. FORMAT.md draws it
// byte for byte, and says how codes are made.
//
// A side (keys or values) is up to four planes, each with memory of its own, so that one can be
// freed alone:
//
//   hi2    the top two bits of every code; the int2 parameters
//   mid2   the next two; scale and offset of codes of four bits or more
//   low4   the low four of int8 codes
//   bf16   the rows as they came, rounded to BF16, never rotated
//
// Inside a plane, codes come first as [head][position][packed channels] (codec.h packs a row), then
// FP16 scales, then FP16 offsets where the scheme has any, each part starting at a multiple of 64
// bytes. BF16 elements lie as [head][position][channel]. All numbers are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvquant/kv_scheme.h"

namespace kvquant {

enum class Plane : std::uint8_t { hi2 = 0, mid2 = 1, low4 = 2, bf16 = 3 };
constexpr int kPlanes = 4;

const char* name_of(Plane plane);

// A set of planes of one side.
class PlaneSet {
 public:
  constexpr PlaneSet() = default;
  constexpr explicit PlaneSet(std::uint8_t bits) : bits_(bits) {}
  constexpr PlaneSet with(Plane plane) const {
    return PlaneSet(static_cast<std::uint8_t>(bits_ | 1u << static_cast<unsigned>(plane)));
  }
  constexpr bool has(Plane plane) const {
    return (bits_ >> static_cast<unsigned>(plane) & 1u) != 0;
  }
  constexpr bool contains(PlaneSet other) const { return (other.bits_ & ~bits_) == 0; }
  constexpr PlaneSet operator|(PlaneSet other) const {
    return PlaneSet(static_cast<std::uint8_t>(bits_ | other.bits_));
  }
  constexpr std::uint8_t bits() const { return bits_; }
  friend constexpr bool operator==(PlaneSet, PlaneSet) = default;

 private:
  std::uint8_t bits_ = 0;
};

// What a read at `width` looks at.
constexpr PlaneSet planes_for(BitWidth width) {
  if (width == BitWidth::bf16) return PlaneSet().with(Plane::bf16);
  PlaneSet planes = PlaneSet().with(Plane::hi2);
  if (width >= BitWidth::int4) planes = planes.with(Plane::mid2);
  if (width >= BitWidth::int8) planes = planes.with(Plane::low4);
  return planes;
}

// Where the parts of a plane begin, in bytes from its start. A part of no bytes begins where the
// next one does.
struct PlaneLayout {
  std::size_t scales = 0;
  std::size_t offsets = 0;
  std::size_t bytes = 0;  // of the whole plane, a multiple of 64; 0: the scheme has no such plane
  std::size_t row_bytes = 0;  // codes of one head and position
};

// A validated shape and scheme with every size that follows from them. Small; copy it freely.
class BlockLayout {
 public:
  static Expected<BlockLayout> make(const KvShape& shape, const KvScheme& scheme);

  const KvShape& shape() const { return shape_; }
  const KvScheme& scheme() const { return scheme_; }
  const PlaneLayout& plane(Side side, Plane plane) const {
    return planes_[static_cast<int>(side)][static_cast<int>(plane)];
  }
  // Every plane a side can have, BF16 among them.
  PlaneSet planes(Side side) const;
  // Planes that carry parameters of their own: scale and offset of the codes, and the fitted int2
  // pair.
  Plane range_plane(Side side) const;

  std::size_t groups(Side side) const;  // of a whole block; 0 for a side without codes
  // Which group an element belongs to: its index in the scales and in the offsets.
  std::size_t group_of(Side side, int position, int head, int channel) const;

  // Bytes of `planes` of a side.
  std::size_t bytes(Side side, PlaneSet planes) const;

 private:
  KvShape shape_;
  KvScheme scheme_;
  PlaneLayout planes_[kSides][kPlanes];
};

// Up to 32 positions: a view of planes that somebody else owns. Rows [0, positions) are there.
// Until all 32 are, only the BF16 planes are; codes are written once, when the 32nd position
// arrives, into the code planes that are not null, and never change after that.
struct KvBlock {
  int positions = 0;
  std::uint8_t* planes[kSides][kPlanes] = {};  // null: freed, or never there

  std::uint8_t*& plane(Side side, Plane plane) {
    return planes[static_cast<int>(side)][static_cast<int>(plane)];
  }
  const std::uint8_t* plane(Side side, Plane plane) const {
    return planes[static_cast<int>(side)][static_cast<int>(plane)];
  }
  bool complete() const { return positions == kBlockPositions; }
  PlaneSet present(Side side) const;
};

// --- a block as bytes
// -----------------------------------------------------------------------------------------

constexpr std::uint16_t kBlockVersion = 1;
constexpr std::size_t kBlockHeaderBytes = 64;

// What the header of stored bytes says.
struct BlockHeader {
  KvShape shape;
  KvScheme scheme;
  int positions = 0;
  PlaneSet planes[kSides];
  std::size_t bytes = 0;  // header and planes
};

// Size of a block stored with these planes.
std::size_t stored_bytes(const BlockLayout& layout, PlaneSet key, PlaneSet value);

// Header and every plane that is present, keys first. `out` has exactly stored_bytes() of them.
Status store_block(const BlockLayout& layout, const KvBlock& block, std::span<std::uint8_t> out);

// Checks magic, version, sizes, scheme and checksum, and says what the bytes hold.
Expected<BlockHeader> inspect_block(std::span<const std::uint8_t> bytes);

// Fills the planes of `block`, whose pointers the caller has set for exactly the planes that
// inspect_block() names. Bytes of another layout, and content no encoder writes (a scale that is no
// number, rows past the last position), are refused, and the block is left as it was.
Status load_block(const BlockLayout& layout, std::span<const std::uint8_t> bytes, KvBlock& block);

}  // namespace kvquant
