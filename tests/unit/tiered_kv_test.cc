// The tiered store: whose memory is whose, what a step must find, and codes that are kvquant's.
#include "backend/tiered_kv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "kvquant/cpu_ref.h"
#include "kvquant/cpu_simd.h"
#include "model/step_plan.h"

namespace kipp {
namespace {

using kvquant::BitWidth;
using kvquant::Plane;
using kvquant::Side;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr ModelConfig kConfig = {.hidden = 64,
                                 .layers = 3,
                                 .query_heads = 16,
                                 .intermediate = 96,
                                 .context_length = 1024,
                                 .rope_theta = 1000000,
                                 .tied = true};
constexpr int kBlocks = 8;
constexpr int kMaxStep = 128;
constexpr Side kSides[] = {Side::key, Side::value};
constexpr std::size_t kHeadRows = std::size_t{kBlockPositions} * kHeadDim;
constexpr PlaneBits kAll = 0xffff;

KvPolicy policy_of(std::string_view words) {
  auto policy = KvPolicy::parse(words);
  EXPECT_TRUE(policy) << policy.error().message;
  return *std::move(policy);
}

TieredKv make(std::string_view words, int units = 0) {
  const KvPolicy policy = policy_of(words);
  if (units == 0) units = kBlocks * policy.units(kAll, kConfig);
  auto kv = TieredKv::create(
      kConfig, {.blocks = kBlocks, .store = KvStore::tiered, .policy = policy, .units = units},
      kMaxStep);
  EXPECT_TRUE(kv) << kv.error().message;
  return *std::move(kv);
}

void hold(TieredKv& kv, BlockId block, PlaneBits planes) {
  kv.hold(std::vector<PlaneChange>{{block, planes}});
}

PlaneBits bits(Side side, std::initializer_list<Plane> planes,
               LayerGroup group = LayerGroup::common) {
  unsigned all = 0;
  for (const Plane plane : planes) all |= plane_bit(group, side, plane);
  return static_cast<PlaneBits>(all);
}

PlaneBits both(std::initializer_list<Plane> planes, LayerGroup group = LayerGroup::common) {
  return static_cast<PlaneBits>(bits(Side::key, planes, group) | bits(Side::value, planes, group));
}

// Normal values and, in some rows, a channel that stands out: [position][head][channel].
std::vector<float> random_rows(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> rows(std::size_t{kBlockPositions} * kKvWidth);
  for (float& x : rows) x = round_to_bf16(normal(random));
  for (std::size_t i = 0; i < rows.size(); i += 517) rows[i] *= 40;
  return rows;
}

// Into one layer of a block; the reference to compare with is made of the same.
void fill(TieredKv& kv, BlockId block, int layer, Side side, const std::vector<float>& rows) {
  for (std::size_t position = 0; position < kBlockPositions; ++position) {
    for (int head = 0; head < kKvHeads; ++head) {
      const float* from =
          rows.data() + position * kKvWidth + static_cast<std::size_t>(head) * kHeadDim;
      std::transform(from, from + kHeadDim, kv.rows(side, block, layer, head) + position * kHeadDim,
                     f32_to_bf16);
    }
  }
}

// A block of all heads as kvquant makes it.
struct Expected {
  kvquant::BlockLayout layout;
  std::vector<std::uint8_t> planes[kvquant::kSides][kvquant::kPlanes];
  kvquant::KvBlock block;

