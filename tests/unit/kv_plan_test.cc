#include "engine/kv_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "model/checkpoints.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using testing::HasSubstr;

constexpr int kStep = 512;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

ModelConfig config_of(std::string_view id) {
  for (const Checkpoint& checkpoint : checkpoints()) {
    if (checkpoint.id == id) return checkpoint.config;
  }
  ADD_FAILURE() << id;
  return {};
}

KvPolicy policy(std::string_view text) { return KvPolicy::parse(text).value(); }

Result<KvPlan> plan(std::string_view kv, const KvRoom& room) {
  return plan_kv(policy(kv), KvStore::bf16, config_of("qwen3-0.6b"), kStep, room);
}

BlockPool pool_of(const KvPlan& plan) {
  return plan.cache.store == KvStore::tiered ? BlockPool(plan.cache.blocks, plan.planes)
                                             : BlockPool(plan.cache.blocks);
}

// Sequences of so many positions, which share nothing, that fit into so many bytes.
int admitted(std::string_view kv, std::uint64_t bytes, int positions) {
  const auto planned = plan(kv, {.bytes = bytes});
  EXPECT_TRUE(planned) << planned.error().message;
  EXPECT_LE(planned->bytes, bytes);
  BlockPool pool = pool_of(*planned);
  std::vector<BlockTable> tables;
  while (auto table = BlockTable::admit(pool, {}, positions)) tables.push_back(*std::move(table));
  return static_cast<int>(tables.size());
}

TEST(KvPlan, TiersAdmitMoreSequencesIntoTheSameMemory) {
  const int whole = admitted("bf16", 24 * kGiB, 8192);
  EXPECT_EQ(whole, 27) << "896 MiB each";
  EXPECT_GE(admitted("tiered", 24 * kGiB, 8192), 3.4 * whole);
  EXPECT_GE(admitted("tiered-max", 24 * kGiB, 8192), 3.9 * whole);
  EXPECT_GE(admitted("int8", 24 * kGiB, 8192), 1.8 * whole);
}

TEST(KvPlan, BlocksAndSequencesGetWhatTheyNeed) {
  for (const std::string_view kv : {"bf16", "int8", "tiered", "tiered-max"}) {
    const auto planned = plan(kv, {.blocks = 64, .sequences = 2});
    ASSERT_TRUE(planned) << planned.error().message;
    BlockPool pool = pool_of(*planned);
    const auto first = BlockTable::insure(pool, 32 * kBlockPositions);
    const auto second = BlockTable::insure(pool, 32 * kBlockPositions);
    EXPECT_TRUE(first && second) << kv;
    EXPECT_FALSE(BlockTable::insure(pool, kBlockPositions)) << kv << ": and no more";
  }
}

// 64 readers of one prefix of 2,048 tokens, each with 256 tokens of its own.
TEST(KvPlan, APrefixIsStoredOnceForAllItsReaders) {
  const auto planned = plan("tiered", {.bytes = 16 * kGiB});
  ASSERT_TRUE(planned) << planned.error().message;
  BlockPool pool = pool_of(*planned);
  const PlanePlan& planes = planned->planes;
  const auto prefix = test::random_tokens(2048, 1);
  std::vector<BlockTable> tables;
  for (unsigned reader = 0; reader < 64; ++reader) {
    auto tokens = prefix;
    const auto own = test::random_tokens(256, 2 + reader);
    tokens.insert(tokens.end(), own.begin(), own.end());
    auto table = BlockTable::admit(pool, tokens, 2048 + 256 + 32);
    ASSERT_TRUE(table) << reader;
    int begin = table->published_positions();
    EXPECT_EQ(begin, reader == 0 ? 0 : 2048);
    while (begin < static_cast<int>(tokens.size())) {
      const int end = std::min(begin + kStep, static_cast<int>(tokens.size()));
      table->grow(begin, end);
      table->publish(std::span(tokens).first(static_cast<std::size_t>(end)));
      begin = end;
    }
    tables.push_back(*std::move(table));
  }
  // What a reader at 2,304 reads of the prefix, once; and of its own blocks, each.
  const int now = (2048 + 256) / kBlockPositions;
  int distinct = 0;
  for (int block = 0; block < 2048 / kBlockPositions; ++block) {
    distinct += planes.units_of(planes.needed(now, block));
  }
  for (int block = 2048 / kBlockPositions; block < now; ++block) {
    distinct += 64 * planes.units_of(planes.needed(now, block));
  }
  EXPECT_LE(pool.stats().used_units, 1.1 * distinct);
  const auto sound = pool.check();
  EXPECT_TRUE(sound) << sound.error().message;
}

TEST(KvPlan, RefusesTooLittleAndTooMuch) {
  const auto little = plan("tiered", {.bytes = 1 << 20});
  ASSERT_FALSE(little);
  EXPECT_THAT(little.error().message,
              HasSubstr("one block of a sequence with tiered, found 1048576"));
  const auto none = plan("bf16", {.bytes = 100});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message,
            "KV cache: expected at least 3670016 bytes, one block, found 100");
  const auto much = plan("tiered", {.bytes = std::uint64_t{1} << 45});
  ASSERT_FALSE(much);
  EXPECT_THAT(much.error().message, HasSubstr("expected at most 17592186036224 bytes"));
  const auto layer = plan("far=int4,exempt=28", {.blocks = 4});
  ASSERT_FALSE(layer);
  EXPECT_THAT(layer.error().message, HasSubstr("found 28"));
}

TEST(KvPlan, OnlyProvenPoliciesPassUnasked) {
  EXPECT_TRUE(check_proven(policy("bf16"), "qwen3-0.6b"));
  EXPECT_TRUE(check_proven(policy("tiered"), "kipp-demo"));
  const auto refused = check_proven(policy("tiered"), "qwen3-0.6b");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "kv: expected bf16, what is proven for qwen3-0.6b, found tiered, which --kv-unproven "
            "accepts");
  EXPECT_FALSE(check_proven(policy("far=int4"), "kipp-demo")) << "measured is a preset, not this";
}

TEST(KvPlan, PlanesHaveNames) {
  EXPECT_STREQ(name_of_plane(0).side, "key");
  EXPECT_STREQ(name_of_plane(6).plane, "low4");
  EXPECT_STREQ(name_of_plane(6).side, "value");
  EXPECT_STREQ(name_of_plane(6).layers, "common");
  EXPECT_STREQ(name_of_plane(15).plane, "bf16");
  EXPECT_STREQ(name_of_plane(15).layers, "apart");
}

}  // namespace
}  // namespace kipp
