// Sequences over a block pool with no cleverness at all, run beside the real ones: what is
// published is a set of token strings, everything else is counted anew from the sequences each time
// it is needed. Every move is predicted and compared. Beside it stands a memory whose every
// position holds a hash of all the tokens that led there, so that a wrong block, a stale one or a
// missed copy shows as soon as somebody looks.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "kv/block_table.h"
#include "support/prefixes.h"

namespace kipp::test {

class NaiveCache {
 public:
  using Tokens = std::vector<Token>;

  struct Sequence {
    BlockTable table;
    Pin how;
    CacheSalt salt;
    int blocks;           // promised for ever
    Tokens tokens = {};   // evaluated
    int n_published = 0;  // of its blocks
    int n_private = 0;

    int length() const { return static_cast<int>(tokens.size()); }
    int left() const { return blocks - n_published - n_private; }
  };

  NaiveCache(int total, PrefixHash hash)
      : pool_(total, hash), memory_(static_cast<std::size_t>(total)) {}

  std::size_t size() const { return sequences_.size(); }
  const Sequence& at(std::size_t i) const { return sequences_[i]; }

  // --- moves ---

  void admit(const Tokens& prompt, int positions, CacheSalt salt) {
    const int found = longest(prompt, salt);
    const int paid = count_paid(prompt, found, salt);
    const bool fits = blocks_for(positions) - paid <= available();
    const auto before = pool_.stats();
    auto table = BlockTable::admit(pool_, prompt, positions, salt);
    RC_ASSERT(table.has_value() == fits);
    const auto after = pool_.stats();
    RC_ASSERT(after.lookups - before.lookups == (fits && !prompt.empty() ? 1 : 0));
    if (!fits) return;
    RC_ASSERT(after.lookup_tokens - before.lookup_tokens == prompt.size());
    RC_ASSERT(after.hit_tokens - before.hit_tokens ==
              static_cast<std::size_t>(found * kBlockPositions));
    add({*std::move(table), Pin::shared, salt, blocks_for(positions)}, prompt, found);
  }

  void insure(int positions, CacheSalt salt) {
    const bool fits = blocks_for(positions) <= available();
    auto table = BlockTable::insure(pool_, positions, salt);
    RC_ASSERT(table.has_value() == fits);
    if (fits) add({*std::move(table), Pin::insured, salt, blocks_for(positions)}, {}, 0);
  }

  // Evaluates more tokens.
  void write(std::size_t i, const Tokens& more) {
    Sequence& s = sequences_[i];
    const int begin = s.length();
    s.tokens.insert(s.tokens.end(), more.begin(), more.end());
    take_until(s, blocks_for(s.length()));
    s.table.grow(s.length());
    const auto blocks = s.table.covering(s.length());
    std::uint64_t history = history_of(s, begin);
    for (int pos = begin; pos < s.length(); ++pos) {
      history = next(history, s.tokens[static_cast<std::size_t>(pos)]);
      slot(blocks, pos) = history;
    }
  }

  // Blocks for tokens that are drawn or drafted next.
  void grow(std::size_t i, int positions) {
    Sequence& s = sequences_[i];
    take_until(s, std::max(s.n_published + s.n_private, blocks_for(positions)));
    s.table.grow(positions);
  }

  void publish(std::size_t i) {
    publish_full(sequences_[i]);
    sequences_[i].table.publish(sequences_[i].tokens);
  }

  void truncate(std::size_t i, int length) {
    Sequence& s = sequences_[i];
    const bool copies = cut(s, length);
    apply(s.table.truncate(length), copies);
  }

  void resume(std::size_t i, const Tokens& prompt) {
    Sequence& s = sequences_[i];
    publish_full(s);
    const int last = std::max(static_cast<int>(prompt.size()) - 1, 0);
    int kept = 0;
    while (kept < std::min(last, s.length()) &&
           s.tokens[static_cast<std::size_t>(kept)] == prompt[static_cast<std::size_t>(kept)]) {
      ++kept;
    }
    const int found = longest(prompt, s.salt);
    const Tokens evaluated = s.tokens;
    bool copies = false;
    const int gained = std::max(found * kBlockPositions - kept, 0);
    if (gained > 0) {
      cut(s, kept / kBlockPositions * kBlockPositions);
      kept = found * kBlockPositions;
      s.tokens = first(prompt, kept);
      s.n_published = found;
    } else {
      copies = cut(s, kept);
    }
    const auto resumed = s.table.resume(evaluated, prompt);
    RC_ASSERT(resumed.positions == kept);
    RC_ASSERT(resumed.found == gained);
    apply(resumed.copy, copies);
  }