  Expected(const kvquant::KvScheme& scheme, const std::vector<float>& k,
           const std::vector<float>& v)
      : layout(kvquant::BlockLayout::make({kKvHeads, kHeadDim}, scheme).value()) {
    for (const Side side : kSides) {
      for (int p = 0; p < kvquant::kPlanes; ++p) {
        auto& plane = planes[static_cast<int>(side)][p];
        plane.resize(layout.plane(side, static_cast<Plane>(p)).bytes);
        if (!plane.empty()) block.plane(side, static_cast<Plane>(p)) = plane.data();
      }
    }
    const auto status = kvquant::CpuRefBackend().quantize_append(layout, k, v, block);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  const std::uint8_t* at(Side side, Plane plane) const {
    return planes[static_cast<int>(side)][static_cast<int>(plane)].data();
  }
};

testing::AssertionResult same(const void* found, const void* expected, std::size_t bytes,
                              const std::string& what) {
  if (std::memcmp(found, expected, bytes) == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << what << " differ";
}

// Every width that the scheme can be read at, of every head.
void expect_codes_of(const TieredKv& kv, BlockId block, int layer, const Expected& expected) {
  for (const Side side : kSides) {
    const kvquant::QuantScheme& scheme = expected.layout.scheme().side(side);
    for (const BitWidth width : {BitWidth::int8, BitWidth::int4, BitWidth::int2}) {
      if (width > scheme.bits || width < scheme.narrowest || scheme.bits == BitWidth::bf16)
        continue;
      const Plane pair = width == BitWidth::int2 ? Plane::hi2 : Plane::mid2;
      const kvquant::PlaneLayout& parts = expected.layout.plane(side, pair);
      for (int head = 0; head < kKvHeads; ++head) {
        const auto h = static_cast<std::size_t>(head);
        const std::string what = fmt::format("layer {} {} {} of head {}", layer,
                                             kvquant::name_of(side), name_of(width), head);
        const CodeHead codes = kv.codes(side, block, layer, head, width);
        EXPECT_EQ(codes.width, width);
        EXPECT_TRUE(same(codes.hi2, expected.at(side, Plane::hi2) + h * 1024, 1024, what));
        EXPECT_EQ(codes.mid2 != nullptr, width >= BitWidth::int4);
        EXPECT_EQ(codes.low4 != nullptr, width >= BitWidth::int8);
        if (codes.mid2 != nullptr) {
          EXPECT_TRUE(same(codes.mid2, expected.at(side, Plane::mid2) + h * 1024, 1024, what));
        }
        if (codes.low4 != nullptr) {
          EXPECT_TRUE(same(codes.low4, expected.at(side, Plane::low4) + h * 2048, 2048, what));
        }
        EXPECT_TRUE(same(codes.scales, expected.at(side, pair) + parts.scales + h * 64, 64,
                         what + ": scales"));
        EXPECT_TRUE(same(codes.offsets, expected.at(side, pair) + parts.offsets + h * 64, 64,
                         what + ": offsets"));
      }
    }
  }
}

class Encoded : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Policies, Encoded,
                         testing::Values("int8", "tiered", "tiered-max",
                                         "mid=2:int8/int2,far=int4/int2,rotate=off",
                                         "recent=1:bf16/int8,mid=0:bf16/int4,far=bf16/int4",
                                         "far=int4/int2,up=0"),
                         [](const auto& tested) { return fmt::format("P{}", tested.index); });

TEST_P(Encoded, BitEqualToKvquantInEveryLayerWithEitherBackend) {
  TieredKv kv = make(GetParam());
  kvquant::CpuRefBackend scalar;
  kvquant::CpuSimdBackend vector;
  EncodeScratch scratch;
  for (const BlockId block : {5, 2}) hold(kv, block, kAll);
  for (int layer = 0; layer < kConfig.layers; ++layer) {
    for (const BlockId block : {5, 2}) {
      const auto seed = static_cast<unsigned>(10 * layer + block);
      const auto k = random_rows(seed), v = random_rows(seed + 100);
      fill(kv, block, layer, Side::key, k);
      fill(kv, block, layer, Side::value, v);
      ASSERT_TRUE(kv.encode(
          block, layer, block == 5 ? static_cast<kvquant::KvBackend&>(scalar) : vector, scratch));
    }
  }
  // After all of them: no block or layer wrote over another.
  for (int layer = 0; layer < kConfig.layers; ++layer) {
    for (const BlockId block : {5, 2}) {
      const auto seed = static_cast<unsigned>(10 * layer + block);
      const auto k = random_rows(seed), v = random_rows(seed + 100);
      expect_codes_of(kv, block, layer, Expected(kv.policy().scheme(), k, v));
    }
  }
}

TEST(TieredKv, OneHeadIsEncodedAlone) {
  TieredKv kv = make("tiered-max");
  hold(kv, 0, kAll);
  const auto k = random_rows(1), v = random_rows(2);
  fill(kv, 0, 1, Side::key, k);
  fill(kv, 0, 1, Side::value, v);
  kvquant::CpuSimdBackend backend;
  EncodeScratch scratch;
  for (int head = kKvHeads - 1; head >= 0; --head) {
    ASSERT_TRUE(kv.encode_head(0, 1, head, backend, scratch));
  }
  expect_codes_of(kv, 0, 1, Expected(kv.policy().scheme(), k, v));
}

TEST(TieredKv, MakesCodesInThePlanesThatAreThere) {
  TieredKv kv = make("tiered-max");
  const auto k = random_rows(3), v = random_rows(4);
  const PlaneBits rows = both({Plane::bf16});
  // Keys at int4, values at int2: what a far block keeps.
  hold(kv, 1,
       static_cast<PlaneBits>(rows | bits(Side::key, {Plane::hi2, Plane::mid2}) |
                              bits(Side::value, {Plane::hi2})));
  fill(kv, 1, 0, Side::key, k);
  fill(kv, 1, 0, Side::value, v);
  kvquant::CpuRefBackend backend;
  EncodeScratch scratch;
  ASSERT_TRUE(kv.encode(1, 0, backend, scratch));
  hold(kv, 1, static_cast<PlaneBits>(kv.held(1) & ~rows));
  const Expected expected(kv.policy().scheme(), k, v);
  for (int head = 0; head < kKvHeads; ++head) {
    const auto h = static_cast<std::size_t>(head);
    const CodeHead keys = kv.codes(Side::key, 1, 0, head, BitWidth::int4);
    EXPECT_TRUE(same(keys.mid2, expected.at(Side::key, Plane::mid2) + h * 1024, 1024, "keys"));
    const CodeHead values = kv.codes(Side::value, 1, 0, head, BitWidth::int2);
    EXPECT_TRUE(same(values.hi2, expected.at(Side::value, Plane::hi2) + h * 1024, 1024, "values"));
    EXPECT_TRUE(same(values.scales, expected.at(Side::value, Plane::hi2) + 8192 + h * 64, 64,
                     "fitted scales"));
  }
}

TEST(TieredKv, RefusesWhatKvquantRefuses) {
  TieredKv kv = make("int8");
  hold(kv, 4, kAll);
  kvquant::CpuSimdBackend backend;
  EncodeScratch scratch;
  const struct {
    float value;
    const char* says;
  } cases[] = {{std::numeric_limits<float>::infinity(), "found inf"},
               {std::numeric_limits<float>::quiet_NaN(), "found nan"},
               {-6016.0f, "at most 5769.99"}};  // 65280 / sqrt(128)
  for (const auto& c : cases) {
    for (const Side side : kSides) fill(kv, 4, 2, side, random_rows(5));
    kv.rows(Side::value, 4, 2, 6)[7 * kHeadDim + 3] = f32_to_bf16(c.value);
    const auto refused = kv.encode(4, 2, backend, scratch);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message,
                HasSubstr("kv: value in layer 2, head 6, position 7 of block 4: expected a finite "
                          "number of magnitude at most"));
    EXPECT_THAT(refused.error().message, HasSubstr(c.says));
  }
}

// --- planes

TEST(TieredKv, UnitsAreHandedOutOnceAndComeBack) {
  TieredKv kv = make("tiered");
  const int all = kv.free_units();
  const int of_block = kv.policy().units(kAll, kConfig);
  EXPECT_EQ(of_block, kConfig.layers * 2 * (1 + 1 + 2 + 8));
  EXPECT_EQ(all, kBlocks * of_block);
  for (int round = 0; round < 3; ++round) {
    for (BlockId block = 0; block < kBlocks; ++block) hold(kv, block, kAll);
    EXPECT_EQ(kv.free_units(), 0);
    for (BlockId block = 0; block < kBlocks; ++block) {
      EXPECT_EQ(kv.held(block), kv.all_planes());
      hold(kv, block, both({Plane::hi2}));
      EXPECT_EQ(kv.held(block), both({Plane::hi2}));
    }
    EXPECT_EQ(kv.free_units(), all - kBlocks * kConfig.layers * 2);
    // In another order than they went out.
    for (BlockId block = kBlocks - 1; block >= 0; --block) hold(kv, block, 0);
    EXPECT_EQ(kv.free_units(), all);
  }
}

TEST(TieredKv, NoTwoPlanesShareMemory) {
  TieredKv kv = make("tiered");
  // Holes in the arena first, so that units of a plane do not follow each other.
  for (BlockId block = 0; block < kBlocks; ++block) hold(kv, block, both({Plane::bf16}));
  for (BlockId block = 0; block < kBlocks; block += 2) hold(kv, block, 0);
  for (BlockId block = 0; block < kBlocks; ++block) hold(kv, block, kAll);
  struct Run {
    const std::uint8_t* begin;
    std::size_t bytes;
  };
  std::vector<Run> runs;
  for (BlockId block = 0; block < kBlocks; ++block) {
    for (int layer = 0; layer < kConfig.layers; ++layer) {
      for (const Side side : kSides) {
        for (int head = 0; head < kKvHeads; ++head) {
          const CodeHead codes = kv.codes(side, block, layer, head, BitWidth::int8);
          const auto* scales = reinterpret_cast<const std::uint8_t*>(codes.scales);
          const auto* offsets = reinterpret_cast<const std::uint8_t*>(codes.offsets);
          const auto* rows =
              reinterpret_cast<const std::uint8_t*>(kv.rows(side, block, layer, head));
          for (const Run& run : {Run{codes.hi2, 1024}, Run{codes.mid2, 1024}, Run{codes.low4, 2048},
                                 Run{scales, 64}, Run{offsets, 64}, Run{rows, kHeadRows * 2}}) {
            runs.push_back(run);
          }
        }
      }
    }
  }
  std::ranges::sort(runs, {}, &Run::begin);
  for (std::size_t i = 1; i < runs.size(); ++i) {
    ASSERT_LE(runs[i - 1].begin + runs[i - 1].bytes, runs[i].begin);
  }
}

TEST(TieredKv, APlaneWithoutUnitsIsNotHeld) {
  constexpr int kRowsOfSide = kConfig.layers * 8;
  TieredKv kv = make("int8", kRowsOfSide + kConfig.layers);
  hold(kv, 0, both({Plane::bf16}));
  EXPECT_EQ(kv.held(0), bits(Side::key, {Plane::bf16}));
  hold(kv, 1, both({Plane::hi2}));
  EXPECT_EQ(kv.held(1), bits(Side::key, {Plane::hi2}));
  EXPECT_EQ(kv.free_units(), 0);
  hold(kv, 0, 0);
  hold(kv, 1, both({Plane::hi2}));
  EXPECT_EQ(kv.held(1), both({Plane::hi2}));
}

TEST(TieredKv, LayersApartHaveTheirOwnPlanes) {
  TieredKv kv = make("far=int8,exempt=1");
  hold(kv, 0, kAll);
  hold(kv, 0,
       static_cast<PlaneBits>(both({Plane::hi2, Plane::mid2, Plane::low4}) |
                              both({Plane::bf16}, LayerGroup::apart)));
  EXPECT_EQ(kv.block_bytes(kv.held(0)),
            (2u * 2 * 4 + 1 * 2 * 8) * kKvUnitBytes + kv.policy().parameter_bytes(kConfig));
  EXPECT_EQ(kv.tier(1, 9, 3), (kvquant::Tier{BitWidth::bf16, BitWidth::bf16}));
  EXPECT_EQ(kv.tier(0, 9, 3), (kvquant::Tier{BitWidth::int8, BitWidth::int8}));
  EXPECT_EQ(kv.tier(0, 9, 9), (kvquant::Tier{BitWidth::bf16, BitWidth::bf16}));
  // A plane of layers that do not exist is nobody's.
  EXPECT_EQ(make("far=int8").all_planes() & both({Plane::hi2}, LayerGroup::apart), 0);
}

TEST(TieredKv, PlanesMoveWithTheirParameters) {
  TieredKv kv = make("tiered-max");
  const auto k = random_rows(6), v = random_rows(7);
  hold(kv, 3, kAll);
  fill(kv, 3, 0, Side::key, k);
  fill(kv, 3, 0, Side::value, v);
  kvquant::CpuRefBackend backend;
  EncodeScratch scratch;
  ASSERT_TRUE(kv.encode(3, 0, backend, scratch));
  const int free = kv.free_units();
  const PlaneBits codes = both({Plane::hi2, Plane::mid2, Plane::low4});
  kv.move(3, 6, codes);
  EXPECT_EQ(kv.held(3), both({Plane::bf16}));
  EXPECT_EQ(kv.held(6), codes);
  EXPECT_EQ(kv.free_units(), free);
  expect_codes_of(kv, 6, 0, Expected(kv.policy().scheme(), k, v));
  // What the other holds already stays where it is.
  hold(kv, 3, codes);
  kv.move(3, 6, kAll);
  EXPECT_EQ(kv.held(3), codes);
  hold(kv, 3, 0);
  hold(kv, 6, 0);
  EXPECT_EQ(kv.free_units(), kBlocks * kv.policy().units(kAll, kConfig));
}

TEST(TieredKv, CopiesWhatBothHold) {
  TieredKv kv = make("tiered");
  hold(kv, 0, kAll);
  hold(kv, 1, both({Plane::bf16, Plane::hi2}));
  for (const Side side : kSides) {
    fill(kv, 0, 2, side, random_rows(8));
    fill(kv, 1, 2, side, random_rows(9));
  }
  kv.copy(std::vector<BlockCopy>{{.from = 0, .to = 1}});
  for (const Side side : kSides) {
    for (int head = 0; head < kKvHeads; ++head) {
      EXPECT_TRUE(
          same(kv.rows(side, 1, 2, head), kv.rows(side, 0, 2, head), kHeadRows * 2, "copied rows"));
      EXPECT_NE(kv.rows(side, 1, 2, head), kv.rows(side, 0, 2, head));
    }
  }
  EXPECT_EQ(kv.held(1), both({Plane::bf16, Plane::hi2}));
}

// --- steps

class TieredStep : public testing::Test {
 protected:
  Result<void> begin(TieredKv& kv, std::vector<EvalItem> items) {
    const auto plan = planner_.plan(items);
    EXPECT_TRUE(plan) << plan.error().message;
    return kv.begin_step(**plan);
  }
  EvalItem item(int pos, std::size_t n, SeqId seq = 0) const {
    return {.seq = seq, .pos = pos, .tokens = std::span(tokens_).first(n), .blocks = blocks_};
  }

