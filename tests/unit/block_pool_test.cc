#include "kv/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "support/prefixes.h"
#include "support/property.h"

namespace kipp {
namespace {

using test::block_of;
using test::spell;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::optional<BlockId> kStart = std::nullopt;
constexpr int kHuge = std::numeric_limits<int>::max();

void expect_sound(const BlockPool& pool) {
  const auto sound = pool.check();
  EXPECT_TRUE(sound) << sound.error().message;
}

// The state only, so that two can be compared.
std::string describe(const PoolStats& s) {
  return fmt::format("free {} private {} pinned {} evictable {} reserved {}", s.free,
                     s.private_blocks, s.pinned, s.evictable, s.reserved);
}
std::string describe(const BlockPool& pool) { return describe(pool.stats()); }

// Blocks that hold what `letters` spell, published and left.
std::vector<BlockId> leave_behind(BlockPool& pool, const std::string& letters, CacheSalt salt = 0) {
  const auto tokens = spell(letters);
  std::vector<BlockId> chain;
  EXPECT_TRUE(pool.reserve(static_cast<int>(letters.size())));
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const auto parent = chain.empty() ? kStart : std::optional(chain.back());
    chain.push_back(pool.publish(pool.take(), parent, block_of(tokens, i), Pin::shared, salt));
  }
  for (auto id = chain.rbegin(); id != chain.rend(); ++id) pool.unpin(*id, Pin::shared);
  return chain;
}

// The longest prefix of what `letters` spell that is published.
std::size_t cached(const BlockPool& pool, const std::string& letters, CacheSalt salt = 0) {
  auto tokens = spell(letters);
  tokens.push_back(1);  // left to evaluate
  return pool.find(kStart, tokens, salt).size();
}

TEST(BlockPool, HandsOutEachBlockOnceAndTakesItBack) {
  BlockPool pool(4);
  ASSERT_TRUE(pool.reserve(4));
  std::set<BlockId> taken;
  for (int i = 0; i < 4; ++i) taken.insert(pool.take());
  EXPECT_THAT(taken, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(describe(pool), "free 0 private 4 pinned 0 evictable 0 reserved 0");
  pool.give_back(2);
  EXPECT_EQ(describe(pool), "free 1 private 3 pinned 0 evictable 0 reserved 1");
  EXPECT_EQ(pool.take(), 2);
  expect_sound(pool);
}

TEST(BlockPool, FindsWholeBlocksAndLeavesTheLastToken) {
  BlockPool pool(8);
  const auto chain = leave_behind(pool, "abc");
  auto prompt = spell("abcd");
  const auto found = [&](std::size_t tokens) {
    return pool.find(kStart, std::span(prompt).first(tokens));
  };
  EXPECT_THAT(found(0), IsEmpty());
  EXPECT_THAT(found(1), IsEmpty());
  EXPECT_THAT(found(32), IsEmpty()) << "its last token must be evaluated";
  EXPECT_THAT(found(33), ElementsAre(chain[0]));
  EXPECT_THAT(found(64), ElementsAre(chain[0]));
  EXPECT_THAT(found(65), ElementsAre(chain[0], chain[1]));
  EXPECT_THAT(found(128), ElementsAre(chain[0], chain[1], chain[2])) << "the fourth is not there";
  prompt[40] = 1;
  EXPECT_THAT(found(128), ElementsAre(chain[0])) << "what follows a difference is another prompt";
  EXPECT_THAT(pool.find(chain[0], spell("bcd")), ElementsAre(chain[1], chain[2]));
}

TEST(BlockPool, AdmitsExactlyWhatFits) {
  BlockPool pool(4);
  leave_behind(pool, "ab");
  const auto prompt = spell("abcd");
  const std::string before = describe(pool);
  EXPECT_FALSE(pool.admit(prompt, 129)) << "five blocks of four";
  EXPECT_FALSE(pool.admit(prompt, kHuge));
  EXPECT_EQ(describe(pool), before);
  EXPECT_EQ(pool.stats().lookups, 0u) << "who waits asks again; it is counted once";

  const auto all = pool.admit(prompt, 128);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->blocks.size(), 2u);
  EXPECT_EQ(all->reserved, 2);
  EXPECT_EQ(pool.available(), 0);
  EXPECT_FALSE(pool.admit({}, 1));
  EXPECT_TRUE(pool.admit({}, 0)) << "nothing fits always";
  expect_sound(pool);
  pool.take();
  pool.take();
  expect_sound(pool);
  EXPECT_EQ(describe(pool), "free 0 private 2 pinned 2 evictable 0 reserved 0");
}

TEST(BlockPool, WhatOthersHaveFoundCostsNothing) {
  BlockPool pool(4);
  leave_behind(pool, "abc");
  auto prompt = spell("abc");
  prompt.push_back(1);
  ASSERT_TRUE(pool.admit(prompt, 100));
  EXPECT_EQ(pool.available(), 0);
  EXPECT_FALSE(pool.admit(prompt, 97)) << "needs a block of its own";
  pool.give_back_reservation(1);
  ASSERT_TRUE(pool.admit(prompt, 97));
  EXPECT_EQ(describe(pool), "free 1 private 0 pinned 3 evictable 0 reserved 1");
  EXPECT_EQ(pool.stats().hit_tokens, 2 * 96u);
  EXPECT_EQ(pool.stats().lookup_tokens, 2 * 97u);
  EXPECT_EQ(pool.stats().lookups, 2u);
}

TEST(BlockPool, EvictsTheLeastRecentlyUsedLeafFirst) {
  BlockPool pool(6);
  leave_behind(pool, "aab");
  leave_behind(pool, "aac");  // shares "aa"
  leave_behind(pool, "c");
  EXPECT_EQ(describe(pool), "free 1 private 0 pinned 0 evictable 5 reserved 0");
  // "aab" was left first, but "aa" was used again by "aac".
  ASSERT_TRUE(pool.reserve(6));
  pool.take();
  EXPECT_EQ(pool.stats().evictions, 0u) << "the free one first";
  std::vector<std::size_t> left;
  for (int i = 0; i < 5; ++i) {
    pool.take();
    left.push_back(cached(pool, "aab") * 100 + cached(pool, "aac") * 10 + cached(pool, "c"));
    expect_sound(pool);
  }
  EXPECT_THAT(left, ElementsAre(231, 221, 111, 1, 0));
  EXPECT_EQ(pool.stats().evictions, 5u);
}

TEST(BlockPool, BeingFoundMakesRecent) {
  BlockPool pool(3);
  leave_behind(pool, "a");
  leave_behind(pool, "b");
  auto prompt = spell("a");
  prompt.push_back(1);
  const auto admission = pool.admit(prompt, 33);
  ASSERT_TRUE(admission);
  pool.unpin(admission->blocks[0], Pin::shared);
  ASSERT_TRUE(pool.reserve(1));
  pool.take();
  pool.take();
  EXPECT_EQ(cached(pool, "a"), 1u);
  EXPECT_EQ(cached(pool, "b"), 0u);
}

TEST(BlockPool, NeverEvictsWhatIsPinned) {
  BlockPool pool(3);
  const auto chain = leave_behind(pool, "ab");
  pool.pin(chain[0], Pin::shared);
  EXPECT_EQ(pool.available(), 2);
  EXPECT_FALSE(pool.reserve(3));
  ASSERT_TRUE(pool.reserve(2));
  std::set<BlockId> taken = {pool.take(), pool.take()};
  EXPECT_FALSE(taken.contains(chain[0]));
  EXPECT_EQ(cached(pool, "ab"), 1u);
  expect_sound(pool);
}

TEST(BlockPool, EqualContentIsKeptOnce) {
  BlockPool pool(4);
  const auto tokens = spell("ab");
  const auto chain = leave_behind(pool, "a");
  ASSERT_TRUE(pool.reserve(3));
  const BlockId mine = pool.take();
  EXPECT_EQ(pool.publish(mine, kStart, block_of(tokens, 0), Pin::shared), chain[0]);
  EXPECT_EQ(describe(pool), "free 3 private 0 pinned 1 evictable 0 reserved 2");
  EXPECT_EQ(pool.stats().deduplicated, 1u);
  EXPECT_EQ(pool.stats().published, 1u);
  // Another salt is other content.
  const BlockId theirs = pool.take();
  EXPECT_EQ(pool.publish(theirs, kStart, block_of(tokens, 0), Pin::shared, 9), theirs);
  EXPECT_EQ(cached(pool, "a", 9), 1u);
  EXPECT_EQ(cached(pool, "a", 8), 0u);
  expect_sound(pool);
}

TEST(BlockPool, CollidingHashesDoNotMixPrompts) {
  for (const PrefixHash hash : test::kHashes) {
    BlockPool pool(12, hash);
    leave_behind(pool, "abc");
    leave_behind(pool, "bac");
    leave_behind(pool, "abd", 1);
    EXPECT_EQ(cached(pool, "abc"), 3u);
    EXPECT_EQ(cached(pool, "bac"), 3u);
    EXPECT_EQ(cached(pool, "abd"), 2u) << "its third block belongs to another tenant";
    EXPECT_EQ(cached(pool, "abc", 1), 2u);
    EXPECT_EQ(cached(pool, "cab"), 0u);
    EXPECT_EQ(cached(pool, "bbc"), 1u);
    EXPECT_EQ(cached(pool, "abc", 2), 0u);
    expect_sound(pool);
  }
}

// Three blocks pinned in every way keep their insured pins' promises through every order of
// leaving.
TEST(BlockPool, AnInsuredPinKeepsItsBlockPromised) {
  BlockPool pool(4);
  const BlockId block = leave_behind(pool, "a")[0];
  ASSERT_TRUE(pool.reserve(2));  // of two insured tables
  pool.pin(block, Pin::insured);
  EXPECT_EQ(describe(pool), "free 3 private 0 pinned 1 evictable 0 reserved 1");
  pool.pin(block, Pin::insured);
  EXPECT_EQ(describe(pool), "free 3 private 0 pinned 1 evictable 0 reserved 1")
      << "one of the two pays for the block, the other's stays promised";
  pool.pin(block, Pin::shared);
  EXPECT_EQ(describe(pool), "free 3 private 0 pinned 1 evictable 0 reserved 2")
      << "the shared pin pays";
  expect_sound(pool);
  pool.unpin(block, Pin::insured);
  EXPECT_EQ(describe(pool), "free 3 private 0 pinned 1 evictable 0 reserved 2");
  pool.unpin(block, Pin::shared);
  EXPECT_EQ(describe(pool), "free 3 private 0 pinned 1 evictable 0 reserved 1");
  pool.unpin(block, Pin::insured);
  EXPECT_EQ(describe(pool), "free 3 private 0 pinned 0 evictable 1 reserved 2");
  expect_sound(pool);
}

TEST(BlockPool, AdmissionPaysForWhatOnlyInsuredPinsHold) {
  BlockPool pool(2);
  const BlockId block = leave_behind(pool, "a")[0];
  ASSERT_TRUE(pool.reserve(1));
  pool.pin(block, Pin::insured);
  EXPECT_FALSE(pool.admit(spell("ab"), 64)) << "block a, block b, and a block insured";
  pool.unpin(block, Pin::insured);
  pool.give_back_reservation(1);
  EXPECT_TRUE(pool.admit(spell("ab"), 64));
  expect_sound(pool);
}

TEST(BlockPool, NoBlocksAtAll) {
  BlockPool pool(0);
  EXPECT_TRUE(pool.reserve(0));
  EXPECT_FALSE(pool.reserve(1));
  EXPECT_FALSE(pool.reserve(kHuge));
  EXPECT_FALSE(pool.admit({}, 1));
  EXPECT_TRUE(pool.admit({}, 0));
  EXPECT_EQ(describe(pool), "free 0 private 0 pinned 0 evictable 0 reserved 0");
  expect_sound(pool);
}

// Moves of many holders against a model that recomputes everything from what each holder holds.
class Naive {
 public:
  static constexpr std::size_t kKinds = 2;

