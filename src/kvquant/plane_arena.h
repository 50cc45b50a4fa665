// Memory for the planes of one cache: taken from the system once, handed out and taken back plane
// by plane. It is not touched before it is handed out, so that what a short sequence never reaches
// costs address space alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kvquant/kv_block.h"

namespace kvquant {

class PlaneArena {
 public:
  // How many planes of each kind; a count for a plane the layout does not have is ignored.
  struct Counts {
    int planes[kSides][kPlanes] = {};
  };

  PlaneArena() = default;

  // Bytes that reserve() would take.
  static std::size_t bytes_needed(const BlockLayout& layout, const Counts& counts);
  Status reserve(const BlockLayout& layout, const Counts& counts);

  // A plane aligned to 64 bytes, or null when none of its kind is free.
  std::uint8_t* take(Side side, Plane plane);
  void give_back(Side side, Plane plane, std::uint8_t* memory);

  int free(Side side, Plane plane) const {
    return pool(side, plane).given_back + pool(side, plane).untouched;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  // Planes that came back form a list through their own first bytes and go out again first.
  struct Pool {
    std::uint8_t* first = nullptr;
    int given_back = 0;
    std::uint8_t* next = nullptr;  // of the untouched ones, which lie in a row
    int untouched = 0;
    std::size_t plane_bytes = 0;
  };
  struct FreeAligned {
    void operator()(std::uint8_t* memory) const;
  };

  Pool& pool(Side side, Plane plane) {
    return pools_[static_cast<int>(side)][static_cast<int>(plane)];
  }
  const Pool& pool(Side side, Plane plane) const {
    return pools_[static_cast<int>(side)][static_cast<int>(plane)];
  }

  std::unique_ptr<std::uint8_t[], FreeAligned> memory_;
  std::size_t bytes_ = 0;
  Pool pools_[kSides][kPlanes];
};

}  // namespace kvquant
