// Sequences over a tiered pool, run beside a device that only obeys. The device knows the tier rule
// by heart, written once more without cleverness: a step that finds a plane missing, or in it
// anything but the codes of the tokens that led there, fails at once. So does a change that takes
// more units than there are. What each table needs, what is promised and what a prefix is worth are
// counted anew from the sequences and the device after every move.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kv/block_table.h"

namespace kipp::test {

using Tokens = std::vector<Token>;

inline Tokens first(const Tokens& tokens, int n) { return {tokens.begin(), tokens.begin() + n}; }

// Of all tokens up to one of them.
inline std::uint64_t history_after(std::uint64_t before, Token token) {
  return (before ^ static_cast<std::uint64_t>(token)) * 0x9e3779b97f4a7c15u + 1;
}

// The tier rule of kv_policy.h.
inline PlaneBits band_of(const PlanePlan& plan, int query_block, int block) {
  const int d = query_block - block;
  if (d == 0) return plan.open;
  if (block < plan.sink_blocks) return plan.sink;
  if (d <= plan.recent_blocks) return plan.recent;
  return d <= plan.recent_blocks + plan.mid_blocks ? plan.mid : plan.far;
}
// What that query and all later ones read.
inline PlaneBits ever_read(const PlanePlan& plan, int query_block, int block) {
  unsigned planes = 0;
  for (int q = query_block; q <= query_block + plan.recent_blocks + plan.mid_blocks + 1; ++q) {
    planes |= band_of(plan, q, block);
  }
  return static_cast<PlaneBits>(planes);
}
inline int count_units(const PlanePlan& plan, unsigned planes) {
  int units = 0;
  for (int p = 0; p < kMaxPlanes; ++p) {
    if ((planes >> p & 1u) != 0) units += plan.units[static_cast<std::size_t>(p)];
  }
  return units;
}

class ObedientDevice {
 public:
  ObedientDevice(const PlanePlan& plan, int blocks)
      : plan_(plan), blocks_(static_cast<std::size_t>(blocks)) {}

  void obey(BlockPool& pool) {
    pool.drain(
        [&](std::span<const PlaneChange> changes) {
          for (const PlaneChange& change : changes) hold(change);
        },
        [&](BlockId from, BlockId to, PlaneBits planes) { move(from, to, planes); });
  }
  PlaneBits held(BlockId id) const { return at(id).held; }

  // Appends `tokens` to `before`.
  void step(const Tokens& before, const Tokens& tokens, CacheSalt salt,
            std::span<const BlockId> ids) {
    const int begin = static_cast<int>(before.size());
    const int end = begin + static_cast<int>(tokens.size());
    std::vector<std::uint64_t> history = histories(before, salt);
    for (const Token token : tokens) history.push_back(history_after(history.back(), token));
    history.erase(history.begin());
    for (int pos = begin; pos < end; ++pos) {
      const int query = pos / kBlockPositions;
      write(ids[static_cast<std::size_t>(query)], pos, begin, end, history);
      if (pos % kBlockPositions != 0 && pos != begin) continue;
      for (int b = 0; b < query; ++b) {
        expect_planes(ids[static_cast<std::size_t>(b)], band_of(plan_, query, b),
                      history[static_cast<std::size_t>((b + 1) * kBlockPositions - 1)]);
      }
    }
  }
  void copy(const BlockCopy& copy) {
    RC_ASSERT((plan_.open & ~held(copy.from)) == 0);
    RC_ASSERT((plan_.open & ~held(copy.to)) == 0);
    at(copy.to).rows = at(copy.from).rows;
    at(copy.to).written = static_cast<PlaneBits>(at(copy.from).written & plan_.open);
  }

  struct Stored {
    PlaneBits held = 0;
    PlaneBits written = 0;  // of those that hold rows; the others have codes
    std::array<std::uint64_t, kMaxPlanes> codes = {};
    std::array<std::uint64_t, kBlockPositions> rows = {};
  };
  const Stored& read(BlockId id) const { return at(id); }
  void write(BlockId id, const Stored& stored) {
    RC_ASSERT(held(id) == stored.held);
    at(id) = stored;
  }

