// A block whose planes the test owns, for working with a backend without a cache.
#pragma once

#include <cstring>
#include <vector>

#include "kvquant/kv_block.h"

namespace kvquant::test {

constexpr Side kBothSides[] = {Side::key, Side::value};
constexpr Plane kEveryPlane[] = {Plane::hi2, Plane::mid2, Plane::low4, Plane::bf16};

class OwnedBlock {
 public:
  // With exactly these planes, filled with a byte that is no zero.
  OwnedBlock(const BlockLayout& layout, PlaneSet key, PlaneSet value)
      : memory_(layout.bytes(Side::key, key) + layout.bytes(Side::value, value), 0xa5) {
    std::size_t at = 0;
    for (const Side side : kBothSides) {
      const PlaneSet planes = side == Side::key ? key : value;
      for (const Plane plane : kEveryPlane) {
        if (!planes.has(plane)) continue;
        block_.plane(side, plane) = memory_.data() + at;
        at += layout.plane(side, plane).bytes;
      }
    }
  }
  // With every plane that the layout has.
  explicit OwnedBlock(const BlockLayout& layout)
      : OwnedBlock(layout, layout.planes(Side::key), layout.planes(Side::value)) {}

  OwnedBlock(const OwnedBlock&) = delete;
  OwnedBlock& operator=(const OwnedBlock&) = delete;

  KvBlock& block() { return block_; }

 private:
  std::vector<std::uint8_t> memory_;
  KvBlock block_;
};

}  // namespace kvquant::test
