// Bit planes on the device, on whatever adapter there is: codes that are kvquant's, attention over
// every width against the reference's, the same bits in any step, chunk, table and cut, and whose
// memory is whose.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "backend/reference/reference_ops.h"
#include "backend/tiered_kv.h"
#include "base/float16.h"
#include "kvquant/cpu_simd.h"
#include "support/webgpu_cache.h"

namespace kipp::webgpu {
namespace {

using kvquant::Plane;
using kvquant::Side;
using test::config_of;
using test::Deal;
using test::device;
using test::Item;
using test::kBlockHead;
using test::kLayers;
using test::kMaxRows;
using test::normal_floats;
using test::part_of;
using test::same_bits;
using test::step_of;
using test::value;
using Cache = test::WebgpuCache;

constexpr PlaneBits kAll = 0xffff;
constexpr Side kSides[] = {Side::key, Side::value};
// All widths, groups of layers, no rotation. Short bands, so that a few hundred positions reach
// them all. Few policies, since each is shaders of its own, and a software adapter takes seconds
// for them.
constexpr const char* kPolicies[] = {
    "sink=1:int8,recent=2:int8/bf16,mid=4:int4/int8,far=int4/int2,up=1",
    "sink=2:bf16/int4,recent=3:int4/int8,mid=1:int2/int8,far=int2,rotate=off",
};

KvConfig config_for(std::string_view words, int blocks) {
  KvConfig kv = {
      .blocks = blocks, .store = KvStore::tiered, .policy = value(KvPolicy::parse(words))};
  kv.units = blocks * kv.policy.units(kAll, config_of(1));
  return kv;
}

PlaneBits planes_of(std::initializer_list<Plane> planes) {
  unsigned bits = 0;
  for (const Plane plane : planes) {
    for (const LayerGroup group : {LayerGroup::common, LayerGroup::apart}) {
      for (const Side side : kSides) bits |= plane_bit(group, side, plane);
    }
  }
  return static_cast<PlaneBits>(bits);
}

std::vector<PlaneChange> holding(int blocks, PlaneBits planes) {
  std::vector<PlaneChange> changes;
  for (BlockId id = 0; id < blocks; ++id) changes.push_back({id, planes});
  return changes;
}

std::vector<std::byte> block_of(DeviceKv& kv, BlockId id, PlaneBits planes) {
  std::vector<std::byte> bytes(kv.block_bytes(planes));
  value(kv.read_block(id, bytes));
  return bytes;
}

const std::vector<Item> kItems = {{300, 1}, {0, 37}, {255, 2}, {416, 19}, {63, 3}};
constexpr int kLayer = 1;
constexpr int kGroup = 3;  // one pair of heads and one more
// Rows of the step: first, how many.
constexpr std::pair<int, int> kParts[] = {{0, 1},  {1, 1},   {37, 1}, {3, 9},  {38, 1}, {39, 1},
                                          {40, 1}, {44, 11}, {58, 1}, {59, 3}, {60, 1}};

class Tiered : public testing::TestWithParam<const char*> {
 protected:
  const StepPlan plan = step_of(kItems);
  const int blocks = static_cast<int>(plan.blocks.size());
  const KvConfig kv = config_for(GetParam(), blocks);
  const std::vector<float> qkv =
      normal_floats(5, static_cast<std::size_t>(plan.rows() * (kGroup + 2) * kKvWidth));
  TieredKv host = value(TieredKv::create(config_of(kGroup), kv, kMaxRows));

  // Everything cached before the step, coded on the host.
  void SetUp() override {
    host.hold(holding(blocks, kAll));
    kvquant::CpuSimdBackend backend;
    EncodeScratch scratch;
    for (BlockId id = 0; id < blocks; ++id) {
      const auto floats = normal_floats(static_cast<std::uint64_t>(100 + id), 4096);
      for (int part = 0; part < kLayers * kvquant::kSides * kKvHeads; ++part) {
        std::uint16_t* rows = host.rows(kSides[part / kKvHeads % 2], id,
                                        part / kKvHeads / kvquant::kSides, part % kKvHeads);
        // An outlier channel; every part begins elsewhere.
        for (std::size_t i = 0; i < kBlockHead; ++i) {
          const float x = floats[(i + static_cast<std::size_t>(part) * 331) % floats.size()];
          rows[i] = f32_to_bf16(i % kHeadDim == 5 ? 7 * x : x);
        }
      }
      for (int layer = 0; layer < kLayers; ++layer) {
        value(host.encode(id, layer, backend, scratch));
      }
    }
  }

