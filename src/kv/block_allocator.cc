#include "kv/block_allocator.h"

#include <cassert>

namespace kipp {

BlockAllocator::BlockAllocator(int blocks) : used_(static_cast<std::size_t>(blocks), false) {
  free_.reserve(static_cast<std::size_t>(blocks));
  for (BlockId id = blocks - 1; id >= 0; --id) free_.push_back(id);
}

std::optional<std::vector<BlockId>> BlockAllocator::take(int n) {
  assert(n >= 0);
  if (n > available()) return std::nullopt;
  std::vector<BlockId> taken;
  taken.reserve(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    taken.push_back(free_.back());
    free_.pop_back();
    used_[static_cast<std::size_t>(taken.back())] = true;
  }
  return taken;
}

void BlockAllocator::give_back(std::span<const BlockId> blocks) {
  for (const BlockId id : blocks) {
    assert(id >= 0 && id < total() && used_[static_cast<std::size_t>(id)]);
    used_[static_cast<std::size_t>(id)] = false;
    free_.push_back(id);
  }
}

}  // namespace kipp
