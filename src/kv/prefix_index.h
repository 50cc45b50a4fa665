// Published blocks by what they hold: from a block and the tokens that follow it to the block that
// holds these. A chain of such steps from nothing is a cached prefix.
//
// A hash finds candidates and never decides: a hit has equal tokens, an equal salt and the very
// same block before it. That block was found in the same way, so all tokens from the first one on
// are equal. A hash alone would let whoever finds two prompts of one hash read another's cache.
//
// All memory is taken by the constructor. Every operation takes constant time on average. One
// thread, the engine's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"

namespace kipp {

// Requests of different salts never share blocks. 0: the common cache.
using CacheSalt = std::uint64_t;

using BlockTokens = std::span<const Token, kBlockPositions>;

// Of a block and everything before it: `before` is that of the block before, or the salt where
// there is none. Tests pass worse ones.
using PrefixHash = std::uint64_t (*)(std::uint64_t before, BlockTokens tokens);
std::uint64_t prefix_hash(std::uint64_t before, BlockTokens tokens);  // XXH3

class PrefixIndex {
 public:
  // For block ids 0 .. blocks - 1.
  explicit PrefixIndex(int blocks, PrefixHash hash = prefix_hash);

  // The block that holds `tokens` after `parent` (none: from position 0 on).
  std::optional<BlockId> find(std::optional<BlockId> parent, BlockTokens tokens,
                              CacheSalt salt) const;

  // The block must not be present, nothing equal may be, and the parent must be.
  void insert(BlockId block, std::optional<BlockId> parent, BlockTokens tokens, CacheSalt salt);
  // Only a block that is nobody's parent.
  void erase(BlockId block);

  bool contains(BlockId block) const { return entry(block).present; }
  std::optional<BlockId> parent(BlockId block) const;
  int children(BlockId block) const { return entry(block).children; }
  BlockTokens tokens(BlockId block) const { return entry(block).tokens; }
  CacheSalt salt(BlockId block) const { return entry(block).salt; }

  // Whether every block present is found by what it holds, after a parent that is present, and
  // children are counted right.
  Result<void> check() const;

 private:
  static constexpr BlockId kNone = -1;

  struct Entry {
    std::array<Token, kBlockPositions> tokens;
    std::uint64_t hash = 0;
    CacheSalt salt = 0;
    BlockId parent = kNone;
    BlockId next = kNone;  // in the same bucket
    int children = 0;
    bool present = false;
  };

  const Entry& entry(BlockId block) const { return entries_[static_cast<std::size_t>(block)]; }
  Entry& entry(BlockId block) { return entries_[static_cast<std::size_t>(block)]; }
  std::uint64_t hash_after(std::optional<BlockId> parent, BlockTokens tokens, CacheSalt salt) const;
  std::size_t bucket_of(std::uint64_t hash) const { return hash & (buckets_.size() - 1); }

  PrefixHash hash_;
  std::vector<Entry> entries_;    // [blocks]
  std::vector<BlockId> buckets_;  // a power of two of them; the first block of each
};

}  // namespace kipp
