// Which physical blocks of the cache are free. Numbers only: the bytes are the backend's.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/types.h"

namespace kipp {

class BlockAllocator {
 public:
  // Blocks 0 .. blocks - 1, all free.
  explicit BlockAllocator(int blocks);

  int total() const { return static_cast<int>(used_.size()); }
  int available() const { return static_cast<int>(free_.size()); }

  // n blocks, or nothing when fewer are free: a caller never holds half of what it needs.
  std::optional<std::vector<BlockId>> take(int n);
  // Every block must have been taken; giving one back twice is a programmer's error.
  void give_back(std::span<const BlockId> blocks);

 private:
  std::vector<BlockId> free_;  // taken from the end; the block given back last is reused first
  std::vector<bool> used_;     // [blocks]
};

}  // namespace kipp
