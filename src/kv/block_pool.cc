#include "kv/block_pool.h"

#include <algorithm>
#include <cassert>

namespace kipp {

BlockPool::BlockPool(int blocks, PrefixHash hash)
    : blocks_(static_cast<std::size_t>(blocks)), index_(blocks, hash) {
  free_.reserve(blocks_.size());
  for (BlockId id = blocks - 1; id >= 0; --id) free_.push_back(id);
}

int BlockPool::available() const {
  return static_cast<int>(free_.size()) + n_evictable_ - reserved_;
}

std::optional<Admission> BlockPool::admit(std::span<const Token> prompt, int positions,
                                          CacheSalt salt) {
  assert(positions >= 0 && prompt.size() <= static_cast<std::size_t>(positions));
  Admission admission{.blocks = find(std::nullopt, prompt, salt)};
  admission.reserved = blocks_for(positions) - static_cast<int>(admission.blocks.size());
  // Found blocks that other shared pins pay for cost nothing; the others cost what is available.
  const auto unpaid = std::ranges::count_if(admission.blocks, [this](BlockId id) {
    return at(id).pins[static_cast<std::size_t>(Pin::shared)] == 0;
  });
  if (admission.reserved > available() - static_cast<int>(unpaid)) return std::nullopt;

  for (const BlockId id : admission.blocks) pin(id, Pin::shared);
  reserved_ += admission.reserved;
  if (!prompt.empty()) count_lookup(prompt.size());
  count_hit(admission.blocks.size() * kBlockPositions);
  return admission;
}

bool BlockPool::reserve(int blocks) {
  assert(blocks >= 0);
  if (blocks > available()) return false;
  reserved_ += blocks;
  return true;
}

void BlockPool::give_back_reservation(int blocks) {
  assert(blocks >= 0 && blocks <= reserved_);
  reserved_ -= blocks;
}

std::vector<BlockId> BlockPool::find(std::optional<BlockId> parent, std::span<const Token> tokens,
                                     CacheSalt salt) const {
  std::vector<BlockId> found;
  while (tokens.size() > kBlockPositions) {
    const auto block = index_.find(parent, tokens.first<kBlockPositions>(), salt);
    if (!block) break;
    found.push_back(*block);
    parent = block;
    tokens = tokens.subspan(kBlockPositions);
  }
  return found;
}

BlockId BlockPool::take() {
  assert(reserved_ > 0 && reserved_ <= static_cast<int>(free_.size()) + n_evictable_);
  --reserved_;
  BlockId id;
  if (free_.empty()) {
    id = evict();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  at(id).state = State::owned;
  ++n_private_;
  return id;
}

void BlockPool::give_back(BlockId block) {
  release(block);
  ++reserved_;
}

BlockId BlockPool::publish(BlockId block, std::optional<BlockId> parent, BlockTokens tokens,
                           Pin how, CacheSalt salt) {
  assert(at(block).state == State::owned);
  assert(!parent || at(*parent).pinned());
  if (const auto equal = index_.find(parent, tokens, salt)) {
    release(block);
    if (how == Pin::insured) ++reserved_;  // which the pin spends
    pin(*equal, how);
    ++counters_.deduplicated;
    return *equal;
  }
  index_.insert(block, parent, tokens, salt);
  Block& b = at(block);
  b.state = State::published;
  b.pins[static_cast<std::size_t>(how)] = 1;
  --n_private_;
  ++counters_.published;
  return block;
}

void BlockPool::pin(BlockId published, Pin how) {
  assert(!index_.parent(published) || at(*index_.parent(published)).pinned());
  if (!at(published).pinned()) remove_evictable(published);
  change_pins(published, how, 1);
}

void BlockPool::unpin(BlockId published, Pin how) {
  change_pins(published, how, -1);
  if (!at(published).pinned()) append_evictable(published);
}

void BlockPool::count_lookup(std::size_t tokens) {
  ++counters_.lookups;
  counters_.lookup_tokens += tokens;
}

PoolStats BlockPool::stats() const {
  PoolStats stats = counters_;
  stats.total = total();
  stats.free = static_cast<int>(free_.size());
  stats.private_blocks = n_private_;
  stats.evictable = n_evictable_;
  stats.pinned = stats.total - stats.free - stats.private_blocks - stats.evictable;
  stats.reserved = reserved_;
  return stats;
}

void BlockPool::change_pins(BlockId block, Pin how, int by) {
  Block& b = at(block);
  assert(b.state == State::published);
  const bool was_insured = b.insured();
  b.pins[static_cast<std::size_t>(how)] += by;
  assert(b.pins[static_cast<std::size_t>(how)] >= 0);
  // While the block's memory is charged to one of its insured pins, that pin's block is in use
  // and no longer promised.
  reserved_ += int{was_insured} - int{b.insured()};
  assert(reserved_ >= 0);
}

void BlockPool::release(BlockId block) {
  assert(at(block).state == State::owned);
  at(block).state = State::free;
  free_.push_back(block);
  --n_private_;
}

BlockId BlockPool::evict() {
  const BlockId id = oldest_;
  assert(id != kNone);
  remove_evictable(id);
  index_.erase(id);
  ++counters_.evictions;
  return id;
}

void BlockPool::append_evictable(BlockId block) {
  Block& b = at(block);
  b.older = newest_;
  b.newer = kNone;
  (newest_ == kNone ? oldest_ : at(newest_).newer) = block;
  newest_ = block;
  ++n_evictable_;
}

void BlockPool::remove_evictable(BlockId block) {
  const Block& b = at(block);
  (b.older == kNone ? oldest_ : at(b.older).newer) = b.newer;
  (b.newer == kNone ? newest_ : at(b.newer).older) = b.older;
  --n_evictable_;
}

const char* BlockPool::name(State state) {
  switch (state) {
    case State::free:
      return "free";
    case State::owned:
      return "private";
    case State::published:
      break;
  }
  return "published";
}

Result<void> BlockPool::check() const {
  KIPP_TRY(index_.check());
  for (BlockId id = 0; id < total(); ++id) KIPP_TRY(check_block(id));
  return check_lists();
}

Result<void> BlockPool::check_block(BlockId block) const {
  const Block& b = at(block);
  const auto [shared, insured] = b.pins;
  if (shared < 0 || insured < 0 || (b.pinned() && b.state != State::published)) {
    return fail(ErrorCode::invalid, "block pool: block {} is {} and has {} and {} pins", block,
                name(b.state), shared, insured);
  }
  if (index_.contains(block) != (b.state == State::published)) {
    return fail(ErrorCode::invalid, "block pool: block {} is {} and {}in the index", block,
                name(b.state), index_.contains(block) ? "" : "not ");
  }
  const auto parent = b.state == State::published ? index_.parent(block) : std::nullopt;
  if (b.pinned() && parent && !at(*parent).pinned()) {
    return fail(ErrorCode::invalid, "block pool: block {} is pinned and its parent {} is not",
                block, *parent);
  }
  return {};
}

Result<void> BlockPool::check_lists() const {
  std::vector<bool> listed(blocks_.size(), false);
  int n_private = 0;
  int promised = 0;  // to insured pins, while other pins pay for their blocks
  for (const Block& b : blocks_) {
    n_private += int{b.state == State::owned};
    promised += b.pins[static_cast<std::size_t>(Pin::insured)] - int{b.insured()};
  }
  for (const BlockId id : free_) {
    if (at(id).state != State::free || listed[static_cast<std::size_t>(id)]) {
      return fail(ErrorCode::invalid,
                  "block pool: block {} is {} and in the free list, or there twice", id,
                  name(at(id).state));
    }
    listed[static_cast<std::size_t>(id)] = true;
  }
  int n_evictable = 0;
  std::vector<int> evicted_children(blocks_.size(), 0);
  BlockId before = kNone;
  for (BlockId id = oldest_; id != kNone; before = id, id = at(id).newer, ++n_evictable) {
    if (at(id).state != State::published || at(id).pinned() || at(id).older != before ||
        listed[static_cast<std::size_t>(id)]) {
      return fail(ErrorCode::invalid, "block pool: block {} is {} and wrongly among the evictable",
                  id, name(at(id).state));
    }
    listed[static_cast<std::size_t>(id)] = true;
    if (evicted_children[static_cast<std::size_t>(id)] != index_.children(id)) {
      return fail(ErrorCode::invalid,
                  "block pool: block {} would be evicted before what continues it", id);
    }
    if (const auto parent = index_.parent(id)) {
      ++evicted_children[static_cast<std::size_t>(*parent)];
    }
  }
  if (before != newest_ || n_evictable != n_evictable_ || n_private != n_private_) {
    return fail(ErrorCode::invalid,
                "block pool: {} evictable and {} private blocks are counted, {} and {} are there",
                n_evictable_, n_private_, n_evictable, n_private);
  }
  for (BlockId id = 0; id < total(); ++id) {
    const Block& b = at(id);
    const bool held = b.state == State::owned || b.pinned();
    if (held == listed[static_cast<std::size_t>(id)]) {
      return fail(ErrorCode::invalid, "block pool: block {} is {}, {} list", id, name(b.state),
                  held ? "in use and in a" : "unused and in no");
    }
  }
  if (reserved_ < promised || available() < 0) {
    return fail(ErrorCode::invalid,
                "block pool: {} blocks are reserved; expected at least the {} of insured pins and "
                "at most {} free and {} evictable ones",
                reserved_, promised, free_.size(), n_evictable_);
  }
  return {};
}

}  // namespace kipp
