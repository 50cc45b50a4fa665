#include "kv/block_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace kipp {
namespace {

TEST(BlockAllocator, HandsOutEachBlockOnce) {
  BlockAllocator allocator(5);
  std::set<BlockId> seen;
  for (int i = 0; i < 5; ++i) {
    const auto one = allocator.take(1);
    ASSERT_TRUE(one);
    EXPECT_TRUE(seen.insert(one->front()).second);
  }
  EXPECT_THAT(seen, testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(allocator.available(), 0);
  EXPECT_FALSE(allocator.take(1));
}

TEST(BlockAllocator, GivesAllOrNothing) {
  BlockAllocator allocator(3);
  EXPECT_FALSE(allocator.take(4));
  EXPECT_EQ(allocator.available(), 3);
  const auto all = allocator.take(3);
  ASSERT_TRUE(all);
  allocator.give_back(std::span(*all).first(2));
  EXPECT_EQ(allocator.available(), 2);
  EXPECT_TRUE(allocator.take(2));
}

TEST(BlockTable, ReservesWhatItsPositionsNeed) {
  BlockAllocator allocator(8);
  for (const auto& [positions, blocks] : {std::pair(1, 1), {32, 1}, {33, 2}, {256, 8}}) {
    const auto table = BlockTable::reserve(allocator, positions);
    ASSERT_TRUE(table);
    EXPECT_EQ(table->positions(), blocks * 32);
    EXPECT_EQ(allocator.available(), 8 - blocks);
    EXPECT_EQ(table->covering(positions).size(), static_cast<std::size_t>(blocks));
  }
  EXPECT_EQ(allocator.available(), 8) << "a table gives its blocks back";
}

TEST(BlockTable, CoversAPrefixInOrder) {
  BlockAllocator allocator(4);
  const auto table = BlockTable::reserve(allocator, 128);
  ASSERT_TRUE(table);
  const auto all = table->covering(128);
  EXPECT_TRUE(table->covering(0).empty());
  EXPECT_THAT(table->covering(32), testing::ElementsAre(all[0]));
  EXPECT_THAT(table->covering(33), testing::ElementsAre(all[0], all[1]));
}

TEST(BlockTable, SaysHowFarTheCacheIsFromEnough) {
  BlockAllocator allocator(4);
  const auto first = BlockTable::reserve(allocator, 96);
  ASSERT_TRUE(first);
  const auto second = BlockTable::reserve(allocator, 64);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::exhausted);
  EXPECT_EQ(second.error().message, "KV cache: 64 positions need 2 blocks, 1 of 4 blocks are free");
  EXPECT_EQ(allocator.available(), 1);
}

TEST(BlockTable, MovesItsBlocksOnce) {
  BlockAllocator allocator(4);
  {
    auto first = BlockTable::reserve(allocator, 64);
    auto second = BlockTable::reserve(allocator, 32);
    ASSERT_TRUE(first && second);
    BlockTable moved = *std::move(first);
    EXPECT_EQ(moved.positions(), 64);
    moved = *std::move(second);
    EXPECT_EQ(moved.positions(), 32);
    EXPECT_EQ(allocator.available(), 1);
  }
  EXPECT_EQ(allocator.available(), 4);
}

}  // namespace
}  // namespace kipp