  // Before the first token and after each.
  static std::vector<std::uint64_t> histories(const Tokens& tokens, CacheSalt salt) {
    std::vector<std::uint64_t> all = {salt};
    for (const Token token : tokens) all.push_back(history_after(all.back(), token));
    return all;
  }
  // Whether an open block holds the rows of these tokens, which begin it.
  void expect_rows(BlockId id, const Tokens& tokens, CacheSalt salt, int n) const {
    RC_ASSERT((plan_.open & ~at(id).written) == 0);
    const auto history = histories(tokens, salt);
    for (int i = 0; i < n; ++i) {
      RC_ASSERT(at(id).rows[static_cast<std::size_t>(i)] ==
                history[history.size() - static_cast<std::size_t>(n - i)]);
    }
  }
  void expect_planes(BlockId id, PlaneBits planes, std::uint64_t history) const {
    RC_ASSERT((planes & ~held(id)) == 0);
    for (int p = 0; p < kMaxPlanes; ++p) {
      if ((planes >> p & 1) == 0) continue;
      const bool rows = (plan_.open >> p & 1) != 0;
      RC_ASSERT(!rows || (at(id).written >> p & 1) != 0);
      RC_ASSERT((rows ? at(id).rows.back() : at(id).codes[static_cast<std::size_t>(p)]) == history);
    }
  }

 private:
  const Stored& at(BlockId id) const { return blocks_[static_cast<std::size_t>(id)]; }
  Stored& at(BlockId id) { return blocks_[static_cast<std::size_t>(id)]; }

  void hold(const PlaneChange& change) {
    Stored& b = at(change.block);
    for (int p = 0; p < kMaxPlanes; ++p) {
      if ((change.planes >> p & 1) == 0) b.codes[static_cast<std::size_t>(p)] = 0;
    }
    b.written = static_cast<PlaneBits>(b.written & change.planes);
    units_ += count_units(plan_, change.planes) - count_units(plan_, b.held);
    b.held = change.planes;
    RC_ASSERT(units_ <= plan_.total_units);
  }
  void move(BlockId from, BlockId to, PlaneBits planes) {
    RC_ASSERT((planes & ~held(from)) == 0 && (planes & held(to)) == 0);
    Stored& a = at(from);
    Stored& b = at(to);
    for (int p = 0; p < kMaxPlanes; ++p) {
      if ((planes >> p & 1) == 0) continue;
      b.codes[static_cast<std::size_t>(p)] =
          std::exchange(a.codes[static_cast<std::size_t>(p)], 0u);
      if ((a.written >> p & 1) != 0) b.rows = a.rows;
    }
    b.written = static_cast<PlaneBits>(b.written | (a.written & planes));
    a.written = static_cast<PlaneBits>(a.written & ~planes);
    a.held = static_cast<PlaneBits>(a.held & ~planes);
    b.held = static_cast<PlaneBits>(b.held | planes);
  }
  // One row; at the block's last one, its codes. Rows of a block that the step begins and completes
  // need no memory.
  void write(BlockId id, int pos, int begin, int end, const std::vector<std::uint64_t>& history) {
    Stored& b = at(id);
    const int start = pos / kBlockPositions * kBlockPositions;
    const bool whole = start >= begin && start + kBlockPositions <= end;
    const auto rows_held = static_cast<PlaneBits>(plan_.open & b.held);
    RC_ASSERT(rows_held == plan_.open || whole);
    if (pos == start) b.written = rows_held;
    RC_ASSERT(b.written == rows_held);
    b.rows[static_cast<std::size_t>(pos - start)] = history[static_cast<std::size_t>(pos)];
    if (pos - start + 1 < kBlockPositions) return;
    // Of rows as they are there, so that a stale one shows.
    for (int i = 0; i < kBlockPositions; ++i) {
      RC_ASSERT(b.rows[static_cast<std::size_t>(i)] ==
                history[static_cast<std::size_t>(start + i)]);
    }
    for (int p = 0; p < kMaxPlanes; ++p) {
      if ((b.held & ~plan_.open) >> p & 1) b.codes[static_cast<std::size_t>(p)] = b.rows.back();
    }
  }

