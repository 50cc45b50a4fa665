#include "kv/block_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace kipp {
namespace {

BlockTokens tokens_of_block(std::span<const Token> tokens, int block) {
  return tokens.subspan(static_cast<std::size_t>(block) * kBlockPositions).first<kBlockPositions>();
}

}  // namespace

std::optional<BlockTable> BlockTable::admit(BlockPool& pool, std::span<const Token> prompt,
                                            int positions, CacheSalt salt) {
  auto admission = pool.admit(prompt, positions, salt);
  if (!admission) return std::nullopt;
  BlockTable table(pool, salt, Pin::shared, admission->quota);
  table.blocks_ = std::move(admission->blocks);
  table.needed_.resize(table.blocks_.size(), 0);
  table.n_published_ = static_cast<int>(table.blocks_.size());
  table.reserved_ = admission->reserved;
  table.settle(table.n_published_);
  return table;
}

std::optional<BlockTable> BlockTable::insure(BlockPool& pool, int positions, CacheSalt salt) {
  const int blocks = blocks_for(positions);
  const int quota = pool.plan().quota(blocks);
  if (!pool.reserve(blocks, quota)) return std::nullopt;
  BlockTable table(pool, salt, Pin::insured, quota);
  table.reserved_ = blocks;
  return table;
}

BlockTable::BlockTable(BlockTable&& other) noexcept
    : pool_(other.pool_),
      salt_(other.salt_),
      how_(other.how_),
      quota_(std::exchange(other.quota_, 0)),
      blocks_(std::exchange(other.blocks_, {})),
      needed_(std::exchange(other.needed_, {})),
      query_block_(std::exchange(other.query_block_, 0)),
      has_drafts_(std::exchange(other.has_drafts_, false)),
      n_published_(std::exchange(other.n_published_, 0)),
      reserved_(std::exchange(other.reserved_, 0)) {}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  if (this == &other) return *this;
  clear();
  pool_ = other.pool_;
  salt_ = other.salt_;
  how_ = other.how_;
  quota_ = std::exchange(other.quota_, 0);
  blocks_ = std::exchange(other.blocks_, {});
  needed_ = std::exchange(other.needed_, {});
  query_block_ = std::exchange(other.query_block_, 0);
  has_drafts_ = std::exchange(other.has_drafts_, false);
  n_published_ = std::exchange(other.n_published_, 0);
  reserved_ = std::exchange(other.reserved_, 0);
  return *this;
}

BlockTable::~BlockTable() { clear(); }

void BlockTable::clear() {
  while (!blocks_.empty()) drop_last();
  pool_->give_back_reservation(std::exchange(reserved_, 0), std::exchange(quota_, 0));
  query_block_ = 0;
  has_drafts_ = false;
}

int BlockTable::capacity() const {
  return (static_cast<int>(blocks_.size()) + reserved_) * kBlockPositions;
}

void BlockTable::grow(int positions) {
  assert(!pool_->tiered());
  assert(positions >= 0 && positions <= capacity());
  const auto blocks = static_cast<std::size_t>(blocks_for(positions));
  while (blocks_.size() < blocks) take(pool_->plan().open);
}

void BlockTable::grow(int begin, int end, bool final) {
  assert(begin >= 0 && begin <= end && end <= capacity());
  assert(final || end - begin <= kBlockPositions);
  rest(begin);
  has_drafts_ = !final;
  const PlanePlan& plan = pool_->plan();
  for (int block = begin / kBlockPositions; block < blocks_for(end); ++block) {
    const bool completes = (block + 1) * kBlockPositions <= end;
    const bool whole = completes && block * kBlockPositions >= begin;
    unsigned planes = completes ? plan.needed(block + 1, block) : 0;
    if (!whole || !final) planes |= plan.open;
    if (block == size()) {
      take(static_cast<PlaneBits>(planes));
    } else {
      need(block, static_cast<PlaneBits>(planes));
    }
  }
}

void BlockTable::advance(int length) {
  assert(length >= 0 && blocks_for(length) <= size());
  if (has_drafts_ || !pool_->tiered()) {
    settle(length / kBlockPositions);
  } else {
    rest(length);
  }
}