  const std::vector<Token> tokens_ = std::vector<Token>(kMaxStep, 1);
  const std::vector<BlockId> blocks_ = {4, 7, 0, 2, 6, 1};
  StepPlanner planner_{{.max_step_tokens = kMaxStep,
                        .max_logit_rows = kMaxStep,
                        .kv_blocks = kBlocks,
                        .context_length = 1024}};
};

TEST_F(TieredStep, WholeBlocksNeedNoRowsAndOthersDo) {
  TieredKv kv = make("int8");
  const PlaneBits codes = both({Plane::hi2, Plane::mid2, Plane::low4});
  for (const BlockId block : {4, 7, 0}) hold(kv, block, codes);
  // Positions 0 to 95: three blocks from their first to their last position.
  ASSERT_TRUE(begin(kv, {item(0, 96)}));
  EXPECT_THAT(kv.completed(), ElementsAre(4, 7, 0));
  std::vector<std::uint16_t*> rows;
  for (const BlockId block : {4, 7, 0}) {
    for (const Side side : kSides) {
      for (int head = 0; head < kKvHeads; ++head) rows.push_back(kv.rows(side, block, 1, head));
    }
  }
  std::ranges::sort(rows);
  for (std::size_t i = 1; i < rows.size(); ++i) ASSERT_EQ(rows[i - 1] + kHeadRows, rows[i]);
  // One position less at either end, and a block is not written whole.
  EXPECT_THAT(begin(kv, {item(0, 95)}).error().message, HasSubstr("expected block 0 to hold"));
  EXPECT_THAT(begin(kv, {item(1, 95)}).error().message, HasSubstr("expected block 4 to hold"));
  // One more, and block 2 is begun.
  auto refused = begin(kv, {item(0, 97)});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "items[0]: expected block 2 to hold its key plane bf16, of which positions 96 to 96 "
            "are written, found it without");
  hold(kv, 2, bits(Side::key, {Plane::bf16}));
  EXPECT_THAT(begin(kv, {item(0, 97)}).error().message, HasSubstr("its value plane bf16"));
  hold(kv, 2, both({Plane::bf16}));
  ASSERT_TRUE(begin(kv, {item(0, 97)}));
  EXPECT_THAT(kv.completed(), ElementsAre(4, 7, 0));
  // The last position of a block that was begun before.
  hold(kv, 2, static_cast<PlaneBits>(codes | both({Plane::bf16})));
  ASSERT_TRUE(begin(kv, {item(127, 1)}));
  EXPECT_THAT(kv.completed(), ElementsAre(2));
  ASSERT_TRUE(begin(kv, {item(126, 1)}));
  EXPECT_TRUE(kv.completed().empty());
}

TEST_F(TieredStep, RowsOfABlockThatHoldsThemAreItsOwn) {
  TieredKv kv = make("int8");
  const PlaneBits codes = both({Plane::hi2, Plane::mid2, Plane::low4});
  hold(kv, 4, static_cast<PlaneBits>(codes | bits(Side::key, {Plane::bf16})));
  const std::uint16_t* keys = kv.rows(Side::key, 4, 0, 0);
  ASSERT_TRUE(begin(kv, {item(0, 32)}));
  EXPECT_EQ(kv.rows(Side::key, 4, 0, 0), keys);
  // Layers take turns in what the step lends, but not in what the block holds.
  EXPECT_NE(kv.rows(Side::key, 4, 1, 0), keys);
  EXPECT_EQ(kv.rows(Side::value, 4, 0, 0), kv.rows(Side::value, 4, 1, 0));
}

TEST_F(TieredStep, NamesThePlaneThatAReaderMisses) {
  TieredKv kv = make("sink=1:int8,recent=1:int8,mid=1:int8/int4,far=int4/int2");
  for (const BlockId block : blocks_) hold(kv, block, kAll);
  const auto without = [&](BlockId block, PlaneBits planes) {
    hold(kv, block, static_cast<PlaneBits>(kAll & ~planes));
    auto done = begin(kv, {item(160, 1)});
    hold(kv, block, kAll);
    return done;
  };
  // At position 160, in block 5: block 4 is recent, 3 mid, 1 and 2 far, 0 the sink.
  const struct {
    int index;
    Side side;
    Plane plane;
    bool needed;
  } cases[] = {
      {0, Side::value, Plane::low4, true},  {1, Side::value, Plane::hi2, true},
      {1, Side::value, Plane::mid2, false}, {1, Side::key, Plane::mid2, true},
      {2, Side::key, Plane::low4, false},   {3, Side::key, Plane::low4, true},
      {3, Side::value, Plane::mid2, true},  {3, Side::value, Plane::low4, false},
      {4, Side::value, Plane::low4, true},  {4, Side::key, Plane::bf16, false},
      {5, Side::key, Plane::low4, false},   {5, Side::key, Plane::bf16, true},
  };
  for (const auto& c : cases) {
    const BlockId block = blocks_[static_cast<std::size_t>(c.index)];
    const auto done = without(block, bits(c.side, {c.plane}));
    ASSERT_EQ(done.has_value(), !c.needed) << c.index << ' ' << kvquant::name_of(c.plane);
    if (done || c.index == 5) continue;
    EXPECT_EQ(done.error().message,
              fmt::format("items[0].blocks[{}]: expected block {} to hold its {} plane {}, which "
                          "positions from 160 on read, found it without",
                          c.index, block, kvquant::name_of(c.side), kvquant::name_of(c.plane)));
  }
}

// A chunk reads a block at every tier that its queries have, not only that of the last.
TEST_F(TieredStep, EveryQueryOfAChunkIsLookedAt) {
  TieredKv kv = make("recent=1:int8,mid=1:int4,far=int4");
  for (const BlockId block : blocks_) hold(kv, block, kAll);
  hold(kv, 4, both({Plane::hi2, Plane::mid2}));
  // Far from positions 64 on, recent up to 63.
  EXPECT_TRUE(begin(kv, {item(64, 60)}));
  EXPECT_THAT(begin(kv, {item(63, 61)}).error().message,
              HasSubstr("its key plane low4, which positions from 32 on read"));
}

TEST_F(TieredStep, OthersInTheStepAreLookedAtToo) {
  TieredKv kv = make("int8");
  for (const BlockId block : blocks_) hold(kv, block, kAll);
  const std::vector<BlockId> other = {3, 5};
  hold(kv, 5, kAll);
  EvalItem second = item(40, 4, 1);
  second.blocks = other;
  EXPECT_THAT(begin(kv, {item(64, 3), second}).error().message,
              HasSubstr("items[1].blocks[0]: expected block 3"));
}

// --- bytes

TEST(TieredKv, BytesAreThePlanesByBitThenParameters) {
  TieredKv kv = make("tiered-max");
  const auto k = random_rows(11), v = random_rows(12);
  hold(kv, 2, kAll);
  for (int layer = 0; layer < kConfig.layers; ++layer) {
    fill(kv, 2, layer, Side::key, k);
    fill(kv, 2, layer, Side::value, v);
    kvquant::CpuRefBackend backend;
    EncodeScratch scratch;
    ASSERT_TRUE(kv.encode(2, layer, backend, scratch));
  }
  const Expected expected(kv.policy().scheme(), k, v);
  // Keys at int4, values at int2.
  hold(kv, 2,
       static_cast<PlaneBits>(bits(Side::key, {Plane::hi2, Plane::mid2}) |
                              bits(Side::value, {Plane::hi2})));
  std::vector<std::byte> bytes(kv.block_bytes(kv.held(2)));
  ASSERT_TRUE(kv.read(2, bytes));
  std::vector<std::uint8_t> wanted;
  const auto append = [&](const std::uint8_t* from, std::size_t n) {
    wanted.insert(wanted.end(), from, from + n);
  };
  const struct {
    Side side;
    Plane plane;
  } planes[] = {{Side::key, Plane::hi2}, {Side::key, Plane::mid2}, {Side::value, Plane::hi2}};
  for (const auto& p : planes) {
    for (int layer = 0; layer < kConfig.layers; ++layer) append(expected.at(p.side, p.plane), 8192);
  }
  for (int layer = 0; layer < kConfig.layers; ++layer) {
    // Keys are read at no less than int4 and have no fitted pair.
    append(expected.at(Side::key, Plane::mid2) + 8192, 1024);
    append(expected.at(Side::value, Plane::mid2) + 8192, 1024);
    append(expected.at(Side::value, Plane::hi2) + 8192, 1024);
  }
  ASSERT_EQ(bytes.size(), wanted.size());
  EXPECT_TRUE(same(bytes.data(), wanted.data(), bytes.size(), "bytes of the block"));

  // Restored elsewhere, among other units.
  TieredKv other = make("tiered-max");
  hold(other, 1, kAll);
  hold(other, 6, kv.held(2));
  ASSERT_TRUE(other.write(6, bytes));
  std::vector<std::byte> again(bytes.size());
  ASSERT_TRUE(other.read(6, again));
  EXPECT_EQ(again, bytes);
}

// What a block's memory held before is nobody's business.
TEST(TieredKv, BytesWithoutCodesHaveNoParameters) {
  TieredKv kv = make("int8");
  hold(kv, 0, kAll);
  for (const Side side : kSides) fill(kv, 0, 0, side, random_rows(13));
  kvquant::CpuRefBackend backend;
  EncodeScratch scratch;
  ASSERT_TRUE(kv.encode(0, 0, backend, scratch));
  hold(kv, 0, both({Plane::bf16}));
  std::vector<std::byte> bytes(kv.block_bytes(kv.held(0)));
  ASSERT_TRUE(kv.read(0, bytes));
  const auto parameters = std::span(bytes).last(kv.policy().parameter_bytes(kConfig));
  EXPECT_TRUE(std::ranges::all_of(parameters, [](std::byte b) { return b == std::byte{0}; }));
}

TEST(TieredKv, RefusesOtherSizesAndBlocks) {
  TieredKv kv = make("int8");
  std::vector<std::byte> bytes(kv.block_bytes(0));
  EXPECT_TRUE(kv.read(0, bytes));
  EXPECT_THAT(kv.read(kBlocks, bytes).error().message, HasSubstr("from 0 to 7, found 8"));
  EXPECT_FALSE(kv.write(-1, bytes));
  hold(kv, 0, both({Plane::hi2}));
  EXPECT_THAT(kv.write(0, bytes).error().message,
              HasSubstr(fmt::format("block 0: expected {} bytes, those of its plane set 0x0011, "
                                    "found {}",
                                    bytes.size() + 2 * 3 * kKvUnitBytes, bytes.size())));
}

TEST(TieredKv, RefusesWhatCannotBeMade) {
  const auto refusal = [](const KvConfig& kv) {
    return TieredKv::create(kConfig, kv, kMaxStep).error().message;
  };
  EXPECT_THAT(refusal({.blocks = 1, .store = KvStore::tiered, .policy = policy_of("int8")}),
              HasSubstr("kv.units: expected at least 1, found 0"));
  EXPECT_THAT(refusal({.blocks = 1,
                       .store = KvStore::tiered,
                       .policy = policy_of("far=int8,exempt=3"),
                       .units = 9}),
              HasSubstr("expected layers from -3 to 2, found 3"));
}

// Against sums written out: units, parameters, tables and what a step lends.
TEST(TieredKv, SaysWhatItNeeds) {
  const KvPolicy policy = policy_of("tiered-max");
  const std::size_t needed = TieredKv::bytes_needed(
      kConfig, {.blocks = 5, .store = KvStore::tiered, .policy = policy, .units = 100}, 96);
  EXPECT_EQ(needed, 100u * (8192 + 4) + 5u * (3 * 3 * 1024 + 3 * 2 * 12 * 4 + 2 + 4) +
                        3u * 2 * 8 * 32 * 128 * 2);
}

}  // namespace
}  // namespace kipp
