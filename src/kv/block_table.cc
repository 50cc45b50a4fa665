#include "kv/block_table.h"

#include <cassert>
#include <utility>

namespace kipp {

Result<BlockTable> BlockTable::reserve(BlockAllocator& allocator, int positions) {
  const int needed = blocks_for(positions);
  auto taken = allocator.take(needed);
  if (!taken) {
    return fail(ErrorCode::exhausted,
                "KV cache: {} positions need {} blocks, {} of {} blocks are free", positions,
                needed, allocator.available(), allocator.total());
  }
  return BlockTable(allocator, *std::move(taken));
}

BlockTable::BlockTable(BlockAllocator& allocator, std::vector<BlockId> blocks)
    : allocator_(&allocator), blocks_(std::move(blocks)) {}

BlockTable::BlockTable(BlockTable&& other) noexcept
    : allocator_(other.allocator_), blocks_(std::exchange(other.blocks_, {})) {}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  std::swap(allocator_, other.allocator_);
  std::swap(blocks_, other.blocks_);
  return *this;
}

BlockTable::~BlockTable() { allocator_->give_back(blocks_); }

std::span<const BlockId> BlockTable::covering(int positions) const {
  assert(positions >= 0 && positions <= this->positions());
  return std::span(blocks_).first(static_cast<std::size_t>(blocks_for(positions)));
}

}  // namespace kipp