  const PlanePlan plan_;
  std::vector<Stored> blocks_;
  int units_ = 0;
};

class NaiveTiers {
 public:
  struct Sequence {
    BlockTable table;
    Pin how;
    CacheSalt salt;
    int blocks;          // promised for ever
    Tokens tokens = {};  // evaluated

    int length() const { return static_cast<int>(tokens.size()); }
    int room() const { return blocks * kBlockPositions - length(); }
  };
  struct Share {
    std::size_t who;
    Tokens tokens;
    bool final = true;
  };

  NaiveTiers(int ids, const PlanePlan& plan) : plan_(plan), pool_(ids, plan), device_(plan, ids) {}

  std::size_t size() const { return sequences_.size(); }
  const Sequence& at(std::size_t i) const { return sequences_[i]; }
  const BlockPool& pool() const { return pool_; }

  // --- moves ---

  void admit(const Tokens& prompt, int positions, CacheSalt salt) {
    const auto chain = pool_.find(std::nullopt, prompt, salt);
    const int found = readable(chain);
    int unpaid = 0;
    for (int i = 0; i < found; ++i) {
      unpaid += users(chain[static_cast<std::size_t>(i)], Pin::shared) == 0 ? 1 : 0;
    }
    const bool fits = has_room(blocks_for(positions) - found + unpaid, blocks_for(positions));
    const auto before = pool_.stats();
    auto table = BlockTable::admit(pool_, prompt, positions, salt);
    RC_ASSERT(table.has_value() == fits);
    if (!fits) return;
    const auto after = pool_.stats();
    RC_ASSERT(after.shortened_tokens - before.shortened_tokens ==
              (chain.size() - static_cast<std::size_t>(found)) * kBlockPositions);
    RC_ASSERT(table->published_positions() == found * kBlockPositions);
    add({*std::move(table), Pin::shared, salt, blocks_for(positions)},
        first(prompt, found * kBlockPositions));
  }

  void insure(int positions, CacheSalt salt) {
    const bool fits = has_room(blocks_for(positions), blocks_for(positions));
    auto table = BlockTable::insure(pool_, positions, salt);
    RC_ASSERT(table.has_value() == fits);
    if (fits) add({*std::move(table), Pin::insured, salt, blocks_for(positions)}, {});
  }

  // One step of several sequences; of those that are not final, `accepted` tokens stay. `fails`:
  // the device does not get to it.
  void step(const std::vector<Share>& shares, bool publishes, int accepted, bool fails) {
    for (const Share& share : shares) {
      Sequence& s = sequences_[share.who];
      s.table.grow(s.length(), s.length() + static_cast<int>(share.tokens.size()), share.final);
    }
    obey();
    for (const Share& share : shares) {
      Sequence& s = sequences_[share.who];
      const int end = s.length() + static_cast<int>(share.tokens.size());
      if (!fails) device_.step(s.tokens, share.tokens, s.salt, s.table.covering(end));
    }
    for (const Share& share : shares) {
      Sequence& s = sequences_[share.who];
      const auto n = static_cast<int>(share.tokens.size());
      const int stay = fails ? 0 : share.final ? n : std::min(accepted, n);
      s.tokens.insert(s.tokens.end(), share.tokens.begin(), share.tokens.begin() + stay);
      if (stay < n && !share.final) {
        // What was evaluated and is sure to stay is never lost.
        RC_ASSERT(s.table.kept(s.length()) == s.length());
        RC_ASSERT(!s.table.truncate(s.length()));
      }
      if (publishes) {
        s.table.publish(s.tokens);
      } else {
        s.table.advance(s.length());
      }
    }
    obey();
  }

  void publish(std::size_t i) {
    sequences_[i].table.publish(sequences_[i].tokens);
    obey();
  }

  void truncate(std::size_t i, int length) {
    Sequence& s = sequences_[i];
    const int kept = s.table.kept(length);
    RC_ASSERT(kept == naive_kept(s, length, s.table.published_positions() / kBlockPositions));
    // A request never goes back into what it has published.
    if (s.how == Pin::shared && kept < s.table.published_positions()) return;
    RC_ASSERT(!s.table.truncate(kept));
    s.tokens.resize(static_cast<std::size_t>(kept));
    obey();
  }

