#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "support/naive_tiers.h"
#include "support/prefixes.h"
#include "support/property.h"

namespace kipp {
namespace {

using test::NaiveTiers;
using test::ObedientDevice;
using test::spell;
using test::Tokens;

// As kv_policy.h numbers them, for one layer: of keys, then of values, hi2, mid2, low4, bf16; then
// the same of layers that stand apart.
enum Width { kInt2 = 0, kInt4 = 1, kInt8 = 2, kBf16 = 3 };
constexpr unsigned side_planes(int width) {
  return width == kBf16 ? 8u : width == kInt8 ? 7u : width == kInt4 ? 3u : 1u;
}
constexpr PlaneBits planes(int key, int value) {
  return static_cast<PlaneBits>(side_planes(key) | side_planes(value) << 4);
}
constexpr std::array<int, kMaxPlanes> kOneLayer = {1, 1, 2, 8, 1, 1, 2, 8};

// The preset `tiered` with narrower bands: 16 units open, 8 recent, 6 mid, 4 far.
PlanePlan tiered(int total_units) {
  PlanePlan plan;
  plan.units = kOneLayer;
  plan.total_units = total_units;
  plan.sink_blocks = 1;
  plan.recent_blocks = 2;
  plan.mid_blocks = 1;
  plan.step_blocks = 4;
  plan.open = planes(kBf16, kBf16);
  plan.sink = planes(kInt8, kInt8);
  plan.recent = planes(kInt8, kInt8);
  plan.mid = planes(kInt8, kInt4);
  plan.far = planes(kInt4, kInt4);
  return plan;
}

constexpr PlaneBits kFar = planes(kInt4, kInt4);
constexpr PlaneBits kMid = planes(kInt8, kInt4);
constexpr PlaneBits kRecent = planes(kInt8, kInt8);
constexpr PlaneBits kOpen = planes(kBf16, kBf16);

void expect_sound(const BlockPool& pool) {
  const auto sound = pool.check();
  EXPECT_TRUE(sound) << sound.error().message;
}

std::vector<PlaneBits> held(const BlockPool& pool, const BlockTable& table, int positions) {
  std::vector<PlaneBits> planes;
  for (const BlockId id : table.covering(positions)) planes.push_back(pool.held(id));
  return planes;
}

// Appends so that the table holds all of `tokens`.
void evaluate(BlockTable& table, const Tokens& tokens, int begin) {
  table.grow(begin, static_cast<int>(tokens.size()));
  table.publish(tokens);
}

// What `letters` spell, evaluated and left.
void serve(BlockPool& pool, const std::string& letters) {
  const Tokens tokens = spell(letters);
  auto table = BlockTable::admit(pool, tokens, static_cast<int>(tokens.size()));
  ASSERT_TRUE(table);
  evaluate(*table, tokens, table->published_positions());
}

// Takes all memory that is promised to nobody, so that only what is needed stays.
void squeeze(BlockPool& pool) {
  std::vector<BlockTable> tables;
  for (int blocks = pool.total(); blocks > 0; --blocks) {
    while (auto table = BlockTable::insure(pool, blocks * kBlockPositions)) {
      // Twice so many tokens as one step takes would be refused by no backend, but promised to
      // nobody.
      for (int at = 0; at < blocks; ++at) {
        table->grow(at * kBlockPositions, at * kBlockPositions + kBlockPositions - 1);
        table->grow(at * kBlockPositions + kBlockPositions - 1, (at + 1) * kBlockPositions);
        table->advance((at + 1) * kBlockPositions);
      }
      tables.push_back(*std::move(table));
    }
  }
}

TEST(TieredPool, HoldsWhatTheNextQueryReads) {
  BlockPool pool(64, tiered(400));
  auto table = BlockTable::admit(pool, {}, 8 * kBlockPositions);
  ASSERT_TRUE(table);
  auto tokens = spell("aaabab");
  tokens.resize(5 * kBlockPositions + 3);
  evaluate(*table, tokens, 0);
  const auto all = held(pool, *table, 6 * kBlockPositions);
  EXPECT_THAT(all, testing::ElementsAre(kRecent, kRecent, kRecent, kRecent, kRecent, kOpen))
      << "planes that nobody needs now stay while there is room";
  squeeze(pool);
  const std::vector<PlaneBits> needed = {kRecent, kFar, kMid, kRecent, kRecent, kOpen};
  EXPECT_EQ(held(pool, *table, 6 * kBlockPositions), needed);
  // Up to the end of the open block nothing changes.
  for (int length = 164; length < 192; ++length) {
    table->grow(length - 1, length);
    EXPECT_EQ(pool.held(table->covering(length).back()), kOpen);
    table->advance(length);
  }
  table->grow(191, 192);
  EXPECT_EQ(pool.held(table->covering(192).back()), kOpen | kRecent) << "its codes are made now";
  table->publish(spell("aaabab"));
  squeeze(pool);
  EXPECT_THAT(held(pool, *table, 192),
              testing::ElementsAre(kRecent, kFar, kFar, kMid, kRecent, kRecent));
  expect_sound(pool);
}

TEST(TieredPool, TakesOpenPlanesOnlyForWhatStaysOpen) {
  BlockPool pool(64, tiered(400));
  auto table = BlockTable::admit(pool, {}, 8 * kBlockPositions);
  table->grow(0, 40);
  EXPECT_THAT(held(pool, *table, 40), testing::ElementsAre(kRecent, kOpen));
  table->advance(40);
  table->grow(40, 130);
  EXPECT_THAT(held(pool, *table, 130),
              testing::ElementsAre(kRecent, kOpen | kRecent, kRecent, kRecent, kOpen));
  table->advance(130);
  EXPECT_THAT(held(pool, *table, 130),
              testing::ElementsAre(kRecent, kRecent, kRecent, kRecent, kOpen));
  // What may be taken back keeps its rows until it is known to stay.
  table->grow(130, 162, false);
  EXPECT_EQ(pool.held(table->covering(160).back()), kOpen | kRecent);
  EXPECT_EQ(table->kept(135), 135);
  table->truncate(135);
  EXPECT_THAT(held(pool, *table, 135),
              testing::ElementsAre(kRecent, kRecent, kRecent, kRecent, kOpen));
  expect_sound(pool);
}

// Others evaluate block after block, until so many planes have been dropped for it.
void press(BlockPool& pool, std::uint64_t demotions) {
  static CacheSalt salt = 1000;
  const auto tokens = spell("aaaaaaaa");
  for (int round = 0; pool.stats().demotions < demotions; ++round) {
    ASSERT_LT(round, 20);
    auto table = BlockTable::admit(pool, {}, 8 * kBlockPositions, ++salt);
    ASSERT_TRUE(table);
    for (int at = 0; pool.stats().demotions < demotions && at < table->capacity();) {
      EXPECT_TRUE(pool.stats().demotions == 0 || pool.stats().free_units < 8)
          << "nothing is dropped before its memory is needed";
      table->grow(at, at + kBlockPositions);
      at += kBlockPositions;
      table->publish(std::span(tokens).first(static_cast<std::size_t>(at)));
    }
  }
}

int hit(BlockPool& pool, const std::string& letters) {
  const auto prompt = spell(letters + "d");
  return BlockTable::admit(pool, prompt, static_cast<int>(prompt.size()))->published_positions();
}

TEST(TieredPool, AHitIsAsLongAsItCanBeRead) {
  BlockPool idle(64, tiered(102)), pool(64, tiered(102));
  serve(idle, "aaabab");
  EXPECT_EQ(hit(idle, "aaabab"), 192);
  EXPECT_EQ(hit(idle, "aaa"), 96) << "there, too, all planes are still held";
  EXPECT_EQ(idle.stats().shortened_hits, 0u);

  serve(pool, "aaabab");
  // The planes that the sequence has left behind go first: it can still go on from its end, but no
  // other can branch off before.
  press(pool, 5);
  EXPECT_EQ(hit(pool, "aaabab"), 192);
  EXPECT_EQ(hit(pool, "aaa"), 32) << "only the sink is whole";
  EXPECT_EQ(pool.stats().shortened_hits, 1u);
  EXPECT_EQ(pool.stats().shortened_tokens, 64u);
  EXPECT_EQ(pool.stats().evictions, 0u);

  press(pool, 20);
  EXPECT_EQ(hit(pool, "aaabab"), 32);
  EXPECT_LT(hit(pool, "a"), 64);
  expect_sound(pool);
}

TEST(TieredPool, ADuplicateGivesWhatTheOtherHasLost) {
  BlockPool pool(64, tiered(102));
  serve(pool, "aaabab");
  press(pool, 5);
  ASSERT_EQ(hit(pool, "aaa"), 32);
  ObedientDevice device(pool.plan(), pool.total());
  device.obey(pool);
  serve(pool, "aaa");
  EXPECT_EQ(pool.stats().deduplicated, 2u);
  device.obey(pool);
  EXPECT_EQ(hit(pool, "aaa"), 96);
  for (BlockId id = 0; id < pool.total(); ++id) EXPECT_EQ(device.held(id), pool.held(id));
  expect_sound(pool);
}

TEST(TieredPool, DropsWhatWasUsedLeastRecently) {
  BlockPool pool(64, tiered(102));
  serve(pool, "aaa");
  serve(pool, "bbb");
  EXPECT_EQ(pool.stats().demotions, 0u);
  ASSERT_EQ(hit(pool, "aaa"), 96);
  press(pool, 3);
  EXPECT_EQ(hit(pool, "aaa"), 96) << "used since";
  EXPECT_LT(hit(pool, "bbb"), 96);
  expect_sound(pool);
}

TEST(TieredPool, GoesBackAsFarAsItCanReadOn) {
  BlockPool pool(64, tiered(260));
  auto table = BlockTable::insure(pool, 8 * kBlockPositions);
  auto tokens = spell("aaabab");
  tokens.resize(170);
  evaluate(*table, tokens, 0);
  EXPECT_EQ(table->kept(169), 169);
  EXPECT_EQ(table->kept(150), 128) << "the rows of a complete block are gone";
  EXPECT_EQ(table->kept(64), 64);
  const auto branch = spell("aab");
  EXPECT_EQ(table->match(tokens, branch), 64);
  squeeze(pool);
  EXPECT_EQ(table->kept(169), 169);
  EXPECT_EQ(table->kept(160), 160);
  EXPECT_EQ(table->kept(150), 32) << "what is far now was recent then";
  EXPECT_EQ(table->match(tokens, branch), 32);
  const auto resumed = table->resume(tokens, branch);
  EXPECT_EQ(resumed.positions, 32);
  EXPECT_EQ(resumed.found, 0);
  evaluate(*table, branch, 32);
  EXPECT_EQ(table->published_positions(), 96);
  expect_sound(pool);
}

// Blocks were stored with more than a sequence of that length needs, and more than it is promised.
TEST(TieredPool, RestoresWithinItsPromise) {
  constexpr int kBlocks = 20, kLength = kBlocks * kBlockPositions;
  const PlanePlan plan = tiered(0);
  BlockPool pool(64, tiered(plan.step_units() + plan.quota(kBlocks) + kBlocks * 4));
  auto table = BlockTable::insure(pool, kLength);
  ASSERT_TRUE(table);
  for (int i = 0; i < kBlocks; ++i) {
    const BlockId id = table->grow_restored(kLength, kRecent);
    EXPECT_EQ(pool.held(id), kRecent);
    expect_sound(pool);
  }
  const auto tokens = spell(std::string(kBlocks, 'a'));
  table->publish(tokens);
  EXPECT_EQ(table->kept(kLength), kLength);
  EXPECT_GT(pool.stats().demotions, 0u);
  expect_sound(pool);
}

TEST(TieredPool, PromisesInUnits) {
  const PlanePlan plan = tiered(0);
  // A window of two recent blocks and one mid one, the block that is
  // completed beside them, two open ones, and the sink.
  EXPECT_EQ(plan.quota(8), 2 * 4 + 1 * 2 + 4 + 2 * 16 + 4);
  EXPECT_EQ(plan.quota(1), 4 + 16 + 4);
  EXPECT_EQ(plan.quota(0), 0);
  EXPECT_EQ(plan.step_units(), 4 * 4);
  for (int spare = 0; spare < 2; ++spare) {
    BlockPool pool(64, tiered(plan.step_units() + 2 * (plan.quota(8) + 8 * 4) - 1 + spare));
    EXPECT_EQ(pool.can_promise(8), true);
    auto first = BlockTable::insure(pool, 256);
    auto second = BlockTable::insure(pool, 256);
    EXPECT_TRUE(first);
    EXPECT_EQ(second.has_value(), spare == 1);
    EXPECT_FALSE(pool.can_promise(8));
    const PoolStats stats = pool.stats();
    EXPECT_EQ(stats.promised_units, spare == 1 ? stats.total_units : 16 + 50 + 32);
    EXPECT_EQ(stats.free_units, stats.total_units);
  }
  EXPECT_EQ(BlockPool(64, tiered(16 + 50 + 40)).max_positions(), 320);
  EXPECT_EQ(BlockPool(64, tiered(16 + 50 + 39)).max_positions(), 288);
  EXPECT_EQ(BlockPool(7, tiered(1000)).max_positions(), 224);
  EXPECT_EQ(BlockPool(64, tiered(20)).max_positions(), 0);
  EXPECT_EQ(BlockPool(7).max_positions(), 224);
}

TEST(TieredPool, KnowsBandsByTheirEdges) {
  const PlanePlan plan = tiered(0);
  const auto needed = [&](int block) { return plan.needed(10, block); };
  EXPECT_EQ(needed(9), kRecent);
  EXPECT_EQ(needed(8), kRecent);
  EXPECT_EQ(needed(7), kMid);
  EXPECT_EQ(needed(6), kFar);
  EXPECT_EQ(needed(1), kFar);
  EXPECT_EQ(needed(0), kRecent) << "the sink";
  EXPECT_EQ(plan.at_rest(320, 9), kRecent);
  EXPECT_EQ(plan.at_rest(319, 9), kOpen);
  EXPECT_EQ(plan.at_rest(319, 6), kMid);
  // Nearer bands keep what farther ones read.
  PlanePlan rows = plan;
  rows.recent = kOpen;
  EXPECT_EQ(rows.needed(10, 9), kOpen | kMid);
  EXPECT_EQ(rows.needed(10, 7), kMid);
  rows.mid_blocks = 0;
  EXPECT_EQ(rows.needed(10, 9), kOpen | kFar);
  EXPECT_EQ(rows.needed(10, 7), kFar);
}

// --- random lives --------------------------------------------------------------------------------

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
Tokens continued(const Tokens& tokens, const std::string& letters, int n) {
  Tokens more;
  const auto spelled = spell(letters);
  for (std::size_t pos = tokens.size(); static_cast<int>(more.size()) < n; ++pos) {
    more.push_back(spelled[pos % spelled.size()]);
  }
  return more;
}

// A step of up to three sequences within what one step takes.
void step(NaiveTiers& cache, const Move& move, bool publishes, bool fails) {
  std::vector<NaiveTiers::Share> shares;
  int left = cache.pool().plan().step_blocks * kBlockPositions + kBlockPositions - 1;
  for (std::size_t i = 0; i < std::min<std::size_t>(cache.size(), 1 + move.who % 3); ++i) {
    const std::size_t who = (move.who + i) % cache.size();
    const NaiveTiers::Sequence& s = cache.at(who);
    const int n = std::min({s.room(), left, i == 0 ? 1 + move.n : 1 + move.n % 40});
    if (n < 1) continue;
    left -= n;
    shares.push_back({.who = who, .tokens = continued(s.tokens, move.letters, n)});
  }
  cache.step(shares, publishes, 0, fails);
}

void speculate(NaiveTiers& cache, const Move& move) {
  const std::size_t who = move.who % cache.size();
  const int n = std::min({cache.at(who).room(), kBlockPositions, 1 + move.n % 40});
  if (n < 1) return;
  cache.step(
      {{.who = who, .tokens = continued(cache.at(who).tokens, move.letters, n), .final = false}},
      true, 1 + move.salt + move.n / 40, false);
}

void play(NaiveTiers& cache, const Move& move) {
  const auto salt = static_cast<CacheSalt>(move.salt);
  if (move.kind < 3 || cache.size() == 0) {
    auto prompt = spell(move.letters + move.letters);
    prompt.resize(std::min(prompt.size(), static_cast<std::size_t>(move.n)));
    if (move.kind == 0) return cache.insure(move.n, salt);
    return cache.admit(prompt, static_cast<int>(prompt.size()) + move.n % 90, salt);
  }
  const std::size_t who = move.who % cache.size();
  const NaiveTiers::Sequence& s = cache.at(who);
  switch (move.kind) {
    case 3:
      return cache.publish(who);
    case 4:
      return step(cache, move, true, true);
    case 5:
      return cache.truncate(who, move.n % (s.length() + 1));
    case 6: {
      auto prompt = spell(move.letters + move.letters);
      if (s.how == Pin::insured) {
        prompt.resize(std::min({prompt.size(), static_cast<std::size_t>(move.n),
                                static_cast<std::size_t>(s.blocks * kBlockPositions)}));
        return cache.resume(who, prompt);
      }
      if (s.room() == 0) return;
      prompt = s.tokens;
      const auto more = continued(prompt, move.letters, 1 + move.n % s.room());
      prompt.insert(prompt.end(), more.begin(), more.end());
      return cache.resume(who, prompt);
    }
    case 7:
      return cache.fork(who, s.length() + move.n % 60);
    case 8:
      return cache.end(who);
    case 9:
      return cache.save(who);
    case 10:
      return s.how == Pin::insured ? cache.restore(who) : cache.save(who);
    case 11:
    case 12:
      return speculate(cache, move);
    case 13:
      return step(cache, move, false, false);
    default:
      return step(cache, move, true, false);
  }
}

rc::Gen<Move> moves() {
  return rc::gen::build<Move>(
      rc::gen::set(&Move::kind, test::among(0, 20)),
      rc::gen::set(&Move::who, test::among<std::size_t>(0, 60)),
      rc::gen::set(&Move::letters,
                   rc::gen::element<std::string>("a", "ab", "aab", "aac", "abab", "ba", "daa")),
      rc::gen::set(&Move::n, test::among(0, 220)),
      rc::gen::set(&Move::salt, rc::gen::element(0, 0, 0, 1)));
}

// Widths of one side that do not grow with distance; the last one, the base, is mostly narrow.
std::array<int, 4> any_widths() {
  std::array<int, 4> widths = {*test::among(0, 4), *test::among(0, 4), *test::among(0, 4),
                               *test::among(0, 5) % 4};
  std::sort(widths.begin() + 1, widths.end(), std::greater<>());
  return widths;
}

PlanePlan any_plan() {
  PlanePlan plan;
  plan.units = kOneLayer;
  const bool apart = *test::among(0, 3) == 0;
  if (apart) std::ranges::copy_n(kOneLayer.begin(), 8, plan.units.begin() + 8);
  plan.sink_blocks = *test::among(0, 3);
  plan.recent_blocks = *test::among(0, 6) % 4;
  plan.mid_blocks = *test::among(0, 4);
  plan.step_blocks = *test::among(1, 5);
  const auto keys = any_widths(), values = any_widths();
  std::array<unsigned, 4> masks;
  for (std::size_t i = 0; i < 4; ++i) masks[i] = planes(keys[i], values[i]);
  if (apart) {
    const auto far_keys = any_widths(), far_values = any_widths();
    for (std::size_t i = 0; i < 4; ++i) {
      masks[i] |= static_cast<unsigned>(planes(far_keys[i], far_values[i])) << 8;
    }
  }
  const unsigned open = planes(kBf16, kBf16);
  plan.open = static_cast<PlaneBits>(open | open << 8);
  plan.sink = static_cast<PlaneBits>(masks[0]);
  plan.recent = static_cast<PlaneBits>(masks[1]);
  plan.mid = static_cast<PlaneBits>(masks[2]);
  plan.far = static_cast<PlaneBits>(masks[3]);
  return plan;
}

// What a table may hold beyond its blocks' base is what it was promised, whatever its step.
TEST(TieredPool, QuotasCoverEveryStep) {
  test::property(300, [] {
    const PlanePlan plan = any_plan();
    const int blocks = *test::among(1, 12);
    const int begin = *test::among(0, blocks * kBlockPositions);
    const bool final = *test::among(0, 2) == 0;
    const int most = std::min(blocks * kBlockPositions - begin, final ? 400 : kBlockPositions);
    const int end = begin + *test::among(1, most + 1);
    const int query = begin / kBlockPositions;
    int units = 0, whole_blocks = 0;
    for (int b = 0; b < blocks_for(end); ++b) {
      const bool completes = (b + 1) * kBlockPositions <= end;
      const bool whole = completes && b * kBlockPositions >= begin;
      unsigned needs = completes ? test::ever_read(plan, std::max(query, b + 1), b) : 0u;
      if (b >= query && (!whole || !final)) needs |= plan.open;
      units += test::count_units(plan, needs);
      whole_blocks += whole ? 1 : 0;
    }
    const int shared = plan.step_units() / plan.step_blocks * whole_blocks;
    RC_ASSERT(units <= plan.quota(blocks) + shared + blocks_for(end) * plan.base_units());
  });
}

TEST(TieredPool, AgreesWithANaiveModel) {
  test::property(1000, [] {
    PlanePlan plan = any_plan();
    // Ids are short in few cases, units in most.
    const int ids = *test::among(0, 4) == 0 ? *test::among(1, 12) : *test::among(12, 60);
    const int longest = *test::among(1, 9);
    plan.total_units = plan.step_units() + plan.quota(longest) + longest * plan.base_units() +
                       *test::among(0, 150);
    NaiveTiers cache(ids, plan);
    for (const Move& move : *rc::gen::scale(3, rc::gen::container<std::vector<Move>>(moves()))) {
      play(cache, move);
      cache.expect_agreement();
    }
    cache.expect_nothing_left();
  });
}

}  // namespace
}  // namespace kipp