  std::unique_ptr<Cache> make(DeviceKv::Limits limits = {.max_step_tokens = kMaxRows}) {
    auto cache = std::make_unique<Cache>(kGroup, kv, limits);
    cache->kv().hold_planes(holding(blocks, kAll));
    std::vector<std::byte> bytes(host.block_bytes(kAll));
    for (BlockId id = 0; id < blocks; ++id) {
      value(host.read(id, bytes));
      value(cache->kv().write_block(id, bytes));
    }
    return cache;
  }
  std::span<const float> rows_of(std::span<const float> all, int first, int n) const {
    const std::size_t cols = all.size() / static_cast<std::size_t>(plan.rows());
    return all.subspan(static_cast<std::size_t>(first) * cols, static_cast<std::size_t>(n) * cols);
  }
};

INSTANTIATE_TEST_SUITE_P(Policies, Tiered, testing::ValuesIn(kPolicies),
                         [](const auto& test) { return fmt::format("P{}", test.index); });

// The step appended and attended to by both, layer by layer.
TEST_P(Tiered, IsThatOfTheReference) {
  const auto cache = make();
  value(host.begin_step(plan));
  reference::ReferenceOps ops(config_of(kGroup), host, kMaxRows);
  auto& buffers = ops.begin_step(plan);
  for (const int layer : {0, 1}) {
    std::ranges::copy(qkv, buffers.qkv.data);
    ops.qk_norm_rope(buffers.qkv, cache->q_norm(static_cast<std::size_t>(layer)),
                     cache->k_norm(static_cast<std::size_t>(layer)));
    ops.kv_append(layer, buffers.qkv);
    value(ops.stored());
    ops.attend(layer, buffers.ctx, buffers.qkv);
    std::vector<float> rows = qkv;
    const auto ctx = cache->append_and_attend(plan, rows, layer);
    for (int row = 0; row < plan.rows(); ++row) {
      double error = 0, size = 0;
      for (int i = 0; i < cache->ctx_cols(); ++i) {
        const auto truth = static_cast<double>(buffers.ctx.row(row)[static_cast<std::size_t>(i)]);
        const auto at = static_cast<std::size_t>(row * cache->ctx_cols() + i);
        error += std::pow(static_cast<double>(ctx[at]) - truth, 2);
        size += truth * truth;
      }
      // Some keys of the step round to the other neighbour; all else is below 1e-8.
      ASSERT_LE(error, 1e-6 * size) << "layer " << layer << ", row " << row;
    }
  }
}

TEST_P(Tiered, ARowHasTheSameBitsInAnyStep) {
  const auto cache = make();
  for (const int layer : {0, 1}) {
    const auto ctx = cache->attend(plan, qkv, layer);
    for (const auto& [first, n] : kParts) {
      EXPECT_TRUE(same_bits(cache->attend(part_of(plan, first, n), rows_of(qkv, first, n), layer),
                            rows_of(ctx, first, n)))
          << "layer " << layer << ", rows " << first << " + " << n;
    }
  }
}

TEST_P(Tiered, ACutChangesNoBit) {
  std::vector<float> ctx;
  for (const int workgroups : {1, 1000}) {
    const auto cache = make({.max_step_tokens = kMaxRows, .workgroups = workgroups});
    const auto found = cache->attend(plan, qkv, kLayer);
    if (ctx.empty()) ctx = found;
    EXPECT_TRUE(same_bits(found, ctx)) << workgroups << " workgroups";
  }
}

// Blocks that a step completes: kvquant's codes of the BF16 rows beside them, in both groups of
// layers.
TEST_P(Tiered, CodesAreKvquants) {
  const StepPlan whole = step_of({{0, 70}});
  Cache cache(kGroup, config_for(GetParam(), 3));
  cache.kv().hold_planes(holding(3, kAll));
  TieredKv truth = value(TieredKv::create(config_of(kGroup), config_for(GetParam(), 3), kMaxRows));
  truth.hold(holding(3, kAll));
  kvquant::CpuSimdBackend backend;
  EncodeScratch scratch;
  for (const int layer : {0, 1}) {
    auto rows = normal_floats(static_cast<std::uint64_t>(layer),
                              70 * static_cast<std::size_t>(cache.qkv_cols()), layer == 0 ? 1 : 30);
    cache.append_and_attend(whole, rows, layer);
  }
  value(cache.kv().finish_step());
  std::vector<std::byte> expected(truth.block_bytes(kAll));
  for (const BlockId id : {whole.blocks[0], whole.blocks[1]}) {
    const auto found = block_of(cache.kv(), id, kAll);
    ASSERT_EQ(found.size(), expected.size());
    value(truth.write(id, found));  // for its rows; codes are made anew
    for (const int layer : {0, 1}) value(truth.encode(id, layer, backend, scratch));
    value(truth.read(id, expected));
    EXPECT_TRUE(found == expected) << "block " << id;
  }
}

// What a step of these tokens leaves: ctx, and the codes of the second block.
struct Left {
  std::vector<float> ctx;
  std::vector<std::byte> block;
};

constexpr PlaneBits kCodes = 0x7777;
constexpr int kTokens = 71;

Left run_in_chunks(Cache& cache, const StepPlan& table, const std::vector<float>& given,
                   int chunk) {
  Left left;
  const auto cols = static_cast<std::ptrdiff_t>(cache.qkv_cols());
  for (int at = 0; at < kTokens; at += chunk) {
    const int n = std::min(chunk, kTokens - at);
    const auto begin = given.begin() + cols * at;
    std::vector<float> part(begin, begin + cols * n);
    const auto out = cache.append_and_attend(part_of(table, at, n), part, kLayer);
    left.ctx.insert(left.ctx.end(), out.begin(), out.end());
    value(cache.kv().finish_step());
  }
  cache.kv().hold_planes(std::vector<PlaneChange>{{table.blocks[1], kCodes}});
  left.block = block_of(cache.kv(), table.blocks[1], kCodes);
  return left;
}

std::vector<float> rows_of_tokens(const Cache& cache) {
  return normal_floats(7, static_cast<std::size_t>(kTokens * cache.qkv_cols()));
}

// In chunks of any size, over other blocks: what a sequence computes stays.
TEST_P(Tiered, ChunksAndTablesChangeNoBit) {
  Cache cache(kGroup, config_for(GetParam(), 8));
  const auto given = rows_of_tokens(cache);
  Left expected;
  for (const int chunk : {kTokens, 32, 7, 1}) {
    cache.kv().hold_planes(holding(8, 0));
    cache.kv().hold_planes(holding(8, kAll));
    const StepPlan table = step_of({{0, kTokens}}, chunk == 7 ? Deal::backwards : Deal::forwards);
    Left left = run_in_chunks(cache, table, given, chunk);
    if (expected.ctx.empty()) expected = left;
    EXPECT_TRUE(same_bits(left.ctx, expected.ctx)) << "chunks of " << chunk;
    EXPECT_TRUE(left.block == expected.block) << "chunks of " << chunk;
  }
}

// Its rows lie in memory of the step, and nothing but the codes stays.
TEST(WebgpuTiered, ABlockThatAStepWritesWholeNeedsNoRows) {
  const StepPlan table = step_of({{0, kTokens}}, Deal::forwards);
  Left expected;
  for (const bool bare : {false, true}) {
    Cache cache(kGroup, config_for("tiered", 3));
    cache.kv().hold_planes(holding(3, kAll));
    if (bare) cache.kv().hold_planes(std::vector<PlaneChange>{{0, kCodes}, {1, kCodes}});
    Left left = run_in_chunks(cache, table, rows_of_tokens(cache), kTokens);
    if (!bare) expected = left;
    EXPECT_TRUE(same_bits(left.ctx, expected.ctx));
    EXPECT_TRUE(left.block == expected.block);
  }
}

TEST_P(Tiered, PlanesAreMovedCopiedAndRestored) {
  const auto cache = make();
  const StepPlan one = part_of(plan, 0, 1);
  const auto query = rows_of(qkv, 0, 1);
  const auto expected = cache->attend(one, query, kLayer);
  const BlockId from = one.blocks[2], to = one.blocks[11];  // of another sequence
  const auto bytes = block_of(cache->kv(), from, kAll);

  // A copy of all, then what one gives to the other.
  value(cache->kv().copy_blocks(std::vector<BlockCopy>{{.from = from, .to = to}}));
  StepPlan other = one;
  other.blocks[2] = to;
  EXPECT_TRUE(same_bits(cache->attend(other, query, kLayer), expected));
  const PlaneBits rows = planes_of({Plane::bf16});
  cache->kv().hold_planes(std::vector<PlaneChange>{{to, rows}});
  value(cache->kv().move_planes(from, to, kAll));
  EXPECT_TRUE(same_bits(cache->attend(other, query, kLayer), expected));
  EXPECT_EQ(block_of(cache->kv(), to, kAll), bytes);
  EXPECT_THAT(cache->kv().begin_step(one).error().message,
              testing::HasSubstr(fmt::format("expected block {} to hold its ", from)));

  // Its planes go, others come in their place, and go; then it is read back.
  cache->kv().hold_planes(std::vector<PlaneChange>{{to, 0}, {from, kAll}});
  value(cache->kv().write_block(from, std::vector<std::byte>(bytes.size(), std::byte{0x5a})));
  cache->kv().hold_planes(std::vector<PlaneChange>{{from, 0}, {to, kAll}});
  value(cache->kv().write_block(to, bytes));
  EXPECT_TRUE(same_bits(cache->attend(other, query, kLayer), expected));

  // Without codes there are no parameters.
  cache->kv().hold_planes(std::vector<PlaneChange>{{to, rows}});
  const auto only_rows = block_of(cache->kv(), to, rows);
  const std::size_t parameters = kv.policy.parameter_bytes(config_of(kGroup));
  EXPECT_TRUE(std::all_of(only_rows.end() - static_cast<std::ptrdiff_t>(parameters),
                          only_rows.end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(WebgpuTiered, RefusesWhatKvquantRefuses) {
  const KvConfig kv = config_for(kPolicies[1], 3);
  Cache cache(kGroup, kv);
  cache.kv().hold_planes(holding(3, kAll));
  const StepPlan whole = step_of({{0, 70}}, Deal::forwards);
  const auto good = normal_floats(3, 70 * static_cast<std::size_t>(cache.qkv_cols()));
  const struct {
    float found;
    const char* says;
  } cases[] = {{std::numeric_limits<float>::infinity(), "found inf"},
               {std::numeric_limits<float>::quiet_NaN(), "found nan"},
               {-66048.0f, "at most 65280"}};
  for (const auto& c : cases) {
    auto rows = good;
    const auto at = [&](int row, int head) -> float& {
      return rows[static_cast<std::size_t>(row * cache.qkv_cols() +
                                           ((kGroup + 1) * kKvHeads + head) * kHeadDim)];
    };
    at(39, 6) = at(60, 6) = at(38, 7) = at(64, 0) = c.found;  // the last in a block that stays open
    cache.append_and_attend(whole, rows, 1);
    const auto refused = cache.kv().finish_step();
    ASSERT_FALSE(refused);
    EXPECT_THAT(
        refused.error().message,
        testing::HasSubstr("kv: value in layer 1, head 6, position 7 of block 1: expected a "
                           "finite number of magnitude at most"));
    EXPECT_THAT(refused.error().message, testing::HasSubstr(c.says));
    rows = good;
    cache.append_and_attend(whole, rows, 1);
    EXPECT_TRUE(cache.kv().finish_step());
  }
}

TEST(WebgpuTiered, RefusesStepsThatMissPlanes) {
  Cache cache(kGroup, config_for("tiered", 3));
  const StepPlan step = step_of({{40, 1}}, Deal::forwards);
  cache.kv().hold_planes(std::vector<PlaneChange>{{1, planes_of({Plane::bf16})}});
  EXPECT_THAT(cache.kv().begin_step(step).error().message,
              testing::HasSubstr("items[0].blocks[0]: expected block 0 to hold its key plane"));
}

TEST(WebgpuTiered, MemoryIsKnownBefore) {
  const ModelConfig config = config_of(kGroup);
  const DeviceKv::Limits limits = {.max_step_tokens = kMaxRows};
  const KvConfig few = config_for("tiered", 8);
  KvConfig more = few;
  more.units += 64 * kLayers;
  EXPECT_EQ(
      DeviceKv::bytes_needed(config, more, limits) - DeviceKv::bytes_needed(config, few, limits),
      0u);  // blocks can hold no more
  more.units = few.units - 64 * kLayers;
  EXPECT_EQ(
      DeviceKv::bytes_needed(config, few, limits) - DeviceKv::bytes_needed(config, more, limits),
      64 * kLayers * kKvUnitBytes);
}

}  // namespace
}  // namespace kipp::webgpu
