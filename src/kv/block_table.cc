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
  BlockTable table(pool, salt, Pin::shared);
  table.blocks_ = std::move(admission->blocks);
  table.n_published_ = static_cast<int>(table.blocks_.size());
  table.reserved_ = admission->reserved;
  return table;
}

std::optional<BlockTable> BlockTable::insure(BlockPool& pool, int positions, CacheSalt salt) {
  const int blocks = blocks_for(positions);
  if (!pool.reserve(blocks)) return std::nullopt;
  BlockTable table(pool, salt, Pin::insured);
  table.reserved_ = blocks;
  return table;
}

BlockTable::BlockTable(BlockTable&& other) noexcept
    : pool_(other.pool_),
      salt_(other.salt_),
      how_(other.how_),
      blocks_(std::exchange(other.blocks_, {})),
      n_published_(std::exchange(other.n_published_, 0)),
      reserved_(std::exchange(other.reserved_, 0)) {}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  if (this == &other) return *this;
  clear();
  pool_ = other.pool_;
  salt_ = other.salt_;
  how_ = other.how_;
  blocks_ = std::exchange(other.blocks_, {});
  n_published_ = std::exchange(other.n_published_, 0);
  reserved_ = std::exchange(other.reserved_, 0);
  return *this;
}

BlockTable::~BlockTable() { clear(); }

void BlockTable::clear() {
  while (!blocks_.empty()) drop_last();
  pool_->give_back_reservation(std::exchange(reserved_, 0));
}

int BlockTable::capacity() const {
  return (static_cast<int>(blocks_.size()) + reserved_) * kBlockPositions;
}

void BlockTable::grow(int positions) {
  assert(positions >= 0 && positions <= capacity());
  const auto needed = static_cast<std::size_t>(blocks_for(positions));
  while (blocks_.size() < needed) {
    blocks_.push_back(pool_->take());
    --reserved_;
  }
}

std::span<const BlockId> BlockTable::covering(int positions) const {
  const auto needed = static_cast<std::size_t>(blocks_for(positions));
  assert(positions >= 0 && needed <= blocks_.size());
  return std::span(blocks_).first(needed);
}

std::optional<BlockCopy> BlockTable::truncate(int positions) {
  assert(positions >= 0);
  assert(how_ == Pin::insured || positions >= published_positions());
  const auto kept = static_cast<std::size_t>(blocks_for(positions));
  while (blocks_.size() > kept) drop_last();
  if (positions >= published_positions()) return std::nullopt;

  // The last block is published and cut in two. Left first, so that in a full pool the block taken
  // instead may be the very same; whichever it is, the old content is there until it is written.
  const BlockId from = blocks_.back();
  drop_last();
  grow(positions);
  const BlockId to = blocks_.back();
  return from == to ? std::nullopt : std::optional(BlockCopy{.from = from, .to = to});
}

void BlockTable::publish(std::span<const Token> tokens) {
  const int full = static_cast<int>(tokens.size()) / kBlockPositions;
  assert(full <= static_cast<int>(blocks_.size()));
  while (n_published_ < full) {
    BlockId& block = blocks_[static_cast<std::size_t>(n_published_)];
    block =
        pool_->publish(block, last_published(), tokens_of_block(tokens, n_published_), how_, salt_);
    ++n_published_;
  }
}

// Of published `tokens`; the prompt is not empty.
BlockTable::Reusable BlockTable::reusable(std::span<const Token> tokens,
                                          std::span<const Token> prompt) const {
  const auto common = std::ranges::mismatch(tokens, prompt).in1 - tokens.begin();
  const int kept = std::min(static_cast<int>(common), static_cast<int>(prompt.size()) - 1);
  const int whole = kept / kBlockPositions;
  const auto after =
      whole == 0 ? std::nullopt : std::optional(blocks_[static_cast<std::size_t>(whole) - 1]);
  return {.kept = kept,
          .whole = whole,
          .found = pool_->find(
              after, prompt.subspan(static_cast<std::size_t>(whole) * kBlockPositions), salt_)};
}

int BlockTable::match(std::span<const Token> tokens, std::span<const Token> prompt) {
  publish(tokens);
  if (prompt.empty()) return 0;
  const auto [kept, whole, found] = reusable(tokens, prompt);
  return std::max(kept, (whole + static_cast<int>(found.size())) * kBlockPositions);
}

BlockTable::Resumed BlockTable::resume(std::span<const Token> tokens,
                                       std::span<const Token> prompt) {
  publish(tokens);
  if (prompt.empty()) return {.positions = 0, .found = 0, .copy = truncate(0)};
  const auto [kept, whole, found] = reusable(tokens, prompt);
  if (found.empty()) return {.positions = kept, .found = 0, .copy = truncate(kept)};

  truncate(whole * kBlockPositions);
  // In place of as many reserved blocks; an insured pin spends its block itself.
  const int n = static_cast<int>(found.size());
  reserved_ -= n;
  if (how_ == Pin::shared) pool_->give_back_reservation(n);
  for (const BlockId block : found) add_pinned(block);
  const int gained = published_positions() - kept;
  pool_->count_hit(static_cast<std::size_t>(gained));
  return {.positions = published_positions(), .found = gained, .copy = std::nullopt};
}

std::optional<BlockTable::Fork> BlockTable::fork(std::span<const Token> tokens, int positions) {
  assert(positions >= 0 && tokens.size() <= static_cast<std::size_t>(positions));
  const int full = static_cast<int>(tokens.size()) / kBlockPositions;
  const int own = blocks_for(positions) - full;
  // This table's shared pins pay for the full blocks; insured pins pay for nobody else's.
  if (!pool_->reserve(how_ == Pin::shared ? own : own + full)) return std::nullopt;

  publish(tokens);
  Fork fork{.table = BlockTable(*pool_, salt_, how_), .copy = std::nullopt};
  fork.table.reserved_ = own;
  for (const BlockId block : std::span(blocks_).first(static_cast<std::size_t>(full))) {
    fork.table.add_pinned(block);
  }
  if (tokens.size() % kBlockPositions != 0) {
    fork.table.grow(static_cast<int>(tokens.size()));
    fork.copy =
        BlockCopy{.from = blocks_[static_cast<std::size_t>(full)], .to = fork.table.blocks_.back()};
  }
  return fork;
}

void BlockTable::add_pinned(BlockId published) {
  pool_->pin(published, how_);
  blocks_.push_back(published);
  ++n_published_;
}

void BlockTable::drop_last() {
  const BlockId block = blocks_.back();
  const bool published = n_published_ == static_cast<int>(blocks_.size());
  blocks_.pop_back();
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