  void fork(std::size_t i, int positions) {
    const Sequence& s = sequences_[i];
    const int full = s.length() / kBlockPositions;
    const int needed = blocks_for(positions) - (s.how == Pin::shared ? full : 0);
    const bool fits = needed <= available();
    const Tokens tokens = s.tokens;
    if (fits) publish_full(sequences_[i]);
    auto fork = sequences_[i].table.fork(tokens, positions);
    RC_ASSERT(fork.has_value() == fits);
    if (!fits) return;
    Sequence child{std::move(fork->table), s.how, s.salt, blocks_for(positions)};
    add(std::move(child), tokens, full);
    Sequence& added = sequences_.back();
    added.tokens = tokens;
    take_until(added, blocks_for(added.length()));
    apply(fork->copy, added.length() % kBlockPositions != 0);
  }

  void end(std::size_t i) {
    leave(sequences_[i], 0);
    if (i + 1 < size()) sequences_[i] = std::move(sequences_.back());
    sequences_.pop_back();
  }

  // --- what must hold after every move ---

  void expect_agreement() const {
    const auto sound = pool_.check();
    RC_ASSERT((sound ? "" : sound.error().message) == "");
    const PoolStats real = pool_.stats();
    const PoolStats naive = stats();
    RC_ASSERT(
        std::tie(real.free, real.private_blocks, real.pinned, real.evictable, real.reserved) ==
        std::tie(naive.free, naive.private_blocks, naive.pinned, naive.evictable, naive.reserved));
    RC_ASSERT(real.evictions == evictions_);
    RC_ASSERT(real.published == n_published_);
    std::set<BlockId> used;
    for (const Sequence& s : sequences_) {
      RC_ASSERT(s.table.capacity() == s.blocks * kBlockPositions);
      RC_ASSERT(s.table.published_positions() == s.n_published * kBlockPositions);
      const auto blocks = s.table.covering((s.n_published + s.n_private) * kBlockPositions);
      used.insert(blocks.begin(), blocks.end());
      std::uint64_t history = s.salt;
      for (int pos = 0; pos < s.length(); ++pos) {
        history = next(history, s.tokens[static_cast<std::size_t>(pos)]);
        RC_ASSERT(slot(blocks, pos) == history);
      }
    }
    RC_ASSERT(static_cast<int>(used.size()) == real.pinned + real.private_blocks);
  }

  // Longest published prefix in blocks, short of the last token.
  int longest(const Tokens& prompt, CacheSalt salt) const {
    int n = 0;
    while ((n + 1) * kBlockPositions < static_cast<int>(prompt.size()) &&
           published_.contains({salt, first(prompt, (n + 1) * kBlockPositions)})) {
      ++n;
    }
    return n;
  }

 private:
  using Key = std::pair<CacheSalt, Tokens>;  // all tokens from position 0 to the end of the block
  using Slots = std::array<std::uint64_t, kBlockPositions>;
  struct Pins {
    int shared = 0;
    int insured = 0;
  };

  static Tokens first(const Tokens& tokens, int n) { return {tokens.begin(), tokens.begin() + n}; }
  static bool begins(const Tokens& tokens, const Tokens& with) {
    return tokens.size() >= with.size() && std::equal(with.begin(), with.end(), tokens.begin());
  }

  static std::uint64_t next(std::uint64_t history, Token token) {
    return (history ^ static_cast<std::uint64_t>(token)) * 0x9e3779b97f4a7c15u + 1;
  }
  static std::uint64_t history_of(const Sequence& s, int positions) {
    std::uint64_t history = s.salt;
    for (int i = 0; i < positions; ++i) {
      history = next(history, s.tokens[static_cast<std::size_t>(i)]);
    }
    return history;
  }
  std::uint64_t& slot(std::span<const BlockId> blocks, int pos) {
    const BlockId block = blocks[static_cast<std::size_t>(pos / kBlockPositions)];
    return memory_[static_cast<std::size_t>(block)]
                  [static_cast<std::size_t>(pos) % kBlockPositions];
  }
  std::uint64_t slot(std::span<const BlockId> blocks, int pos) const {
    return const_cast<NaiveCache*>(this)->slot(blocks, pos);
  }
  void apply(const std::optional<BlockCopy>& copy, bool expected) {
    RC_ASSERT(copy.has_value() == expected);
    if (copy) {
      memory_[static_cast<std::size_t>(copy->to)] = memory_[static_cast<std::size_t>(copy->from)];
    }
  }

