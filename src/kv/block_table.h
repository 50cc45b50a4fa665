// One sequence's blocks: logical block i holds positions [32 i, 32 i + 32). The table owns its
// blocks and gives them back to the allocator, which must outlive it.
#pragma once

#include <span>
#include <vector>

#include "base/types.h"
#include "kv/block_allocator.h"

namespace kipp {

class BlockTable {
 public:
  // Takes every block that `positions` positions can need, so that a running sequence never runs
  // out.
  static Result<BlockTable> reserve(BlockAllocator& allocator, int positions);

  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&& other) noexcept;
  ~BlockTable();

  int positions() const { return static_cast<int>(blocks_.size()) * kBlockPositions; }
  // The blocks that cover positions [0, positions).
  std::span<const BlockId> covering(int positions) const;

 private:
  BlockTable(BlockAllocator& allocator, std::vector<BlockId> blocks);

  BlockAllocator* allocator_;
  std::vector<BlockId> blocks_;
};

}  // namespace kipp
