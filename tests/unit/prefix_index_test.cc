#include "kv/prefix_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
using testing::Optional;

constexpr std::optional<BlockId> kStart = std::nullopt;
constexpr BlockId kNobody = -1;
constexpr int kBlocks = 12;

TEST(PrefixIndex, FindsABlockOnlyWhereItStands) {
  for (const PrefixHash hash : test::kHashes) {
    PrefixIndex index(8, hash);
    const auto tokens = spell("abcd");
    const auto a = block_of(tokens, 0), b = block_of(tokens, 1), c = block_of(tokens, 2);
    EXPECT_FALSE(index.find(kStart, a, 0));
    index.insert(5, kStart, a, 0);
    index.insert(2, 5, b, 0);
    index.insert(7, 2, a, 0);
    EXPECT_THAT(index.find(kStart, a, 0), Optional(5));
    EXPECT_THAT(index.find(5, b, 0), Optional(2));
    EXPECT_THAT(index.find(2, a, 0), Optional(7));
    EXPECT_FALSE(index.find(kStart, b, 0)) << "the same tokens at the beginning";
    EXPECT_FALSE(index.find(5, a, 0)) << "the same tokens elsewhere";
    EXPECT_FALSE(index.find(7, b, 0)) << "after equal tokens that follow others";
    EXPECT_FALSE(index.find(5, c, 0));
    EXPECT_TRUE(index.check());
  }
}

TEST(PrefixIndex, ComparesEveryToken) {
  PrefixIndex index(1, test::hash_of_none);
  const auto tokens = spell("a");
  index.insert(0, kStart, block_of(tokens, 0), 0);
  for (std::size_t i = 0; i < kBlockPositions; ++i) {
    auto other = tokens;
    other[i] = 8;
    EXPECT_FALSE(index.find(kStart, block_of(other, 0), 0)) << "token " << i << " differs";
  }
}

TEST(PrefixIndex, SaltsKeepTenantsApart) {
  constexpr CacheSalt kLargest = std::numeric_limits<CacheSalt>::max();
  for (const PrefixHash hash : test::kHashes) {
    PrefixIndex index(4, hash);
    const auto tokens = spell("aa");
    const auto a = block_of(tokens, 0);
    index.insert(0, kStart, a, 1);
    index.insert(1, 0, a, 1);
    EXPECT_FALSE(index.find(kStart, a, 0));
    EXPECT_FALSE(index.find(kStart, a, kLargest));
    EXPECT_FALSE(index.find(0, a, 2));
    index.insert(2, kStart, a, kLargest);
    EXPECT_THAT(index.find(kStart, a, 1), Optional(0));
    EXPECT_THAT(index.find(0, a, 1), Optional(1));
    EXPECT_THAT(index.find(kStart, a, kLargest), Optional(2));
    EXPECT_TRUE(index.check());
  }
}

// A salt that equals the hash of some block starts other chains than those that follow the block.
TEST(PrefixIndex, ASaltIsNoBlock) {
  PrefixIndex index(4);
  const auto tokens = spell("ab");
  const CacheSalt hash_of_a = prefix_hash(0, block_of(tokens, 0));
  index.insert(0, kStart, block_of(tokens, 0), 0);
  index.insert(1, 0, block_of(tokens, 1), 0);
  EXPECT_FALSE(index.find(kStart, block_of(tokens, 1), hash_of_a));
  index.insert(2, kStart, block_of(tokens, 1), hash_of_a);
  EXPECT_THAT(index.find(0, block_of(tokens, 1), 0), Optional(1));
  EXPECT_THAT(index.find(kStart, block_of(tokens, 1), hash_of_a), Optional(2));
}

TEST(PrefixIndex, HashDependsOnAllItIsGiven) {
  const auto tokens = spell("abcd");
  std::set<std::uint64_t> hashes;
  for (const std::uint64_t before : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 63}) {
    for (std::size_t i = 0; i < 4; ++i) hashes.insert(prefix_hash(before, block_of(tokens, i)));
  }
  EXPECT_EQ(hashes.size(), 12u);
}

TEST(PrefixIndex, NoBlocksAtAll) {
  PrefixIndex index(0);
  const auto tokens = spell("a");
  EXPECT_FALSE(index.find(kStart, block_of(tokens, 0), 0));
  EXPECT_TRUE(index.check());
}

// Against a map from (parent, letter, salt) to the block.
TEST(PrefixIndex, AgreesWithAMap) {
  using Key = std::tuple<BlockId, char, CacheSalt>;
  test::property(2000, [] {
    PrefixIndex index(kBlocks, *rc::gen::elementOf(std::vector<PrefixHash>(
                                   std::begin(test::kHashes), std::end(test::kHashes))));
    std::map<Key, BlockId> naive;
    std::map<BlockId, Key> present;
    const auto children = [&](BlockId id) {
      return static_cast<int>(std::count_if(naive.begin(), naive.end(), [&](const auto& held) {
        return std::get<0>(held.first) == id;
      }));
    };
    const auto moves = *rc::gen::container<std::vector<std::tuple<int, int, int, int>>>(
        rc::gen::tuple(test::among(0, kBlocks), test::among(-1, kBlocks), test::among(0, 4),
                       test::among(0, 2)));
    for (const auto& [block, before, letter, tenant] : moves) {
      const auto salt = static_cast<CacheSalt>(tenant);
      const bool starts = before == kNobody || !present.contains(before);
      const auto parent = starts ? kStart : std::optional<BlockId>(before);
      const Key key{parent.value_or(kNobody), static_cast<char>('a' + letter), salt};
      const auto tokens = spell(std::string(1, std::get<1>(key)));
      const auto found = index.find(parent, block_of(tokens, 0), salt);
      RC_ASSERT(found.has_value() == naive.contains(key));
      if (found) RC_ASSERT(*found == naive.at(key));

      if (present.contains(block)) {
        if (children(block) > 0) continue;
        index.erase(block);
        naive.erase(present.at(block));
        present.erase(block);
      } else if (!found) {
        index.insert(block, parent, block_of(tokens, 0), salt);
        naive[key] = block;
        present[block] = key;
      }
      RC_ASSERT(index.check().has_value());
      for (BlockId id = 0; id < kBlocks; ++id) {
        RC_ASSERT(index.contains(id) == present.contains(id));
        if (present.contains(id)) {
          RC_ASSERT(index.children(id) == children(id));
          RC_ASSERT(index.parent(id).value_or(kNobody) == std::get<0>(present.at(id)));
        }
      }
    }
  });
}

}  // namespace
}  // namespace kipp
