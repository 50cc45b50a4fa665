// Blocks as bytes: what is stored is what is loaded, into the layout and the planes it was stored
// from and no others.
#include <gmock/gmock.h>

#include <cstdio>
#include <string>
#include <vector>

#include "support/block_bytes.h"

namespace kvquant {
namespace {

using namespace test;
using testing::HasSubstr;

TEST(BlockBytes, ChecksumIsThatOfTheStandard) {
  const std::string digits = "123456789";
  EXPECT_EQ(crc32({reinterpret_cast<const std::uint8_t*>(digits.data()), digits.size()}),
            0xcbf43926u);
  const Bytes bytes = made(small_layout(), 32, kInt8, kInt4);
  EXPECT_EQ(bytes, sealed(bytes));
}

// Every set of planes that a block can have, over schemes that put parameters in every place.
TEST(BlockBytes, WhatIsStoredIsLoaded) {
  std::vector<QuantScheme> schemes(1);
  schemes[0].bits = BitWidth::bf16;
  for (const BitWidth bits : {BitWidth::int8, BitWidth::int4, BitWidth::int2}) {
    for (const int group : {8, 16, 96}) {  // within a head, and over several
      schemes.push_back(scheme_of(bits, Grouping::per_token, group));
      schemes.push_back(scheme_of(bits, Grouping::per_channel, group == 96 ? 32 : group));
      schemes.back().symmetric = group == 8;
      schemes.back().narrowest = group == 16 ? bits : BitWidth::int2;
    }
  }
  int blocks = 0;
  for (const QuantScheme& scheme : schemes) {
    const BlockLayout layout = layout_of({3, 32}, scheme, schemes[1]);
    OwnedBlock owned(layout);
    append(layout, owned.block(), kBlockPositions, 3);
    for (const PlaneSet key :
         {kHi2, kInt4, kInt8, kBf16, kHi2 | kBf16, kInt4 | kBf16, kInt8 | kBf16}) {
      if (!layout.planes(Side::key).contains(key)) continue;
      KvBlock block = owned.block();
      keep_planes(block, key, kInt4);
      const Bytes bytes = store(layout, block);
      const auto header = inspect_block(bytes);
      ASSERT_TRUE(header.ok()) << header.status().message();
      EXPECT_EQ(header.value().shape, layout.shape());
      EXPECT_EQ(header.value().scheme, layout.scheme());
      EXPECT_EQ(header.value().positions, kBlockPositions);
      EXPECT_EQ(header.value().planes[0], key);
      EXPECT_EQ(header.value().planes[1], kInt4);
      EXPECT_EQ(header.value().bytes, bytes.size());
      Loader loader(layout, key, kInt4);
      const Status status = loader.load(bytes);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(content(layout, loader.block()), content(layout, block));
      ++blocks;
    }
  }
  EXPECT_GT(blocks, 60);
}

TEST(BlockBytes, AnOpenBlockStoresItsRowsAndNothingOfThoseThatWereTruncated) {
  const BlockLayout layout = small_layout();
  for (int positions = 1; positions < kBlockPositions; ++positions) {
    OwnedBlock longer(layout, kBf16, kBf16);
    append(layout, longer.block(), positions, 5);
    const Bytes expected = store(layout, longer.block());
    append(layout, longer.block(), kBlockPositions - positions, 6);
    longer.block().positions = positions;
    EXPECT_EQ(store(layout, longer.block()), expected) << positions;
    Loader loader(layout, kBf16, kBf16);
    const Status status = loader.load(expected);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(loader.block().positions, positions);
    EXPECT_EQ(store(layout, loader.block()), expected);
  }
}

TEST(BlockBytes, StoringRefusesWhatCannotBeLoaded) {
  const BlockLayout layout = small_layout();
  OwnedBlock owned(layout);
  const auto sentence = [&](int positions, PlaneSet key, std::size_t bytes) {
    KvBlock block = owned.block();
    block.positions = positions;
    keep_planes(block, key, kBf16);
    Bytes out(bytes);
    const Status status = store_block(layout, block, out);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_EQ(out, Bytes(bytes)) << "nothing is written";
    return std::string(status.message());
  };
  const std::size_t right = stored_bytes(layout, kBf16, kBf16);
  EXPECT_EQ(sentence(0, kBf16, right), "positions: expected 1 to 32, found 0");
  EXPECT_EQ(sentence(33, kBf16, right), "positions: expected 1 to 32, found 33");
  EXPECT_EQ(sentence(32, kBf16, right - 1), "out: expected 4160 bytes, found 4159");
  EXPECT_EQ(sentence(32, kBf16, right + 1), "out: expected 4160 bytes, found 4161");
  EXPECT_EQ(sentence(32, PlaneSet(), right),
            "key planes: a block of 32 positions cannot be made of plane set 0x00");
  EXPECT_EQ(sentence(32, PlaneSet(0x02), right),
            "key planes: a block of 32 positions cannot be made of plane set 0x02");
  EXPECT_EQ(sentence(31, kBf16 | kHi2, right),
            "key planes: a block of 31 positions cannot be made of plane set 0x09");
}

TEST(ForeignBlock, EveryDifferenceInShapeOrSchemeIsRefused) {
  const BlockLayout layout = small_layout();
  const KvScheme scheme = layout.scheme();
  std::vector<BlockLayout> others;
  const auto with = [&](auto change) {
    KvShape shape = layout.shape();
    KvScheme changed = scheme;
    change(shape, changed);
    others.push_back(layout_of(shape, changed.key, changed.value));
  };
  with([](KvShape& shape, KvScheme&) { shape.kv_heads = 3; });
  with([](KvShape& shape, KvScheme&) { shape = {1, 32}; });
  with([](KvShape&, KvScheme& s) { s.key.bits = BitWidth::int4; });
  with([](KvShape&, KvScheme& s) { s.key.group_size = 32; });
  with([](KvShape&, KvScheme& s) { s.key.grouping = Grouping::per_channel; });
  with([](KvShape&, KvScheme& s) { s.key.symmetric = true; });
  with([](KvShape&, KvScheme& s) { s.key.hadamard = true; });
  with([](KvShape&, KvScheme& s) { s.key.narrowest = BitWidth::int4; });
  with([](KvShape&, KvScheme& s) { s.value.clip_percent = 90; });
  with([](KvShape&, KvScheme& s) { s.value.bits = BitWidth::bf16; });
  for (const BlockLayout& other : others) {
    const Bytes bytes = made(other, 5, kBf16, kBf16);
    EXPECT_TRUE(inspect_block(bytes).ok());
    Loader loader(layout, kBf16, kBf16);
    const Status status = loader.load(bytes);
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_THAT(status.message(), HasSubstr("block: its shape and scheme ("));
    EXPECT_THAT(status.message(), HasSubstr("are not this cache's (2 heads of 16, key int8, value "
                                            "int4), or differ in grouping"));
  }
}

TEST(ForeignBlock, ThereMustBeRoomForExactlyItsPlanes) {
  const BlockLayout layout = small_layout();
  const Bytes bytes = made(layout, 32, kInt8, kInt4);
  for (const PlaneSet key : {kInt4, kInt8 | kBf16, kBf16, PlaneSet()}) {
    Loader loader(layout, key, kInt4);
    const Status status = loader.load(bytes);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    char expected[100];
    std::snprintf(expected, sizeof expected,
                  "key planes: the bytes hold plane set 0x07, the block has room for 0x%02x",
                  key.bits());
    EXPECT_STREQ(status.message(), expected);
  }
}

}  // namespace
}  // namespace kvquant