// Between two steps, so many positions being evaluated.
void BlockTable::rest(int length) {
  while (size() > blocks_for(length)) drop_last();
  const int open = length / kBlockPositions;
  if (open < size()) {
    // If it was, or should have been, complete, its codes are not of what is there.
    need(open, pool_->plan().open);
    pool_->shed(blocks_[static_cast<std::size_t>(open)], pool_->plan().open);
  }
  settle(open);
  has_drafts_ = false;
}

BlockId BlockTable::grow_restored(int positions, PlaneBits planes) {
  assert(positions <= capacity() && size() < blocks_for(positions));
  const PlanePlan& plan = pool_->plan();
  // What the last one was stored with beyond this, it keeps as long as there is room.
  if (!blocks_.empty()) need(size() - 1, plan.at_rest(positions, size() - 1));
  assert((plan.at_rest(positions, size()) & ~planes) == 0);
  take(planes);
  return blocks_.back();
}

std::span<const BlockId> BlockTable::covering(int positions) const {
  const auto needed = static_cast<std::size_t>(blocks_for(positions));
  assert(positions >= 0 && needed <= blocks_.size());
  return std::span(blocks_).first(needed);
}

int BlockTable::kept(int positions) const {
  const int whole = std::min(positions / kBlockPositions, size());
  const int readable =
      pool_->readable(std::span(blocks_).first(static_cast<std::size_t>(whole)), {});
  if (readable < whole || !keeps_rows_of(whole)) return readable * kBlockPositions;
  return positions;
}

// Whether a part of the block can go on as an open one.
bool BlockTable::keeps_rows_of(int block) const {
  if (!pool_->tiered()) return true;
  if (block < n_published_ || block >= size()) return false;
  const PlaneBits open = pool_->plan().open;
  return (open & ~pool_->held(blocks_[static_cast<std::size_t>(block)])) == 0;
}

std::optional<BlockCopy> BlockTable::truncate(int positions) {
  assert(positions >= 0 && positions == kept(positions));
  assert(how_ == Pin::insured || positions >= published_positions());
  if (pool_->tiered()) {
    rest(positions);
    return std::nullopt;
  }
  while (size() > blocks_for(positions)) drop_last();
  if (positions >= published_positions()) return std::nullopt;

  // The last block is published and cut in two. Left first, so that in a full pool the block taken
  // instead may be the very same; whichever it is, the old content is there until it is written.
  const BlockId from = blocks_.back();
  drop_last();
  take(pool_->plan().open);
  const BlockId to = blocks_.back();
  return from == to ? std::nullopt : std::optional(BlockCopy{.from = from, .to = to});
}

void BlockTable::publish(std::span<const Token> tokens) {
  const int full = static_cast<int>(tokens.size()) / kBlockPositions;
  assert(full <= size());
  for (; n_published_ < full; ++n_published_) {
    BlockId& block = blocks_[static_cast<std::size_t>(n_published_)];
    need(n_published_, 0);
    block =
        pool_->publish(block, last_published(), tokens_of_block(tokens, n_published_), how_, salt_);
    need(n_published_, pool_->plan().needed(full, n_published_));
  }
  advance(static_cast<int>(tokens.size()));
}

// Of published `tokens`; the prompt is not empty.
BlockTable::Reusable BlockTable::reusable(std::span<const Token> tokens,
                                          std::span<const Token> prompt) const {
  const auto common = std::ranges::mismatch(tokens, prompt).in1 - tokens.begin();
  Reusable reusable;
  reusable.common = std::min(static_cast<int>(common), static_cast<int>(prompt.size()) - 1);
  reusable.whole = reusable.common / kBlockPositions;
  const auto own = std::span(blocks_).first(static_cast<std::size_t>(reusable.whole));
  reusable.found = pool_->find(
      own.empty() ? std::nullopt : std::optional(own.back()),
      prompt.subspan(static_cast<std::size_t>(reusable.whole) * kBlockPositions), salt_);
  reusable.positions = kept(reusable.common);
  const int readable = pool_->readable(own, reusable.found);
  const int used = readable * kBlockPositions > reusable.positions ? readable - reusable.whole : 0;
  if (used > 0) reusable.positions = readable * kBlockPositions;
  reusable.unreadable = static_cast<int>(reusable.found.size()) - used;
  reusable.found.resize(static_cast<std::size_t>(used));
  return reusable;
}

