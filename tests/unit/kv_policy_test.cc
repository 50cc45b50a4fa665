#include "backend/kv_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvquant/kv_block.h"

namespace kipp {
namespace {

using kvquant::Band;
using kvquant::BitWidth;
using kvquant::Plane;
using kvquant::Side;
using kvquant::Tier;

constexpr ModelConfig kSmall = {.hidden = 1024,
                                .layers = 28,
                                .query_heads = 16,
                                .intermediate = 3072,
                                .context_length = 40960,
                                .rope_theta = 1000000,
                                .tied = true};

KvPolicy parsed(std::string_view text) {
  const auto policy = KvPolicy::parse(text);
  EXPECT_TRUE(policy) << policy.error().message;
  return policy.value_or(KvPolicy());
}

std::string refusal(std::string_view text) {
  const auto policy = KvPolicy::parse(text);
  return policy ? "taken" : policy.error().message;
}

Tier both(BitWidth width) { return {width, width}; }

TEST(KvPolicy, PresetsAreThoseThatAreNamed) {
  for (const std::string_view name : KvPolicy::preset_names()) {
    EXPECT_EQ(parsed(name).name(), name);
    EXPECT_EQ(parsed(name).all_bf16(), name == "bf16");
    // kvquant takes the scheme.
    const auto layout = kvquant::BlockLayout::make({.kv_heads = kKvHeads, .head_width = kHeadDim},
                                                   parsed(name).scheme());
    EXPECT_TRUE(layout.ok()) << name << ": " << layout.status().message();
  }
  EXPECT_EQ(parsed("bf16"), KvPolicy());
}

TEST(KvPolicy, BandsCountBlocksOf32Positions) {
  const KvPolicy policy = parsed("sink=1:int8,recent=2:bf16,mid=3:int8/int4,far=int4/int2");
  const auto tier = [&](int query, int key) { return policy.tier(LayerGroup::common, query, key); };
  EXPECT_EQ(tier(9, 9), both(BitWidth::bf16));
  EXPECT_EQ(tier(9, 8), both(BitWidth::bf16));
  EXPECT_EQ(tier(9, 7), both(BitWidth::bf16));
  EXPECT_EQ(tier(9, 6), (Tier{BitWidth::int8, BitWidth::int4}));
  EXPECT_EQ(tier(9, 4), (Tier{BitWidth::int8, BitWidth::int4}));
  EXPECT_EQ(tier(9, 3), (Tier{BitWidth::int4, BitWidth::int2}));
  EXPECT_EQ(tier(9, 0), both(BitWidth::int8));
  EXPECT_EQ(tier(1, 0), both(BitWidth::int8)) << "a sink is a sink, however near";
  EXPECT_EQ(tier(0, 0), both(BitWidth::bf16));
}

TEST(KvPolicy, PlanesFollowFromWidths) {
  const KvPolicy policy = parsed("sink=1:int8,recent=2:bf16,mid=3:int8/int4,far=int4/int2");
  const auto bit = [](Side side, Plane plane) {
    return static_cast<unsigned>(plane_bit(LayerGroup::common, side, plane));
  };
  const unsigned apart = 0xff00;
  const unsigned far =
      bit(Side::key, Plane::hi2) | bit(Side::key, Plane::mid2) | bit(Side::value, Plane::hi2);
  EXPECT_EQ(policy.planes(Band::far) & ~apart, far);
  EXPECT_EQ(policy.planes(Band::mid) & ~apart,
            far | bit(Side::key, Plane::low4) | bit(Side::value, Plane::mid2));
  EXPECT_EQ(policy.planes(Band::recent) & ~apart,
            bit(Side::key, Plane::bf16) | bit(Side::value, Plane::bf16));
  EXPECT_EQ(policy.planes(Band::open), policy.planes(Band::recent));
  EXPECT_EQ(policy.planes_needed(9, 3), policy.planes(Band::far));
  EXPECT_EQ(policy.planes_needed(9, 9), policy.planes(Band::open));
}

// Bits of one element of a block, scales and offsets included.
double bits(const KvPolicy& policy, Band band) {
  const double elements = 2.0 * kKvWidth * kBlockPositions * kSmall.layers;
  const auto units = static_cast<std::size_t>(policy.units(policy.planes(band), kSmall));
  return static_cast<double>(units * kKvUnitBytes + policy.parameter_bytes(kSmall)) * 8 / elements;
}

TEST(KvPolicy, CountsEveryByte) {
  EXPECT_DOUBLE_EQ(bits(KvPolicy(), Band::far), 16);
  EXPECT_DOUBLE_EQ(bits(parsed("int8"), Band::far), 8.25);
  EXPECT_DOUBLE_EQ(bits(parsed("tiered"), Band::far), 4.25);
  EXPECT_DOUBLE_EQ(bits(parsed("tiered"), Band::recent), 8.25);
  // The fitted int2 pair of the values is stored beside their range.
  EXPECT_DOUBLE_EQ(bits(parsed("tiered-max"), Band::far), 3.375);
  EXPECT_EQ(KvPolicy().parameter_bytes(kSmall), 0u);
}

TEST(KvPolicy, LayersThatStandApart) {
  const KvPolicy up = parsed("recent=2:int8,mid=2:int8/int4,far=int4,up=0+1+-2+-1");
  EXPECT_TRUE(up.check_layers(kSmall));
  for (const int layer : {0, 1, 26, 27}) {
    EXPECT_EQ(up.group_of(layer, kSmall.layers), LayerGroup::apart) << layer;
  }
  EXPECT_EQ(up.group_of(2, kSmall.layers), LayerGroup::common);
  EXPECT_EQ(up.tier(LayerGroup::apart, 9, 0), (Tier{BitWidth::int8, BitWidth::int4}));
  EXPECT_EQ(up.tier(LayerGroup::apart, 9, 5), both(BitWidth::int8));
  EXPECT_EQ(up.tier(LayerGroup::common, 9, 0), both(BitWidth::int4));
  // 4 of 28 layers keep the low bits of their keys.
  EXPECT_EQ(up.units(up.planes(Band::far), kSmall), 28 * 4 + 4 * 2);

  const KvPolicy exempt = parsed("far=int2,exempt=3");
  EXPECT_EQ(exempt.tier(LayerGroup::apart, 9, 0), both(BitWidth::bf16));
  EXPECT_EQ(exempt.units(exempt.planes(Band::far), kSmall), 27 * 2 + 16);
  EXPECT_FALSE(exempt.all_bf16());
  const auto outside = parsed("far=int4,up=28").check_layers(kSmall);
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().message, "kv: expected layers from -28 to 27, found 28");
}

TEST(KvPolicy, RotationCanBeTurnedOff) {
  for (const Side side : {Side::key, Side::value}) {
    EXPECT_TRUE(parsed("far=int4").scheme().side(side).hadamard);
    EXPECT_FALSE(parsed("far=int4,rotate=off").scheme().side(side).hadamard);
  }
  EXPECT_EQ(refusal("far=int4,rotate=no"), "kv: rotate: expected on or off, found \"no\"");
}

TEST(KvPolicy, RefusesInASentence) {
  const std::string example = "sink=1:int8,recent=8:int8,mid=8:int8/int4,far=int4";
  EXPECT_EQ(refusal("int4"), "kv: expected bf16, int8, tiered, tiered-max, or a policy as in " +
                                 example + "; found \"int4\"");
  EXPECT_EQ(refusal(""), "kv: expected bf16, int8, tiered, tiered-max, or a policy as in " +
                             example + "; found \"\"");
  EXPECT_EQ(refusal("far=int5"), "kv: far: expected bf16, int8, int4 or int2, found \"int5\"");
  EXPECT_EQ(refusal("far=int4/"), "kv: far: expected bf16, int8, int4 or int2, found \"\"");
  EXPECT_EQ(refusal("recent=int8"),
            "kv: recent: expected blocks:width, as in recent=8:int8, found \"int8\"");
  EXPECT_EQ(refusal("recent=-1:int8"),
            "kv: recent: expected blocks:width, as in recent=8:int8, found \"-1:int8\"");
  EXPECT_EQ(refusal("mid=1048577:int8"), "kv: mid: expected at most 1048576 blocks, found 1048577");
  EXPECT_EQ(refusal("near=8:int8"),
            "kv: expected sink, recent, mid, far, up, exempt or rotate, found \"near\"");
  EXPECT_EQ(refusal("far=int4,up=0,exempt=1"), "kv: expected up or exempt once, found another");
  EXPECT_EQ(refusal("far=int4,up=0+x"), "kv: up: expected layers, as in up=0+1+-1, found \"0+x\"");
  EXPECT_EQ(refusal("recent=4:int4,far=int8"),
            "kv: far key: expected at most int4, the width of the mid band, found int8: a plane "
            "that was freed would be needed again");
}

}  // namespace
}  // namespace kipp