  struct Published {
    std::string letters;  // everything from position 0 on
    CacheSalt salt = 0;
    std::array<int, kKinds> pins = {0, 0};
    int left_at = 0;

    bool pinned() const { return pins[0] + pins[1] > 0; }
  };
  struct Holder {
    Pin how = Pin::shared;
    CacheSalt salt = 0;
    int reserved = 0;
    std::vector<BlockId> chain = {};  // published
    std::string letters = {};         // of the chain
    std::vector<BlockId> privates = {};

    std::size_t kind() const { return static_cast<std::size_t>(how); }
    std::optional<BlockId> end() const {
      return chain.empty() ? kStart : std::optional(chain.back());
    }
  };

  Naive(int total, PrefixHash hash) : pool_(total, hash), total_(total) {}

  void step(int kind, std::size_t pick, std::string letters, int n) {
    if (kind < 3 || holders_.empty()) {
      const auto salt = static_cast<CacheSalt>(pick % 2);
      if (kind == 0) return insure(salt, n);
      if (kind == 1 && !holders_.empty()) return copy(holders_[pick % holders_.size()]);
      return admit(letters, salt, n);
    }
    Holder& holder = holders_[pick % holders_.size()];
    switch (kind) {
      case 3:
        return publish(holder, letters[0]);
      case 4:
        return give_back(holder);
      case 5:
        return leave_last(holder);
      case 6:
        return extend(holder, letters);
      case 7:
        while (!holder.privates.empty()) give_back(holder);
        while (!holder.chain.empty()) leave_last(holder);
        pool_.give_back_reservation(holder.reserved);
        holders_.erase(holders_.begin() + static_cast<std::ptrdiff_t>(pick % holders_.size()));
        return;
      default:
        return take(holder);
    }
  }

