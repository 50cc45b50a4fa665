#include "kv/block_pool.h"

#include <algorithm>
#include <cassert>

namespace kipp {

namespace {

// One plane of one unit, which every block holds as long as somebody uses it.
PlanePlan whole_blocks(int blocks) {
  PlanePlan plan;
  plan.total_units = blocks;
  return plan;
}

}  // namespace

BlockPool::BlockPool(int blocks, PrefixHash hash)
    : BlockPool(blocks, whole_blocks(blocks), false, hash) {}

BlockPool::BlockPool(int blocks, const PlanePlan& plan, PrefixHash hash)
    : BlockPool(blocks, plan, true, hash) {}

BlockPool::BlockPool(int blocks, const PlanePlan& plan, bool tiered, PrefixHash hash)
    : tiered_(tiered),
      ledger_(plan, blocks, tiered),
      blocks_(static_cast<std::size_t>(blocks)),
      index_(blocks, hash) {
  free_.reserve(blocks_.size());
  for (BlockId id = blocks - 1; id >= 0; --id) free_.push_back(id);
}

int BlockPool::spare_blocks() const {
  return static_cast<int>(free_.size()) + n_evictable_ - reserved_;
}

int BlockPool::spare_units() const { return plan().total_units - committed_units(); }

int BlockPool::committed_units() const {
  const int promised = total() - spare_blocks();  // or in use
  return quotas_ + plan().step_units() + promised * plan().base_units();
}

int BlockPool::available() const {
  return std::min(spare_blocks(), spare_units() / plan().base_units());
}

bool BlockPool::fits(int blocks, int quota) const {
  return blocks <= spare_blocks() &&
         std::int64_t{blocks} * plan().base_units() + quota <= spare_units();
}

int BlockPool::max_positions() const {
  const int units = plan().total_units - plan().step_units();
  int blocks = std::clamp(units / plan().base_units(), 0, total());
  while (blocks > 0 && plan().quota(blocks) > units - blocks * plan().base_units()) --blocks;
  return blocks * kBlockPositions;
}

std::optional<Admission> BlockPool::admit(std::span<const Token> prompt, int positions,
                                          CacheSalt salt) {
  assert(positions >= 0 && prompt.size() <= static_cast<std::size_t>(positions));
  Admission admission{.blocks = find(std::nullopt, prompt, salt)};
  const auto found = admission.blocks.size();
  admission.blocks.resize(static_cast<std::size_t>(readable(admission.blocks, {})));
  admission.reserved = blocks_for(positions) - static_cast<int>(admission.blocks.size());
  admission.quota = plan().quota(blocks_for(positions));
  // Found blocks that other shared pins pay for cost nothing; the others cost what is available.
  const auto unpaid = std::ranges::count_if(admission.blocks, [this](BlockId id) {
    return at(id).pins[static_cast<std::size_t>(Pin::shared)] == 0;
  });
  if (!fits(admission.reserved + static_cast<int>(unpaid), admission.quota)) return std::nullopt;

  for (const BlockId id : admission.blocks) pin(id, Pin::shared);
  reserved_ += admission.reserved;
  quotas_ += admission.quota;
  if (!prompt.empty()) count_lookup(prompt.size());
  count_shortened(found - admission.blocks.size());
  count_hit(admission.blocks.size() * kBlockPositions);
  return admission;
}

bool BlockPool::reserve(int blocks, int quota) {
  assert(blocks >= 0 && quota >= 0);
  if (!fits(blocks, quota)) return false;
  reserved_ += blocks;
  quotas_ += quota;
  return true;
}

void BlockPool::give_back_reservation(int blocks, int quota) {
  assert(blocks >= 0 && blocks <= reserved_ && quota >= 0 && quota <= quotas_);
  reserved_ -= blocks;
  quotas_ -= quota;
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

int BlockPool::readable(std::span<const BlockId> first, std::span<const BlockId> then) const {
  const PlanePlan& p = plan();
  // The first block after all so far from which they can be read, and the last one that is such.
  int from = 0;
  int readable = 0;
  int block = 0;
  for (const auto part : {first, then}) {
    for (const BlockId id : part) {
      const auto holds = [&](int distance) {
        return (p.needed(block + distance, block) & ~held(id)) == 0;
      };
      const int nearest = holds(1)                     ? 1
                          : holds(p.recent_blocks + 1) ? p.recent_blocks + 1
                                                       : p.recent_blocks + p.mid_blocks + 1;
      from = std::max(from, block + nearest);
      ++block;
      if (from <= block) readable = block;
    }
  }
  return readable;
}

BlockId BlockPool::take(int index) {
  assert(reserved_ > 0 && reserved_ <= static_cast<int>(free_.size()) + n_evictable_);
  --reserved_;
  if (free_.empty()) evict();
  const BlockId id = free_.back();
  free_.pop_back();
  at(id).state = State::owned;
  ++n_private_;
  ledger_.set_base(id, plan().base(index));
  if (!tiered_) ledger_.add(id, plan().open);
  return id;
}

void BlockPool::need(BlockId block, PlaneBits before, PlaneBits after) {
  const auto more = static_cast<PlaneBits>(after & ~before);
  const auto missing = static_cast<PlaneBits>(more & ~held(block));
  // What is there and idle first, so that making room does not take it.
  ledger_.pin(block, static_cast<PlaneBits>(more & ~missing));
  if (missing != 0) {
    assert(at(block).state == State::owned);
    make_room(plan().units_of(missing));
    ledger_.add(block, missing);
    ledger_.pin(block, missing);
  }
  ledger_.unpin(block, static_cast<PlaneBits>(before & ~after));
}

void BlockPool::shed(BlockId block, PlaneBits all_but) {
  assert(at(block).state == State::owned);
  ledger_.drop(block, static_cast<PlaneBits>(~all_but));
}

void BlockPool::make_room(int units) {
  while (ledger_.free_units() < units) {
    const std::uint64_t evictable = oldest_ == kNone ? kNever : at(oldest_).since;
    const std::uint64_t idle = ledger_.oldest_idle();
    assert(evictable != kNever || idle != kNever);
    if (evictable == kNever && idle == kNever) return;  // the backend refuses such a step
    if (idle < evictable) {
      ledger_.drop_oldest();
    } else {
      evict();
    }
  }
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
    ledger_.move(block, *equal, static_cast<PlaneBits>(held(block) & ~held(*equal)));
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

void BlockPool::count_shortened(std::size_t blocks) {
  counters_.shortened_hits += blocks > 0 ? 1 : 0;
  counters_.shortened_tokens += blocks * kBlockPositions;
}

std::vector<BlockId> BlockPool::published() const {
  std::vector<BlockId> blocks;
  for (BlockId id = 0; id < total(); ++id) {
    if (at(id).pinned()) blocks.push_back(id);
  }
  for (BlockId id = newest_; id != kNone; id = at(id).older) blocks.push_back(id);
  return blocks;
}

PoolStats BlockPool::stats() const {
  PoolStats stats = counters_;
  stats.total = total();
  stats.free = static_cast<int>(free_.size());
  stats.private_blocks = n_private_;
  stats.evictable = n_evictable_;
  stats.pinned = stats.total - stats.free - stats.private_blocks - stats.evictable;
  stats.reserved = reserved_;
  if (!tiered_) return stats;
  stats.total_units = plan().total_units;
  stats.free_units = ledger_.free_units();
  stats.idle_units = ledger_.idle_units() + evictable_base_units_;
  stats.used_units = stats.total_units - stats.free_units - stats.idle_units;
  stats.promised_units = committed_units() - stats.used_units;
  stats.plane_holders = ledger_.holders();
  stats.demotions = ledger_.demotions();
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
  ledger_.release(block);
  at(block).state = State::free;
  free_.push_back(block);
  --n_private_;
}

void BlockPool::evict() {
  const BlockId id = oldest_;
  assert(id != kNone);
  remove_evictable(id);
  index_.erase(id);
  ledger_.release(id);
  at(id).state = State::free;
  free_.push_back(id);
  ++counters_.evictions;
}

void BlockPool::append_evictable(BlockId block) {
  Block& b = at(block);
  b.older = newest_;
  b.newer = kNone;
  (newest_ == kNone ? oldest_ : at(newest_).newer) = block;
  newest_ = block;
  b.since = ledger_.tick();
  ++n_evictable_;
  evictable_base_units_ += plan().units_of(ledger_.base(block));
}

void BlockPool::remove_evictable(BlockId block) {
  const Block& b = at(block);
  (b.older == kNone ? oldest_ : at(b.older).newer) = b.newer;
  (b.newer == kNone ? newest_ : at(b.newer).older) = b.older;
  --n_evictable_;
  evictable_base_units_ -= plan().units_of(ledger_.base(block));
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
  KIPP_TRY(check_lists());
  return check_planes();
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
  if (reserved_ < promised || spare_blocks() < 0) {
    return fail(ErrorCode::invalid,
                "block pool: {} blocks are reserved; expected at least the {} of insured pins and "
                "at most {} free and {} evictable ones",
                reserved_, promised, free_.size(), n_evictable_);
  }
  return {};
}

Result<void> BlockPool::check_planes() const {
  KIPP_TRY(ledger_.check());
  int evictable_units = 0;
  for (BlockId id = 0; id < total(); ++id) {
    const Block& b = at(id);
    const int missing = plan().units_of(static_cast<PlaneBits>(ledger_.base(id) & ~held(id)));
    if (b.state == State::free ? held(id) != 0 : b.state == State::published && missing > 0) {
      return fail(ErrorCode::invalid, "block pool: block {} is {} and holds planes {:#x}", id,
                  name(b.state), held(id));
    }
    if (b.state != State::published || b.pinned()) continue;
    evictable_units += plan().units_of(ledger_.base(id));
    for (int plane = 0; plane < kMaxPlanes; ++plane) {
      if (readers(id, plane) == 0) continue;
      return fail(ErrorCode::invalid, "block pool: plane {} of block {}, in no use, has {} readers",
                  plane, id, readers(id, plane));
    }
  }
  const int idle = ledger_.idle_units() + evictable_units;
  const int used = plan().total_units - ledger_.free_units() - idle;
  if (evictable_units != evictable_base_units_ || used > committed_units() || spare_units() < 0) {
    return fail(ErrorCode::invalid,
                "block pool: {} units of evictable blocks, {} counted; {} units in use, {} "
                "committed of {}",
                evictable_units, evictable_base_units_, used, committed_units(),
                plan().total_units);
  }
  return {};
}

}  // namespace kipp
