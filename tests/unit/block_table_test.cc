#include "kv/block_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>

#include "support/naive_cache.h"
#include "support/prefixes.h"
#include "support/property.h"

namespace kipp {
namespace {

using test::NaiveCache;
using test::spell;
using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr int kHuge = std::numeric_limits<int>::max();

std::vector<Token> spell_and(const std::string& blocks, int more) {
  auto tokens = spell(blocks);
  tokens.resize(tokens.size() + static_cast<std::size_t>(more), 7);
  return tokens;
}

std::vector<Token> cut(std::vector<Token> tokens, int length) {
  if (static_cast<int>(tokens.size()) > length) tokens.resize(static_cast<std::size_t>(length));
  return tokens;
}

std::vector<BlockId> blocks_of(const BlockTable& table, int positions) {
  const auto blocks = table.covering(positions);
  return {blocks.begin(), blocks.end()};
}

void expect_sound(const BlockPool& pool) {
  const auto sound = pool.check();
  EXPECT_TRUE(sound) << sound.error().message;
}

// A request that has been here, so that its blocks are published and in nobody's use.
void serve(BlockPool& pool, const std::vector<Token>& tokens, CacheSalt salt = 0) {
  const int n = static_cast<int>(tokens.size());
  auto table = BlockTable::admit(pool, tokens, n, salt);
  ASSERT_TRUE(table);
  table->grow(n);
  table->publish(tokens);
}

TEST(BlockTable, GrowsBlockByBlockWithinItsPromise) {
  BlockPool pool(8);
  auto table = BlockTable::admit(pool, spell_and("a", 1), 100);
  ASSERT_TRUE(table);
  EXPECT_EQ(table->capacity(), 128);
  EXPECT_EQ(table->published_positions(), 0);
  EXPECT_EQ(pool.stats().reserved, 4);
  EXPECT_EQ(pool.stats().private_blocks, 0) << "nothing is taken before it is needed";
  table->grow(0);
  EXPECT_TRUE(table->covering(0).empty());
  table->grow(1);
  EXPECT_EQ(pool.stats().private_blocks, 1);
  table->grow(32);
  EXPECT_EQ(pool.stats().private_blocks, 1);
  table->grow(33);
  const auto two = blocks_of(*table, 33);
  EXPECT_EQ(two.size(), 2u);
  EXPECT_THAT(table->covering(32), ElementsAre(two[0]));
  table->grow(128);
  EXPECT_THAT(table->covering(64), ElementsAreArray(two));
  table->grow(5);
  EXPECT_EQ(pool.stats().private_blocks, 4) << "growing never shrinks";
  expect_sound(pool);
}

TEST(BlockTable, ReservesExactlyWhatItsPositionsNeed) {
  BlockPool pool(8);
  for (const auto& [positions, blocks] : {std::pair(0, 0), {1, 1}, {32, 1}, {33, 2}, {256, 8}}) {
    const auto admitted = BlockTable::admit(pool, {}, positions);
    ASSERT_TRUE(admitted);
    EXPECT_EQ(pool.available(), 8 - blocks);
    EXPECT_EQ(BlockTable::insure(pool, positions).has_value(), blocks <= 4);
  }
  EXPECT_EQ(pool.available(), 8) << "a table gives back what it was promised";
  for (const int positions : {257, kHuge}) {
    EXPECT_FALSE(BlockTable::admit(pool, {}, positions));
    EXPECT_FALSE(BlockTable::insure(pool, positions));
  }
  EXPECT_EQ(pool.available(), 8);
}

TEST(BlockTable, BeginsWithWhatIsPublished) {
  BlockPool pool(8);
  serve(pool, spell("abc"));
  auto table = BlockTable::admit(pool, spell("abd"), 128);
  ASSERT_TRUE(table);
  EXPECT_EQ(table->published_positions(), 64);
  EXPECT_EQ(table->capacity(), 128);
  EXPECT_EQ(pool.stats().reserved, 2);
  EXPECT_EQ(pool.stats().hit_tokens, 64u);
  table->grow(128);
  EXPECT_EQ(pool.stats().private_blocks, 2);
  expect_sound(pool);
}

TEST(BlockTable, LeavesTheLastTokenOfThePrompt) {
  BlockPool pool(8);
  serve(pool, spell("ab"));
  EXPECT_EQ(BlockTable::admit(pool, spell("ab"), 64)->published_positions(), 32);
  EXPECT_EQ(BlockTable::admit(pool, spell_and("ab", 1), 65)->published_positions(), 64);
  EXPECT_EQ(BlockTable::admit(pool, spell("a"), 32)->published_positions(), 0);
}

TEST(BlockTable, SaltsDoNotMeet) {
  BlockPool pool(8);
  serve(pool, spell("ab"), 1);
  EXPECT_EQ(BlockTable::admit(pool, spell("abc"), 96, 2)->published_positions(), 0);
  EXPECT_EQ(BlockTable::admit(pool, spell("abc"), 96, 0)->published_positions(), 0);
  EXPECT_EQ(BlockTable::admit(pool, spell("abc"), 96, 1)->published_positions(), 64);
}

// Thirty-two users of one system prompt fit where two without sharing would.
TEST(BlockTable, SharedPrefixesCostOnce) {
  BlockPool pool(40);
  serve(pool, spell("aaaaaaaa"));
  std::vector<BlockTable> tables;
  for (int i = 0; i < 32; ++i) {
    auto table = BlockTable::admit(pool, spell_and("aaaaaaaa", 1 + i % 4), 9 * kBlockPositions);
    ASSERT_TRUE(table) << i;
    tables.push_back(*std::move(table));
  }
  EXPECT_EQ(pool.available(), 0);
  EXPECT_FALSE(BlockTable::admit(pool, spell_and("aaaaaaaa", 1), 257));
  for (BlockTable& table : tables) table.grow(9 * kBlockPositions);
  expect_sound(pool);
  tables.clear();
  EXPECT_EQ(pool.available(), 40);
  expect_sound(pool);
}

TEST(BlockTable, RunningTablesKeepTheirBlocksWhateverWaits) {
  BlockPool pool(6);
  auto first = BlockTable::admit(pool, {}, 4 * kBlockPositions);
  serve(pool, spell("ab"));
  EXPECT_FALSE(BlockTable::admit(pool, spell("abc"), 96)) << "two are found, and one is missing";
  EXPECT_EQ(pool.stats().evictable, 2);
  first->grow(4 * kBlockPositions);
  auto second = BlockTable::insure(pool, 64);
  ASSERT_TRUE(second);
  EXPECT_FALSE(BlockTable::insure(pool, 1));
  second->grow(64);
  EXPECT_EQ(pool.stats().evictable, 0);
  expect_sound(pool);
}

TEST(BlockTable, TruncatesPrivateBlocksWithoutCopies) {
  BlockPool pool(4);
  auto table = BlockTable::admit(pool, {}, 128);
  table->grow(128);
  const auto blocks = blocks_of(*table, 128);
  EXPECT_FALSE(table->truncate(33));
  EXPECT_EQ(pool.stats().private_blocks, 2);
  EXPECT_EQ(pool.stats().reserved, 2);
  EXPECT_THAT(table->covering(33), ElementsAre(blocks[0], blocks[1]));
  EXPECT_FALSE(table->truncate(32));
  EXPECT_FALSE(table->truncate(0));
  EXPECT_EQ(pool.stats().free, 4);
  EXPECT_EQ(table->capacity(), 128);
  table->grow(128);
  expect_sound(pool);
}

TEST(BlockTable, PublishesFullBlocksOnly) {
  BlockPool pool(4);
  auto table = BlockTable::admit(pool, {}, 128);
  const auto tokens = spell("abc");
  const auto prefix = [&](std::size_t n) { return std::span(tokens).first(n); };
  table->grow(96);
  table->publish({});
  table->publish(prefix(31));
  EXPECT_EQ(table->published_positions(), 0);
  table->publish(prefix(32));
  EXPECT_EQ(table->published_positions(), 32);
  table->publish(prefix(95));
  EXPECT_EQ(table->published_positions(), 64);
  table->publish(prefix(95));
  table->publish(prefix(96));
  EXPECT_EQ(table->published_positions(), 96);
  EXPECT_EQ(pool.stats().published, 3u);
  EXPECT_EQ(pool.stats().pinned, 3);
  expect_sound(pool);
}

TEST(BlockTable, TwoThatPublishTheSameShareIt) {
  BlockPool pool(8);
  const auto tokens = spell_and("ab", 1);
  auto first = BlockTable::admit(pool, tokens, 65);
  auto second = BlockTable::admit(pool, tokens, 65);
  first->grow(65);
  second->grow(65);
  EXPECT_NE(blocks_of(*first, 64), blocks_of(*second, 64));
  first->publish(tokens);
  second->publish(tokens);
  EXPECT_EQ(blocks_of(*first, 64), blocks_of(*second, 64));
  EXPECT_NE(blocks_of(*first, 65)[2], blocks_of(*second, 65)[2]) << "the open block is private";
  EXPECT_EQ(pool.stats().deduplicated, 2u);
  EXPECT_EQ(pool.stats().free, 4);
  expect_sound(pool);
}

// Admitted together, evaluated one after the other: the second skips what the first published.
TEST(BlockTable, FindsWhatOthersPublishMeanwhile) {
  BlockPool pool(8);
  const auto prompt = spell_and("abc", 5);
  auto first = BlockTable::admit(pool, prompt, 128);
  auto second = BlockTable::admit(pool, prompt, 128);
  second->grow(40);
  const auto evaluated = std::span(prompt).first(40);
  EXPECT_EQ(second->resume(evaluated, prompt).positions, 40) << "nothing is there yet";
  first->grow(101);
  first->publish(prompt);
  const auto resumed = second->resume(evaluated, prompt);
  EXPECT_EQ(resumed.positions, 96);
  EXPECT_FALSE(resumed.copy);
  EXPECT_EQ(blocks_of(*first, 96), blocks_of(*second, 96));
  EXPECT_EQ(second->capacity(), 128);
  EXPECT_EQ(pool.stats().hit_tokens, 56u);
  expect_sound(pool);
}

TEST(BlockTable, AnInsuredTableGoesAnywhereInAFullPool) {
  BlockPool pool(3);
  auto table = BlockTable::insure(pool, 96);
  const auto tokens = spell("abc");
  table->grow(96);
  table->publish(tokens);
  EXPECT_EQ(pool.stats().pinned, 3);
  EXPECT_EQ(pool.available(), 0);

  // Cut within its last block: no other block exists, so that one becomes private as it is.
  const auto before = blocks_of(*table, 96);
  EXPECT_FALSE(table->truncate(70));
  EXPECT_EQ(blocks_of(*table, 70), before);
  EXPECT_EQ(pool.stats().pinned, 2);
  table->publish(tokens);

  // Cut within its first block: the third is reused, which nobody needs now.
  const auto copy = table->truncate(1);
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->from, before[0]);
  EXPECT_EQ(copy->to, before[2]);
  EXPECT_THAT(table->covering(1), ElementsAre(before[2]));
  EXPECT_EQ(pool.stats().evictable, 2) << "what was left is still found";
  table->grow(96);
  EXPECT_EQ(pool.stats().private_blocks, 3);
  EXPECT_EQ(table->capacity(), 96);
  expect_sound(pool);
}

TEST(BlockTable, ResumesOtherPromptsFromWhatIsPublished) {
  BlockPool pool(8);
  serve(pool, spell("aab"));
  auto table = BlockTable::insure(pool, 128);
  const auto first = spell_and("aab", 3);
  EXPECT_EQ(table->resume({}, first).positions, 96);
  table->grow(99);

  // Differs from the third block's first token on.
  const auto second = spell("aac");
  EXPECT_EQ(table->resume(first, second).positions, 64);
  table->grow(96);
  // Differs in the third block's last token only; that block is published by now, and is kept.
  const auto third = spell_and("aaa", 9);
  auto resumed = table->resume(second, third);
  EXPECT_EQ(resumed.positions, 95);
  EXPECT_TRUE(resumed.copy);
  EXPECT_EQ(pool.stats().evictable, 2);
  // Back to what was there at first.
  resumed = table->resume(cut(third, 95), first);
  EXPECT_EQ(resumed.positions, 96);
  EXPECT_FALSE(resumed.copy);
  // The same again: its last token must be evaluated for its logits.
  table->grow(99);
  EXPECT_EQ(table->resume(first, first).positions, 98);
  EXPECT_EQ(table->resume(cut(first, 98), spell("aab")).positions, 95);
  EXPECT_EQ(table->resume(cut(first, 95), {}).positions, 0);
  EXPECT_EQ(table->capacity(), 128);
  expect_sound(pool);
}

TEST(BlockTable, ForkSharesFullBlocksAndCopiesTheOpenOne) {
  BlockPool pool(8);
  const auto tokens = spell_and("ab", 5);
  auto table = BlockTable::admit(pool, tokens, 96);
  table->grow(69);
  auto fork = table->fork(tokens, 128);
  ASSERT_TRUE(fork);
  const auto mine = blocks_of(*table, 69);
  const auto theirs = blocks_of(fork->table, 69);
  EXPECT_EQ(mine[0], theirs[0]);
  EXPECT_EQ(mine[1], theirs[1]);
  EXPECT_NE(mine[2], theirs[2]);
  ASSERT_TRUE(fork->copy);
  EXPECT_EQ(fork->copy->from, mine[2]);
  EXPECT_EQ(fork->copy->to, theirs[2]);
  EXPECT_EQ(fork->table.capacity(), 128);
  EXPECT_EQ(pool.available(), 8 - 3 - 2);

  // The shared blocks outlive the one that made them.
  table.reset();
  EXPECT_EQ(pool.stats().pinned, 2);
  expect_sound(pool);
  auto rest = BlockTable::admit(pool, {}, 4 * kBlockPositions);
  ASSERT_TRUE(rest);
  rest->grow(4 * kBlockPositions);
  EXPECT_EQ(blocks_of(fork->table, 69), theirs);
  EXPECT_EQ(pool.stats().evictions, 0u);
  expect_sound(pool);
}

TEST(BlockTable, ForkAtABlockEdgeCopiesNothing) {
  BlockPool pool(4);
  const auto tokens = spell("ab");
  auto table = BlockTable::admit(pool, tokens, 64);
  table->grow(64);
  auto fork = table->fork(tokens, 64);
  ASSERT_TRUE(fork);
  EXPECT_FALSE(fork->copy);
  EXPECT_EQ(blocks_of(*table, 64), blocks_of(fork->table, 64));
  auto empty = BlockTable::insure(pool, 32)->fork({}, 32);
  ASSERT_TRUE(empty);
  EXPECT_FALSE(empty->copy);
  expect_sound(pool);
}

TEST(BlockTable, AForkThatDoesNotFitChangesNothing) {
  BlockPool pool(5);
  const auto tokens = spell_and("ab", 5);
  auto shared = BlockTable::admit(pool, tokens, 96);
  shared->grow(69);
  EXPECT_FALSE(shared->fork(tokens, 160)) << "three more than the two it shares, and two are left";
  EXPECT_FALSE(shared->fork(tokens, kHuge));
  EXPECT_EQ(shared->published_positions(), 0);
  EXPECT_EQ(pool.stats().private_blocks, 3);
  EXPECT_TRUE(shared->fork(tokens, 128));
  shared.reset();
  auto insured = BlockTable::insure(pool, 96);
  insured->grow(69);
  EXPECT_FALSE(insured->fork(tokens, 96)) << "each insures all of its capacity";
  expect_sound(pool);
}

TEST(BlockTable, MovesWhatItOwnsOnce) {
  BlockPool pool(4), other(4);
  {
    auto first = BlockTable::admit(pool, {}, 64);
    first->grow(40);
    first->publish(spell("a"));
    auto second = BlockTable::admit(other, {}, 32);
    BlockTable moved = *std::move(first);
    EXPECT_EQ(moved.capacity(), 64);
    EXPECT_EQ(moved.published_positions(), 32);
    EXPECT_EQ(first->capacity(), 0);
    *second = std::move(moved);
    EXPECT_EQ(other.available(), 4) << "what it had is given back at once";
    EXPECT_EQ(second->capacity(), 64);
    EXPECT_EQ(pool.stats().private_blocks, 1);
    *first = *std::move(second);
    EXPECT_EQ(first->capacity(), 64);
  }
  EXPECT_EQ(pool.available(), 4);
  EXPECT_EQ(pool.stats().evictable, 1);
  expect_sound(pool);
}

// Random lives of many sequences, every move predicted by a model without any cleverness.
struct Move {
  int kind;
  std::size_t who;
  std::string letters;
  int n;
  int salt;
};

std::ostream& operator<<(std::ostream& out, const Move& move) {
  return out << fmt::format("({} {} {} {} {})", move.kind, move.who, move.letters, move.n,
                            move.salt);
}

// `n` tokens that go on with `letters`, block by block.
std::vector<Token> continued(const std::vector<Token>& tokens, const std::string& letters, int n) {
  std::vector<Token> more;
  const auto spelled = spell(letters);
  for (std::size_t pos = tokens.size(); static_cast<int>(more.size()) < n; ++pos) {
    more.push_back(spelled[pos % spelled.size()]);
  }
  return more;
}

void play(NaiveCache& cache, const Move& move) {
  const auto salt = static_cast<CacheSalt>(move.salt);
  if (move.kind < 3 || cache.size() == 0) {
    const auto prompt = cut(spell(move.letters), move.n);
    if (move.kind == 0) return cache.insure(move.n, salt);
    return cache.admit(prompt, static_cast<int>(prompt.size()) + move.n % 50, salt);
  }
  const std::size_t who = move.who % cache.size();
  const NaiveCache::Sequence& s = cache.at(who);
  const int room = s.blocks * kBlockPositions - s.length();
  switch (move.kind) {
    case 3:
      return cache.publish(who);
    case 4:
      return cache.grow(who, s.length() + move.n % (room + 1));
    case 5: {
      const int least = s.how == Pin::insured ? 0 : s.n_published * kBlockPositions;
      return cache.truncate(who, least + move.n % (s.length() - least + 1));
    }
    case 6: {
      if (s.how == Pin::insured) {
        return cache.resume(who, cut(spell(move.letters), std::min(move.n, s.length() + room)));
      }
      if (room == 0) return;
      auto prompt = s.tokens;
      const auto more = continued(prompt, move.letters, 1 + move.n % room);
      prompt.insert(prompt.end(), more.begin(), more.end());
      return cache.resume(who, prompt);
    }
    case 7:
      return cache.fork(who, s.length() + move.n % 40);
    case 8:
    case 9:
      return cache.end(who);
    case 10:
    case 11:
      cache.write(who, continued(s.tokens, move.letters, room));
      return cache.publish(who);
    default:
      return cache.write(who, continued(s.tokens, move.letters, move.n % (room + 1)));
  }
}

rc::Gen<Move> moves() {
  return rc::gen::build<Move>(
      rc::gen::set(&Move::kind, test::among(0, 17)),
      rc::gen::set(&Move::who, test::among<std::size_t>(0, 60)),
      rc::gen::set(&Move::letters,
                   rc::gen::element<std::string>("a", "ab", "aab", "aac", "abab", "ba", "daa")),
      rc::gen::set(&Move::n, test::among(0, 140)),
      rc::gen::set(&Move::salt, rc::gen::element(0, 0, 0, 1)));
}

TEST(BlockTable, AgreesWithANaiveModel) {
  test::property(2000, [] {
    NaiveCache cache(*test::among(0, 20),
                     test::kHashes[static_cast<std::size_t>(*test::among(0, 3))]);
    for (const Move& move : *rc::gen::scale(3, rc::gen::container<std::vector<Move>>(moves()))) {
      play(cache, move);
      cache.expect_agreement();
    }
  });
}

}  // namespace
}  // namespace kipp