  void expect_agreement() const {
    const auto sound = pool_.check();
    RC_ASSERT((sound ? "" : sound.error().message) == "");
    RC_ASSERT(describe(pool_) == describe(stats()));
    RC_ASSERT(pool_.available() == available());
    for (const char* letters : {"aaaa", "abab", "bbbb", "aaab", "ab"}) {
      for (const CacheSalt salt : {0u, 1u}) {
        RC_ASSERT(pool_.find(kStart, with_last(letters), salt) == longest("", letters, salt));
      }
    }
  }

 private:
  static std::vector<Token> with_last(const std::string& letters) {
    auto tokens = spell(letters);
    tokens.push_back(1);
    return tokens;
  }

  PoolStats stats() const {
    PoolStats s;
    for (const Holder& holder : holders_) {
      s.private_blocks += static_cast<int>(holder.privates.size());
      s.reserved += holder.reserved;
    }
    for (const auto& [id, block] : published_) {
      ++(block.pinned() ? s.pinned : s.evictable);
      s.reserved += std::max(block.pins[1] - (block.pins[0] > 0 ? 0 : 1), 0);
    }
    s.free = total_ - s.private_blocks - s.pinned - s.evictable;
    return s;
  }
  int available() const {
    const PoolStats s = stats();
    return s.free + s.evictable - s.reserved;
  }
  std::vector<BlockId> longest(std::string after, const std::string& letters,
                               CacheSalt salt) const {
    std::vector<BlockId> chain;
    for (const char letter : letters) {
      after += letter;
      const auto found = std::ranges::find_if(published_, [&](const auto& p) {
        return p.second.letters == after && p.second.salt == salt;
      });
      if (found == published_.end()) break;
      chain.push_back(found->first);
    }
    return chain;
  }

