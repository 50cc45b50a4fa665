#include "kv/prefix_index.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cassert>

namespace kipp {

std::uint64_t prefix_hash(std::uint64_t before, BlockTokens tokens) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), before);
}

PrefixIndex::PrefixIndex(int blocks, PrefixHash hash)
    : hash_(hash),
      entries_(static_cast<std::size_t>(blocks)),
      buckets_(std::bit_ceil(std::max<std::size_t>(entries_.size(), 1)), kNone) {}

std::uint64_t PrefixIndex::hash_after(std::optional<BlockId> parent, BlockTokens tokens,
                                      CacheSalt salt) const {
  return hash_(parent ? entry(*parent).hash : salt, tokens);
}

std::optional<BlockId> PrefixIndex::find(std::optional<BlockId> parent, BlockTokens tokens,
                                         CacheSalt salt) const {
  assert(!parent || contains(*parent));
  const std::uint64_t hash = hash_after(parent, tokens, salt);
  for (BlockId id = buckets_[bucket_of(hash)]; id != kNone; id = entry(id).next) {
    const Entry& e = entry(id);
    if (e.hash == hash && e.parent == parent.value_or(kNone) && e.salt == salt &&
        std::ranges::equal(e.tokens, tokens)) {
      return id;
    }
  }
  return std::nullopt;
}

void PrefixIndex::insert(BlockId block, std::optional<BlockId> parent, BlockTokens tokens,
                         CacheSalt salt) {
  assert(!contains(block) && !find(parent, tokens, salt));
  Entry& e = entry(block);
  std::ranges::copy(tokens, e.tokens.begin());
  e.hash = hash_after(parent, tokens, salt);
  e.salt = salt;
  e.parent = parent.value_or(kNone);
  e.children = 0;
  e.present = true;
  if (parent) ++entry(*parent).children;
  BlockId& first = buckets_[bucket_of(e.hash)];
  e.next = first;
  first = block;
}

void PrefixIndex::erase(BlockId block) {
  Entry& e = entry(block);
  assert(e.present && e.children == 0);
  BlockId* link = &buckets_[bucket_of(e.hash)];
  while (*link != block) link = &entry(*link).next;
  *link = e.next;
  if (e.parent != kNone) --entry(e.parent).children;
  e.present = false;
}

std::optional<BlockId> PrefixIndex::parent(BlockId block) const {
  const BlockId id = entry(block).parent;
  return id == kNone ? std::nullopt : std::optional(id);
}

Result<void> PrefixIndex::check() const {
  std::vector<int> children(entries_.size(), 0);
  std::size_t present = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto id = static_cast<BlockId>(i);
    const Entry& e = entries_[i];
    if (!e.present) continue;
    ++present;
    if (e.parent != kNone) {
      if (!contains(e.parent)) {
        return fail(ErrorCode::invalid, "prefix index: block {} follows {}, which is not there", id,
                    e.parent);
      }
      ++children[static_cast<std::size_t>(e.parent)];
    }
    if (find(parent(id), e.tokens, e.salt) != id) {
      return fail(ErrorCode::invalid, "prefix index: block {} is not found by what it holds", id);
    }
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].present && entries_[i].children != children[i]) {
      return fail(ErrorCode::invalid, "prefix index: block {} counts {} children and has {}", i,
                  entries_[i].children, children[i]);
    }
  }
  std::size_t linked = 0;
  for (BlockId id : buckets_) {
    for (; id != kNone && linked <= present; id = entry(id).next) ++linked;
  }
  if (linked != present) {
    return fail(ErrorCode::invalid, "prefix index: {} blocks are present, {} or more are linked",
                present, linked);
  }
  return {};
}

}  // namespace kipp