  void resume(std::size_t i, const Tokens& prompt) {
    Sequence& s = sequences_[i];
    s.table.publish(s.tokens);
    obey();
    const int last = std::max(static_cast<int>(prompt.size()) - 1, 0);
    const auto differs = std::ranges::mismatch(s.tokens, prompt).in1 - s.tokens.begin();
    const int common = std::min(static_cast<int>(differs), last);
    int expected = naive_kept(s, common, s.length() / kBlockPositions);
    const int chain = prompt.empty() ? 0 : readable(pool_.find(std::nullopt, prompt, s.salt));
    expected = std::max(expected, chain * kBlockPositions);
    RC_ASSERT(s.table.match(s.tokens, prompt) == expected);
    const auto resumed = s.table.resume(s.tokens, prompt);
    RC_ASSERT(resumed.positions == expected);
    RC_ASSERT(resumed.found == std::max(expected - common, 0));
    RC_ASSERT(!resumed.copy);
    s.tokens = first(prompt, expected);
    obey();
  }

  void fork(std::size_t i, int positions) {
    Sequence& s = sequences_[i];
    const int full = s.length() / kBlockPositions;
    const int needed = blocks_for(positions) - (s.how == Pin::shared ? full : 0);
    const bool fits = has_room(needed, blocks_for(positions));
    auto fork = s.table.fork(s.tokens, positions);
    RC_ASSERT(fork.has_value() == fits);
    if (!fits) return;
    obey();
    RC_ASSERT(fork->copy.has_value() == (s.length() % kBlockPositions != 0));
    if (fork->copy) device_.copy(*fork->copy);
    add({std::move(fork->table), s.how, s.salt, blocks_for(positions)}, Tokens(s.tokens));
  }

  void end(std::size_t i) {
    if (i + 1 < size()) std::swap(sequences_[i], sequences_.back());
    sequences_.pop_back();
    obey();
  }

  void save(std::size_t i) {
    const Sequence& s = sequences_[i];
    saved_ = {.tokens = s.tokens, .salt = s.salt, .blocks = {}};
    for (const BlockId id : s.table.covering(s.length())) {
      saved_.blocks.push_back(device_.read(id));
    }
  }
  // In place of whatever an insured sequence holds.
  void restore(std::size_t i) {
    Sequence& s = sequences_[i];
    if (saved_.salt != s.salt) return;
    const int length = static_cast<int>(saved_.tokens.size());
    if (blocks_for(length) > s.blocks) return;
    s.table.truncate(0);
    for (const auto& stored : saved_.blocks) {
      const BlockId id = s.table.grow_restored(length, stored.held);
      obey();
      device_.write(id, stored);
    }
    s.tokens = saved_.tokens;
    s.table.publish(s.tokens);
    obey();
  }

  // --- what must hold after every move ---

  void expect_agreement() const {
    const auto sound = pool_.check();
    RC_ASSERT((sound ? "" : sound.error().message) == "");
    std::map<std::pair<BlockId, int>, int> readers;
    for (const Sequence& s : sequences_) {
      RC_ASSERT(s.table.capacity() == s.blocks * kBlockPositions);
      const auto ids = s.table.covering(s.length());
      const auto history = ObedientDevice::histories(s.tokens, s.salt);
      const int query = s.length() / kBlockPositions;
      for (int b = 0; b < static_cast<int>(ids.size()); ++b) {
        const BlockId id = ids[static_cast<std::size_t>(b)];
        const PlaneBits needs = b == query ? plan_.open : ever_read(plan_, query, b);
        const PlaneBits base = b < plan_.sink_blocks ? plan_.sink : plan_.far;
        for (int p = 0; p < kMaxPlanes; ++p) {
          if ((needs & ~base) >> p & 1) ++readers[{id, p}];
        }
        if (b < query) {
          device_.expect_planes(id, needs,
                                history[static_cast<std::size_t>((b + 1) * kBlockPositions)]);
        } else {
          device_.expect_rows(id, s.tokens, s.salt, s.length() % kBlockPositions);
        }
      }
    }
    int used = 0;
    for (BlockId id = 0; id < pool_.total(); ++id) {
      RC_ASSERT(pool_.held(id) == device_.held(id));
      for (int p = 0; p < kMaxPlanes; ++p) {
        const auto counted = readers.find({id, p});
        RC_ASSERT(pool_.readers(id, p) == (counted == readers.end() ? 0 : counted->second));
        if (counted != readers.end()) used += plan_.units[static_cast<std::size_t>(p)];
      }
    }
    const PoolStats stats = pool_.stats();
    RC_ASSERT(stats.used_units + stats.promised_units == committed());
    RC_ASSERT(committed() <= plan_.total_units);
    RC_ASSERT(used <= stats.used_units);
    RC_ASSERT(stats.used_units + stats.idle_units + stats.free_units == stats.total_units);
  }

