// The sizes a BlockLayout gives are the ones FORMAT.md draws.
#include "kvquant/kv_block.h"

#include <gmock/gmock.h>

namespace kvquant {
namespace {

TEST(BlockLayout, SizesOfTheQwen3Shape) {
  KvScheme scheme;  // int8 codes, per token, 128
  scheme.value.narrowest = BitWidth::int4;
  const Expected<BlockLayout> layout = BlockLayout::make({8, 128}, scheme);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  const BlockLayout& l = layout.value();
  // 256 rows: 32 bytes of codes, 2 of scale and 2 of offset each.
  EXPECT_EQ(l.plane(Side::key, Plane::hi2).bytes, 256u * 36);
  EXPECT_EQ(l.plane(Side::key, Plane::mid2).bytes, 256u * 36);
  EXPECT_EQ(l.plane(Side::key, Plane::low4).bytes, 256u * 64);
  EXPECT_EQ(l.plane(Side::key, Plane::bf16).bytes, 256u * 256);
  EXPECT_EQ(l.plane(Side::value, Plane::hi2).bytes, 256u * 32) << "no fitted pair above int4";
  EXPECT_EQ(l.bytes(Side::value, planes_for(BitWidth::int4)), 256u * 68);
}

TEST(BlockLayout, GroupSizeMustDivideTheRow) {
  KvScheme scheme;
  scheme.key.group_size = 96;
  const Expected<BlockLayout> layout = BlockLayout::make({8, 128}, scheme);
  ASSERT_FALSE(layout.ok());
  EXPECT_EQ(layout.status().code(), Code::invalid_argument);
  EXPECT_STREQ(layout.status().message(),
               "key group_size: expected a divisor of the 1024 elements of a row, found 96");
}

}  // namespace
}  // namespace kvquant
