// Which band and which widths a query reads a key at, and which policies are refused.
#include "kvquant/tiered_policy.h"

#include <gmock/gmock.h>
#include <rapidcheck.h>

#include <array>
#include <climits>
#include <vector>

#include "support/property.h"

namespace kvquant {
namespace {

using test::property;

constexpr Tier kBf16{BitWidth::bf16, BitWidth::bf16};
constexpr Tier kInt8{BitWidth::int8, BitWidth::int8};
constexpr Tier kInt4{BitWidth::int4, BitWidth::int4};
constexpr Tier kInt2{BitWidth::int2, BitWidth::int2};

// Sink 2, recent 3, mid 2: small enough to have every border in one table.
TieredKvPolicy small_policy() {
  TieredKvPolicy policy;
  policy.sink_blocks = 2;
  policy.recent_blocks = 3;
  policy.mid_blocks = 2;
  policy.sink = {BitWidth::bf16, BitWidth::int8};
  policy.recent = kInt8;
  policy.mid = {BitWidth::int8, BitWidth::int4};
  policy.far = {BitWidth::int4, BitWidth::int2};
  return policy;
}

TEST(TieredKvPolicy, EveryBorderByHand) {
  const TieredKvPolicy policy = small_policy();
  // A query in block 10, which begins at position 320.
  for (const int query : {320, 335, 351}) {
    SCOPED_TRACE(query);
    EXPECT_EQ(policy.band(query, query), Band::open);
    EXPECT_EQ(policy.band(query, 320), Band::open);
    EXPECT_EQ(policy.band(query, 319), Band::recent);  // block 9, d = 1
    EXPECT_EQ(policy.band(query, 288), Band::recent);
    EXPECT_EQ(policy.band(query, 224), Band::recent);  // block 7, d = 3
    EXPECT_EQ(policy.band(query, 223), Band::mid);     // block 6, d = 4
    EXPECT_EQ(policy.band(query, 160), Band::mid);     // block 5, d = 5
    EXPECT_EQ(policy.band(query, 159), Band::far);     // block 4
    EXPECT_EQ(policy.band(query, 64), Band::far);      // block 2
    EXPECT_EQ(policy.band(query, 63), Band::sink);     // block 1
    EXPECT_EQ(policy.band(query, 0), Band::sink);
  }
  // One position later the query is in block 11, and every block is one further away.
  EXPECT_EQ(policy.band(352, 351), Band::recent);
  EXPECT_EQ(policy.band(352, 224), Band::mid);
  EXPECT_EQ(policy.band(352, 160), Band::far);
}

TEST(TieredKvPolicy, ASinkIsOpenWhileItIsBeingFilledAndASinkEverAfter) {
  const TieredKvPolicy policy = small_policy();
  EXPECT_EQ(policy.band(0, 0), Band::open);
  EXPECT_EQ(policy.band(31, 0), Band::open);
  EXPECT_EQ(policy.band(32, 31), Band::sink);
  EXPECT_EQ(policy.band(63, 32), Band::open);
  EXPECT_EQ(policy.band(64, 32), Band::sink);
  EXPECT_EQ(policy.band(INT_MAX, 0), Band::sink);
  EXPECT_EQ(policy.band(INT_MAX, 64), Band::far);
  EXPECT_EQ(policy.band(INT_MAX, INT_MAX), Band::open);
}

TEST(TieredKvPolicy, WidthsOfEveryBand) {
  const TieredKvPolicy policy = small_policy();
  EXPECT_EQ(policy.of(Band::open), kBf16);
  EXPECT_EQ(policy.of(Band::sink), policy.sink);
  EXPECT_EQ(policy.of(Band::recent), policy.recent);
  EXPECT_EQ(policy.of(Band::mid), policy.mid);
  EXPECT_EQ(policy.of(Band::far), policy.far);
  EXPECT_EQ(policy.tier(320, 0), policy.sink);
  EXPECT_EQ(policy.tier(320, 100), policy.far);
  EXPECT_EQ(policy.tier(320, 200), policy.mid);
  EXPECT_EQ(policy.tier(320, 300), policy.recent);
  EXPECT_EQ(policy.tier(320, 320), kBf16);
  EXPECT_EQ(policy.far.side(Side::key), BitWidth::int4);
  EXPECT_EQ(policy.far.side(Side::value), BitWidth::int2);
}

TEST(TieredKvPolicy, NamesOfBands) {
  EXPECT_STREQ(name_of(Band::open), "open");
  EXPECT_STREQ(name_of(Band::sink), "sink");
  EXPECT_STREQ(name_of(Band::recent), "recent");
  EXPECT_STREQ(name_of(Band::mid), "mid");
  EXPECT_STREQ(name_of(Band::far), "far");
}

TEST(TieredKvPolicy, MidIsAsWideAsRecentUnlessToldOtherwise) {
  TieredKvPolicy policy;
  EXPECT_EQ(policy.mid_blocks, TieredKvPolicy::kAsRecent);
  for (const int recent : {0, 1, 5, 8}) {
    SCOPED_TRACE(recent);
    policy.recent_blocks = recent;
    EXPECT_EQ(policy.mid_width(), recent);
    const int block = 100;  // of the query
    const auto band_at = [&](int distance) {
      return policy.band(block * kBlockPositions, (block - distance) * kBlockPositions);
    };
    if (recent > 0) {
      EXPECT_EQ(band_at(recent), Band::recent);
      EXPECT_EQ(band_at(recent + 1), Band::mid);
      EXPECT_EQ(band_at(2 * recent), Band::mid);
    }
    EXPECT_EQ(band_at(2 * recent + 1), Band::far);
  }
  policy.mid_blocks = 0;
  EXPECT_EQ(policy.mid_width(), 0);
  EXPECT_EQ(policy.band(9 * kBlockPositions + 8 * kBlockPositions, 8 * kBlockPositions), Band::far);
}

TEST(TieredKvPolicy, BandsOfNoBlocksAreSkipped) {
  TieredKvPolicy policy;
  policy.sink_blocks = 0;
  policy.recent_blocks = 0;
  policy.mid_blocks = 0;
  EXPECT_EQ(policy.band(31, 0), Band::open);
  EXPECT_EQ(policy.band(32, 31), Band::far);
  policy.mid_blocks = 1;
  EXPECT_EQ(policy.band(32, 31), Band::mid);
  EXPECT_EQ(policy.band(64, 31), Band::far);
}

// The bands of all blocks for a query in block `query`, laid out from the newest to the oldest.
std::vector<Band> bands_by_laying_out(const TieredKvPolicy& policy, int query) {
  std::vector<Band> newest_first{Band::open};
  newest_first.insert(newest_first.end(), static_cast<std::size_t>(policy.recent_blocks),
                      Band::recent);
  const int mid = policy.mid_blocks < 0 ? policy.recent_blocks : policy.mid_blocks;
  newest_first.insert(newest_first.end(), static_cast<std::size_t>(mid), Band::mid);
  newest_first.resize(static_cast<std::size_t>(query + 1), Band::far);
  std::vector<Band> bands(newest_first.rbegin(), newest_first.rend());
  for (int block = 0; block < query && block < policy.sink_blocks; ++block) {
    bands[static_cast<std::size_t>(block)] = Band::sink;
  }
  return bands;
}

TEST(TieredKvPolicy, EqualsBandsLaidOutBlockByBlock) {
  property([] {
    TieredKvPolicy policy;
    policy.sink_blocks = *rc::gen::inRange(0, 5);
    policy.recent_blocks = *rc::gen::inRange(0, 7);
    policy.mid_blocks = *rc::gen::inRange(-1, 7);
    const int query_block = *rc::gen::inRange(0, 24);
    const int query = query_block * kBlockPositions + *rc::gen::inRange(0, kBlockPositions);
    const std::vector<Band> expected = bands_by_laying_out(policy, query_block);
    for (int key = 0; key <= query; ++key) {
      const Band band = expected[static_cast<std::size_t>(key / kBlockPositions)];
      RC_ASSERT(policy.band(query, key) == band);
      RC_ASSERT(policy.tier(query, key) == policy.of(band));
    }
  });
}

TEST(TieredKvPolicy, IsAPureFunctionOfTheTwoPositions) {
  // Asked in any order, again, and of copies: the same answers.
  const TieredKvPolicy policy = small_policy();
  std::vector<Band> forward;
  for (int query = 0; query < 400; query += 7) {
    for (int key = 0; key <= query; ++key) forward.push_back(policy.band(query, key));
  }
  const TieredKvPolicy copy = policy;
  std::size_t at = forward.size();
  for (int query = 399; query >= 0; query -= 7) {
    for (int key = query; key >= 0; --key) ASSERT_EQ(copy.band(query, key), forward[--at]);
  }
  EXPECT_EQ(at, 0u);
}

TEST(TieredKvPolicy, ABlockOnlyEverMovesAway) {
  property([] {
    TieredKvPolicy policy;
    policy.sink_blocks = *rc::gen::inRange(0, 3);
    policy.recent_blocks = *rc::gen::inRange(0, 4);
    policy.mid_blocks = *rc::gen::inRange(-1, 4);
    const int key = *rc::gen::inRange(0, 200);
    Band before = Band::open;
    for (int query = key; query < key + 500; ++query) {
      const Band band = policy.band(query, key);
      RC_ASSERT(band >= before);
      if (before == Band::sink) RC_ASSERT(band == Band::sink);
      before = band;
    }
  });
}

// --- refused policies

KvScheme int8_scheme() { return {}; }

std::string refusal(const TieredKvPolicy& policy, const KvScheme& scheme) {
  const Status status = validate(policy, scheme);
  if (status.ok()) return "accepted";
  EXPECT_EQ(status.code(), Code::invalid_argument);
  return status.message();
}

TEST(TieredKvPolicyRefusals, GoodOnesAreAccepted) {
  EXPECT_EQ(refusal({}, int8_scheme()), "accepted");
  TieredKvPolicy everything_bf16;
  everything_bf16.mid = everything_bf16.far = kBf16;
  KvScheme bf16;
  bf16.key.bits = bf16.value.bits = BitWidth::bf16;
  EXPECT_EQ(refusal(everything_bf16, bf16), "accepted");
  EXPECT_EQ(refusal(everything_bf16, int8_scheme()), "accepted");
  TieredKvPolicy widest;
  widest.sink_blocks = widest.recent_blocks = widest.mid_blocks = INT_MAX / 4;
  EXPECT_EQ(refusal(widest, int8_scheme()), "accepted");
  EXPECT_EQ(widest.band(INT_MAX, 0), Band::sink);
  // The sink may be narrower or wider than the bands that follow it.
  TieredKvPolicy narrow_sink;
  narrow_sink.sink = kInt2;
  EXPECT_EQ(refusal(narrow_sink, int8_scheme()), "accepted");
}

TEST(TieredKvPolicyRefusals, BlockCounts) {
  TieredKvPolicy policy;
  policy.sink_blocks = -1;
  EXPECT_EQ(refusal(policy, int8_scheme()), "sink_blocks: expected 0 to 536870911, found -1");
  policy = {};
  policy.recent_blocks = -3;
  EXPECT_EQ(refusal(policy, int8_scheme()), "recent_blocks: expected 0 to 536870911, found -3");
  policy.recent_blocks = INT_MAX;
  EXPECT_EQ(refusal(policy, int8_scheme()),
            "recent_blocks: expected 0 to 536870911, found 2147483647");
  policy = {};
  policy.mid_blocks = -2;
  EXPECT_EQ(refusal(policy, int8_scheme()),
            "mid_blocks: expected 0 to 536870911, or -1 for as many as recent_blocks, found -2");
}

TEST(TieredKvPolicyRefusals, WidthsTheSchemeCannotBeReadAt) {
  KvScheme scheme;
  scheme.value.bits = BitWidth::int4;
  scheme.value.narrowest = BitWidth::int4;
  TieredKvPolicy policy;
  EXPECT_EQ(refusal(policy, scheme),
            "far value: expected bf16, or a width its scheme can be read at (int4 to int4), found "
            "int2");
  policy.far.value = BitWidth::int4;
  EXPECT_EQ(refusal(policy, scheme), "accepted");
  policy.sink.value = BitWidth::int8;
  EXPECT_EQ(refusal(policy, scheme),
            "sink value: expected bf16, or a width its scheme can be read at (int4 to int4), found "
            "int8");
  policy.sink = kBf16;
  scheme.key.bits = BitWidth::int2;
  EXPECT_EQ(refusal(policy, scheme),
            "mid key: expected bf16, or a width its scheme can be read at (int2 to int2), found "
            "int4");
}

TEST(TieredKvPolicyRefusals, SchemesOfBf16Only) {
  KvScheme scheme;
  scheme.key.bits = BitWidth::bf16;
  TieredKvPolicy policy;
  EXPECT_EQ(refusal(policy, scheme),
            "mid key: expected bf16, the only width of its scheme, found int4");
  policy.mid.key = policy.far.key = BitWidth::bf16;
  EXPECT_EQ(refusal(policy, scheme), "accepted");
  policy.sink.key = BitWidth::int8;
  EXPECT_EQ(refusal(policy, scheme),
            "sink key: expected bf16, the only width of its scheme, found int8");
}

TEST(TieredKvPolicyRefusals, WidthsThatGrowWithDistance) {
  TieredKvPolicy policy;
  policy.recent = kInt4;
  policy.mid = {BitWidth::int8, BitWidth::int4};
  policy.far = kInt2;
  EXPECT_EQ(refusal(policy, int8_scheme()),
            "mid key: expected at most int4, the width of the recent band, found int8: a plane "
            "that was freed would be needed again");
  policy.mid = kInt4;
  policy.far.value = BitWidth::bf16;
  EXPECT_EQ(refusal(policy, int8_scheme()),
            "far value: expected at most int4, the width of the mid band, found bf16: a plane that "
            "was freed would be needed again");
}

TEST(TieredKvPolicyRefusals, NumbersThatAreNoWidth) {
  TieredKvPolicy policy;
  policy.far.key = static_cast<BitWidth>(3);  // between two that are
  EXPECT_EQ(refusal(policy, int8_scheme()), "far key: expected a width of 16, 8, 4 or 2, found 3");
  policy = {};
  policy.recent.value = static_cast<BitWidth>(0);
  EXPECT_EQ(refusal(policy, int8_scheme()),
            "recent value: expected a width of 16, 8, 4 or 2, found 0");
}

TEST(TieredKvPolicyRefusals, EveryPolicyOfWidthsByTheRule) {
  // All 4^4 choices of one side's widths against all schemes: accepted exactly when each can be
  // read and none grows from recent to far.
  constexpr std::array kWidths{BitWidth::int2, BitWidth::int4, BitWidth::int8, BitWidth::bf16};
  int accepted = 0;
  for (const BitWidth bits : kWidths) {
    for (const BitWidth narrowest : {BitWidth::int2, BitWidth::int4, BitWidth::int8}) {
      if (narrowest > bits) continue;
      KvScheme scheme;
      scheme.value.bits = bits;
      scheme.value.narrowest = narrowest;
      for (int choice = 0; choice < 256; ++choice) {
        TieredKvPolicy policy;
        BitWidth* const sides[] = {&policy.sink.value, &policy.recent.value, &policy.mid.value,
                                   &policy.far.value};
        bool readable = true;
        for (int i = 0; i < 4; ++i) {
          const BitWidth width = kWidths[static_cast<std::size_t>(choice >> 2 * i & 3)];
          *sides[i] = width;
          const bool coded = bits != BitWidth::bf16 && narrowest <= width && width <= bits;
          readable = readable && (width == BitWidth::bf16 || coded);
        }
        const bool falls =
            policy.far.value <= policy.mid.value && policy.mid.value <= policy.recent.value;
        ASSERT_EQ(validate(policy, scheme).ok(), readable && falls) << choice;
        accepted += readable && falls ? 1 : 0;
      }
    }
  }
  EXPECT_GT(accepted, 50);
}

}  // namespace
}  // namespace kvquant