  // When all have ended, everything is there to be promised again.
  void expect_nothing_left() {
    while (size() > 0) end(size() - 1);
    expect_agreement();
    RC_ASSERT(pool_.stats().used_units == 0);
    RC_ASSERT(pool_.stats().promised_units == plan_.step_units());
  }

 private:
  struct Saved {
    Tokens tokens;
    CacheSalt salt = 0;
    std::vector<ObedientDevice::Stored> blocks;
  };

  void obey() { device_.obey(pool_); }
  void add(Sequence sequence, Tokens tokens) {
    sequence.tokens = std::move(tokens);
    sequences_.push_back(std::move(sequence));
    obey();
  }

  // The most blocks of which each holds what the query after them all reads.
  int readable(std::span<const BlockId> ids) const {
    for (int m = static_cast<int>(ids.size()); m > 0; --m) {
      bool all = true;
      for (int b = 0; b < m; ++b) {
        const unsigned held = device_.held(ids[static_cast<std::size_t>(b)]);
        all = all && (ever_read(plan_, m, b) & ~held) == 0;
      }
      if (all) return m;
    }
    return 0;
  }
  int naive_kept(const Sequence& s, int length, int published) const {
    const int whole = length / kBlockPositions;
    const auto ids = s.table.covering(s.length());
    const int m = readable(ids.first(static_cast<std::size_t>(whole)));
    if (m < whole || length % kBlockPositions == 0) return m * kBlockPositions;
    const unsigned held = device_.held(ids[static_cast<std::size_t>(whole)]);
    return whole >= published && (plan_.open & ~held) == 0 ? length : whole * kBlockPositions;
  }

  int users(BlockId id, Pin how) const {
    return static_cast<int>(std::ranges::count_if(sequences_, [&](const Sequence& s) {
      const auto ids = s.table.covering(s.table.published_positions());
      return s.how == how && std::ranges::find(ids, id) != ids.end();
    }));
  }
  // Blocks that tables of shared pins use, once each; what others may ever use, for each of them.
  int blocks_committed() const {
    int blocks = 0;
    std::map<BlockId, Pin> published;
    for (const Sequence& s : sequences_) {
      const auto ids = s.table.covering(s.table.published_positions());
      blocks += s.how == Pin::insured ? s.blocks : s.blocks - static_cast<int>(ids.size());
      for (const BlockId id : ids) {
        if (s.how == Pin::shared) published[id] = Pin::shared;
      }
    }
    return blocks + static_cast<int>(published.size());
  }
  int committed() const {
    int units = plan_.step_units() + blocks_committed() * count_units(plan_, plan_.far);
    for (const Sequence& s : sequences_) units += plan_.quota(s.blocks);
    return units;
  }
  bool has_room(int blocks, int of) const {
    return blocks_committed() + blocks <= pool_.total() &&
           committed() + blocks * count_units(plan_, plan_.far) + plan_.quota(of) <=
               plan_.total_units;
  }

  const PlanePlan plan_;
  BlockPool pool_;
  ObedientDevice device_;
  std::vector<Sequence> sequences_;
  Saved saved_;
};

}  // namespace kipp::test