int BlockTable::match(std::span<const Token> tokens, std::span<const Token> prompt) {
  publish(tokens);
  return prompt.empty() ? 0 : reusable(tokens, prompt).positions;
}

BlockTable::Resumed BlockTable::resume(std::span<const Token> tokens,
                                       std::span<const Token> prompt) {
  publish(tokens);
  if (prompt.empty()) return {.positions = 0, .found = 0, .copy = truncate(0)};
  const Reusable r = reusable(tokens, prompt);
  pool_->count_shortened(static_cast<std::size_t>(r.unreadable));
  if (r.found.empty()) {
    return {.positions = r.positions, .found = 0, .copy = truncate(r.positions)};
  }

  while (size() > r.whole) drop_last();
  // In place of as many reserved blocks; an insured pin spends its block itself.
  const int n = static_cast<int>(r.found.size());
  reserved_ -= n;
  if (how_ == Pin::shared) pool_->give_back_reservation(n);
  for (const BlockId block : r.found) add_pinned(block);
  settle(n_published_);
  const int gained = r.positions - r.common;
  pool_->count_hit(static_cast<std::size_t>(gained));
  return {.positions = r.positions, .found = gained, .copy = std::nullopt};
}

std::optional<BlockTable::Fork> BlockTable::fork(std::span<const Token> tokens, int positions) {
  assert(positions >= 0 && tokens.size() <= static_cast<std::size_t>(positions));
  const int full = static_cast<int>(tokens.size()) / kBlockPositions;
  const int own = blocks_for(positions) - full;
  const int quota = pool_->plan().quota(blocks_for(positions));
  // This table's shared pins pay for the full blocks; insured pins pay for nobody else's.
  if (!pool_->reserve(how_ == Pin::shared ? own : own + full, quota)) return std::nullopt;

  publish(tokens);
  Fork fork{.table = BlockTable(*pool_, salt_, how_, quota), .copy = std::nullopt};
  fork.table.reserved_ = own;
  for (const BlockId block : std::span(blocks_).first(static_cast<std::size_t>(full))) {
    fork.table.add_pinned(block);
  }
  fork.table.settle(full);
  if (tokens.size() % kBlockPositions != 0) {
    fork.table.take(pool_->plan().open);
    fork.copy =
        BlockCopy{.from = blocks_[static_cast<std::size_t>(full)], .to = fork.table.blocks_.back()};
  }
  return fork;
}

void BlockTable::take(PlaneBits planes) {
  blocks_.push_back(pool_->take(size()));
  needed_.push_back(0);
  --reserved_;
  need(size() - 1, planes);
}

void BlockTable::need(int block, PlaneBits planes) {
  const auto i = static_cast<std::size_t>(block);
  if (needed_[i] == planes) return;
  pool_->need(blocks_[i], needed_[i], planes);
  needed_[i] = planes;
}

// For queries of this block from now on. All blocks before it are complete.
void BlockTable::settle(int query_block) {
  const PlanePlan& plan = pool_->plan();
  // Blocks before both windows are in the same band as they were.
  const int window = plan.recent_blocks + plan.mid_blocks;
  const int from = std::max(std::min(query_block, query_block_) - window, 0);
  for (int block = from; block < query_block; ++block) {
    need(block, plan.needed(query_block, block));
  }
  query_block_ = query_block;
}

void BlockTable::add_pinned(BlockId published) {
  pool_->pin(published, how_);
  blocks_.push_back(published);
  needed_.push_back(0);
  ++n_published_;
}

void BlockTable::drop_last() {
  need(size() - 1, 0);
  const BlockId block = blocks_.back();
  const bool published = n_published_ == size();
  blocks_.pop_back();
  needed_.pop_back();
  if (published) {
    --n_published_;
    pool_->unpin(block, how_);
    if (how_ == Pin::shared) return;
  } else {
    pool_->give_back(block);
  }
  ++reserved_;
}

std::optional<BlockId> BlockTable::last_published() const {
  if (n_published_ == 0) return std::nullopt;
  return blocks_[static_cast<std::size_t>(n_published_) - 1];
}

}  // namespace kipp