  Pins pins_of(const Key& key) const {
    Pins pins;
    for (const Sequence& s : sequences_) {
      const bool holds = s.salt == key.first && begins(s.tokens, key.second) &&
                         s.n_published * kBlockPositions >= static_cast<int>(key.second.size());
      if (holds) ++(s.how == Pin::shared ? pins.shared : pins.insured);
    }
    return pins;
  }
  // Of the first blocks of the prompt, those whose memory other requests pay for.
  int count_paid(const Tokens& prompt, int blocks, CacheSalt salt) const {
    int paid = 0;
    for (int i = 1; i <= blocks; ++i) {
      paid += pins_of({salt, first(prompt, i * kBlockPositions)}).shared > 0 ? 1 : 0;
    }
    return paid;
  }
  PoolStats stats() const {
    PoolStats stats;
    stats.total = static_cast<int>(memory_.size());
    for (const Sequence& s : sequences_) {
      stats.private_blocks += s.n_private;
      stats.reserved += s.left();
    }
    for (const auto& [key, left_at] : published_) {
      const Pins pins = pins_of(key);
      ++(pins.shared + pins.insured > 0 ? stats.pinned : stats.evictable);
      // Every insured pin has a block; one of them is this one, unless a shared pin pays.
      stats.reserved += std::max(pins.insured - (pins.shared > 0 ? 0 : 1), 0);
    }
    stats.free = stats.total - stats.private_blocks - stats.pinned - stats.evictable;
    return stats;
  }
  int available() const {
    const PoolStats s = stats();
    return s.free + s.evictable - s.reserved;
  }

  void add(Sequence sequence, const Tokens& prompt, int found) {
    sequence.n_published = found;
    sequence.tokens = first(prompt, found * kBlockPositions);
    sequences_.push_back(std::move(sequence));
  }
  void take_until(Sequence& s, int blocks) {
    while (s.n_published + s.n_private < blocks) {
      if (stats().free == 0) evict();
      ++s.n_private;
    }
  }
  // Of the unused blocks that no other continues, the one left first.
  void evict() {
    auto victim = published_.end();
    for (auto it = published_.begin(); it != published_.end(); ++it) {
      const Pins pins = pins_of(it->first);
      const bool continued = std::ranges::any_of(published_, [&](const auto& other) {
        return other.first.first == it->first.first && other.first != it->first &&
               begins(other.first.second, it->first.second);
      });
      if (pins.shared + pins.insured > 0 || continued) continue;
      if (victim == published_.end() || it->second < victim->second) victim = it;
    }
    RC_ASSERT(victim != published_.end());
    published_.erase(victim);
    ++evictions_;
  }
  void publish_full(Sequence& s) {
    while ((s.n_published + 1) * kBlockPositions <= s.length()) {
      ++s.n_published;
      --s.n_private;
      const Key key{s.salt, first(s.tokens, s.n_published * kBlockPositions)};
      if (published_.emplace(key, 0).second) ++n_published_;
    }
  }
  // Unpins from the end, down to `blocks` published ones.
  void leave(Sequence& s, int blocks) {
    while (s.n_published > blocks) {
      const Key key{s.salt, first(s.tokens, s.n_published * kBlockPositions)};
      --s.n_published;
      const Pins pins = pins_of(key);
      if (pins.shared + pins.insured == 0) published_.at(key) = ++clock_;
    }
  }
  // Whether a copy is needed.
  bool cut(Sequence& s, int length) {
    const int kept = blocks_for(length);
    s.n_private = std::clamp(kept - s.n_published, 0, s.n_private);
    const bool splits = length < s.n_published * kBlockPositions;
    const Key split{s.salt, splits ? first(s.tokens, kept * kBlockPositions) : Tokens{}};
    leave(s, length / kBlockPositions);
    s.tokens.resize(static_cast<std::size_t>(length));
    if (length % kBlockPositions == 0 || !splits) return false;
    take_until(s, kept);
    return published_.contains(split);  // else the very block was evicted, and has its content
  }

  BlockPool pool_;
  std::vector<Slots> memory_;
  std::map<Key, int> published_;  // when it was left last
  std::vector<Sequence> sequences_;
  int clock_ = 0;
  std::uint64_t evictions_ = 0;
  std::uint64_t n_published_ = 0;
};

}  // namespace kipp::test