  // What a block costs a holder that comes to it without a reserved one.
  int cost(const std::vector<BlockId>& chain) const {
    return static_cast<int>(
        std::ranges::count_if(chain, [&](BlockId id) { return published_.at(id).pins[0] == 0; }));
  }
  void hold(Holder& holder, BlockId id) {
    pool_.pin(id, holder.how);
    add(holder, id);
  }
  void add(Holder& holder, BlockId id) {
    ++published_.at(id).pins[holder.kind()];
    holder.chain.push_back(id);
    holder.letters = published_.at(id).letters;
  }

  void insure(CacheSalt salt, int n) {
    const bool fits = n <= available();
    RC_ASSERT(pool_.reserve(n) == fits);
    if (fits) holders_.push_back({.how = Pin::insured, .salt = salt, .reserved = n});
  }
  void admit(const std::string& letters, CacheSalt salt, int n) {
    const auto prompt = with_last(letters);
    const auto found = longest("", letters, salt);
    const int needed = static_cast<int>(letters.size() + 1 - found.size()) + n;
    const bool fits = needed + cost(found) <= available();
    const auto admission =
        pool_.admit(prompt, static_cast<int>(prompt.size()) + n * kBlockPositions, salt);
    RC_ASSERT(admission.has_value() == fits);
    if (!fits) return;
    RC_ASSERT(admission->blocks == found);
    RC_ASSERT(admission->reserved == needed);
    Holder holder{.salt = salt, .reserved = needed};
    for (const BlockId id : found) add(holder, id);
    holders_.push_back(holder);
  }
  // As a fork does: another holder of the same chain.
  void copy(const Holder& of) {
    const int n = of.how == Pin::insured ? static_cast<int>(of.chain.size()) : cost(of.chain);
    const bool fits = n <= available();
    RC_ASSERT(pool_.reserve(n) == fits);
    if (!fits) return;
    Holder holder{.how = of.how, .salt = of.salt};
    if (of.how == Pin::shared) pool_.give_back_reservation(n);
    const auto chain = of.chain;
    for (const BlockId id : chain) hold(holder, id);
    holders_.push_back(holder);
  }
  void take(Holder& holder) {
    if (holder.reserved == 0) return;
    std::set<BlockId> used;
    for (const auto& [id, block] : published_) used.insert(id);
    for (const Holder& other : holders_) {
      used.insert(other.privates.begin(), other.privates.end());
    }
    const BlockId id = pool_.take();
    if (static_cast<int>(used.size()) < total_) {
      RC_ASSERT(!used.contains(id));
    } else {
      RC_ASSERT(id == victim());
      published_.erase(id);
    }
    holder.privates.push_back(id);
    --holder.reserved;
  }
  // Of the unused blocks that nothing continues, the one that was left first.
  BlockId victim() const {
    const Published* oldest = nullptr;
    BlockId victim = -1;
    for (const auto& [id, block] : published_) {
      const bool continued = std::ranges::any_of(published_, [&, &b = block](const auto& other) {
        return other.second.salt == b.salt && other.second.letters.starts_with(b.letters) &&
               other.second.letters != b.letters;
      });
      if (block.pinned() || continued) continue;
      if (oldest == nullptr || block.left_at < oldest->left_at) {
        oldest = &block;
        victim = id;
      }
    }
    return victim;
  }
  void publish(Holder& holder, char letter) {
    if (holder.privates.empty()) return;
    const BlockId mine = holder.privates.back();
    const auto tokens = spell(std::string(1, letter));
    const auto equal = longest(holder.letters, std::string(1, letter), holder.salt);
    const BlockId used =
        pool_.publish(mine, holder.end(), block_of(tokens, 0), holder.how, holder.salt);
    RC_ASSERT(used == (equal.empty() ? mine : equal[0]));
    holder.privates.pop_back();
    if (equal.empty()) published_[mine] = {.letters = holder.letters + letter, .salt = holder.salt};
    add(holder, used);
  }
  void give_back(Holder& holder) {
    if (holder.privates.empty()) return;
    pool_.give_back(holder.privates.back());
    holder.privates.pop_back();
    ++holder.reserved;
  }
  void leave_last(Holder& holder) {
    if (holder.chain.empty()) return;
    Published& block = published_.at(holder.chain.back());
    pool_.unpin(holder.chain.back(), holder.how);
    --block.pins[holder.kind()];
    block.left_at = ++clock_;
    holder.chain.pop_back();
    holder.letters.pop_back();
    if (holder.how == Pin::insured) ++holder.reserved;
  }
  // A published block in place of a reserved one.
  void extend(Holder& holder, const std::string& letters) {
    const auto found = longest(holder.letters, letters, holder.salt);
    RC_ASSERT(pool_.find(holder.end(), with_last(letters), holder.salt) == found);
    for (const BlockId id : found) {
      if (holder.reserved == 0) return;
      --holder.reserved;
      if (holder.how == Pin::shared) pool_.give_back_reservation(1);
      hold(holder, id);
    }
  }

  BlockPool pool_;
  int total_;
  std::map<BlockId, Published> published_;
  std::vector<Holder> holders_;
  int clock_ = 0;
};

TEST(BlockPool, AgreesWithANaiveModel) {
  test::property(2000, [] {
    Naive naive(*test::among(0, 9), test::kHashes[static_cast<std::size_t>(*test::among(0, 3))]);
    const auto moves = *rc::gen::scale(
        2,
        rc::gen::container<std::vector<std::tuple<int, std::size_t, std::string, int>>>(
            rc::gen::tuple(test::among(0, 12), test::among<std::size_t>(0, 100),
                           rc::gen::nonEmpty(rc::gen::scale(
                               0.04, rc::gen::container<std::string>(rc::gen::element('a', 'b')))),
                           test::among(0, 4))));
    for (const auto& [kind, pick, letters, n] : moves) {
      naive.step(kind, pick, letters, n);
      naive.expect_agreement();
    }
  });
}

}  // namespace
}  // namespace kipp
