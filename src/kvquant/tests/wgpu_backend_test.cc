// The WebGPU backend against the oracle, to the bit, on whatever adapter there is: the differential
// harness over every grouping, width, rotation and clip, the golden blocks, and what an adapter
// does that is at odds with IEEE arithmetic. A device that is lost is a sentence and changes
// nothing.
#include "kvquant/wgpu_backend.h"

#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "kvquant/codec.h"
#include "kvquant/cpu_ref.h"
#include "kvquant/differential.h"
#include "support/cache_probe.h"
#include "support/golden_files.h"
#include "support/owned_block.h"

namespace kvquant {
namespace {

using enum BitWidth;
using enum Grouping;
using test::kBothSides;
using test::kEveryPlane;
using test::OwnedBlock;

// One for all tests but that which loses its device: compiling shaders takes a second on a software
// adapter.
class WgpuKv : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    Expected<WgpuBackend> opened = WgpuBackend::open();
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    backend_ = std::make_unique<WgpuBackend>(std::move(opened.value()));
  }
  static void TearDownTestSuite() { backend_.reset(); }
  void SetUp() override { ASSERT_NE(backend_, nullptr); }

  static inline std::unique_ptr<WgpuBackend> backend_;
};

// Both ways of the backend, where a head's row is a group and where it is not, in turn on either
// side.
TEST_F(WgpuKv, AgreesWithTheOracle) {
  const DifferentialConfig kConfigs[] = {
      // The keys of kipp's tiered caches.
      {.shape = {1, 128},
       .scheme = {{int8, per_token, 128, false, true, int2},
                  {int4, per_channel, 8, false, false, int4, 90}},
       .blocks_per_input = 1},
      // A head width that does not fill a workgroup, and groups that reach over parts of heads.
      {.shape = {3, 48},
       .scheme = {{int4, per_token, 48, false, false, int2, 80},
                  {int8, per_token, 72, false, false, int8}},
       .blocks_per_input = 1},
      {.shape = {1, 32},
       .scheme = {{int2, per_token, 32, true, true, int2, 60},
                  {int8, per_channel, 32, true, false, int2}},
       .blocks_per_input = 1},
      {.shape = {2, 16},
       .scheme = {{bf16}, {int8, per_token, 4, true, true, int8}},
       .blocks_per_input = 1},
  };
  for (const DifferentialConfig& config : kConfigs) {
    DifferentialReport report;
    const Status status = run_differential(*backend_, config, report);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(report.agrees) << report.what;
    EXPECT_EQ(report.difference, 0) << report.what;
    EXPECT_GT(report.elements, 0u);
  }
}

TEST_F(WgpuKv, ReadsTheGoldenValues) { test::expect_golden_values(*backend_); }

TEST_F(WgpuKv, MakesTheGoldenBytes) { test::expect_golden_bytes(*backend_); }

// Every stored byte of a block that the oracle and the GPU make of the same rows.
void expect_equal_blocks(KvBackend& backend, const BlockLayout& layout, std::span<const float> k,
                         std::span<const float> v) {
  OwnedBlock expected(layout);
  OwnedBlock found(layout);
  CpuRefBackend oracle;
  ASSERT_TRUE(oracle.quantize_append(layout, k, v, expected.block()).ok());
  const Status status = backend.quantize_append(layout, k, v, found.block());
  ASSERT_TRUE(status.ok()) << status.message();
  for (const Side side : kBothSides) {
    for (const Plane plane : kEveryPlane) {
      const std::size_t bytes = layout.plane(side, plane).bytes;
      const std::span a(expected.block().plane(side, plane), bytes);
      const std::span b(found.block().plane(side, plane), bytes);
      for (std::size_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(b[i], a[i]) << name_of(side) << " " << name_of(plane) << " byte " << i;
      }
    }
  }
}

// Sums of a group of 8192 codes take more than 32 bits, and more than an f32 has.
TEST_F(WgpuKv, TheLargestGroupIsFittedExactly) {
  const QuantScheme scheme = {int8, per_token, 8192, false, false, int2};
  const BlockLayout layout = BlockLayout::make({16, 512}, {scheme, scheme}).value();
  std::vector<float> rows[kSides];
  for (const Side side : kBothSides) {
    std::vector<float>& of_side = rows[static_cast<int>(side)];
    of_side.resize(std::size_t{32} * 8192);
    const Input input = side == Side::key ? Input::gaussian : Input::heavy_tail;
    generate(input, 7, layout.shape(), scheme, of_side);
  }
  expect_equal_blocks(*backend_, layout, rows[0], rows[1]);
}

// A denormal that decides a rounding, which decides the next, up to an FP16 offset: each of these
// elements is half a unit in the last place of the next, so that their sum is a tie unless
// something is below, at one channel with all signs negative. A device that flushes the smallest
// loses it all.
TEST_F(WgpuKv, DenormalsThatDecideARoundingAreKept) {
  const QuantScheme scheme = {int8, per_token, 64, false, true, int2};
  const BlockLayout layout = BlockLayout::make({1, 64}, {scheme, scheme}).value();
  std::vector<float> rows(std::size_t{kBlockPositions} * 64, 0.0f);
  for (std::size_t position = 0; position < kBlockPositions; ++position) {
    float* row = rows.data() + position * 64;
    row[0] = position % 2 == 0 ? -0x1p-133f : 0.0f;  // the smallest BF16
    row[1] = 0x1p-110f;
    row[2] = 0x1p-86f;
    row[4] = 0x1p-62f;
    row[8] = 0x1p-38f;
    row[16] = 0x1p-14f;
  }
  expect_equal_blocks(*backend_, layout, rows, rows);
}

TEST_F(WgpuKv, APlaneThatIsNotThereIsLeftOut) {
  const QuantScheme scheme = {int8, per_token, 64, false, true, int2};
  const BlockLayout layout = BlockLayout::make({1, 64}, {scheme, scheme}).value();
  std::vector<float> rows(std::size_t{32} * 64);
  generate(Input::gaussian, 3, layout.shape(), scheme, rows);
  OwnedBlock whole(layout);
  OwnedBlock part(layout, planes_for(bf16) | planes_for(int2), planes_for(bf16));
  ASSERT_TRUE(backend_->quantize_append(layout, rows, rows, whole.block()).ok());
  ASSERT_TRUE(backend_->quantize_append(layout, rows, rows, part.block()).ok());
  const std::size_t bytes = layout.plane(Side::key, Plane::hi2).bytes;
  EXPECT_EQ(std::memcmp(whole.block().plane(Side::key, Plane::hi2),
                        part.block().plane(Side::key, Plane::hi2), bytes),
            0);
  std::vector<float> k(rows.size()), v(rows.size());
  const Status missing =
      backend_->dequantize_for_attention(layout, part.block(), {int4, bf16}, 0, 32, k, v);
  EXPECT_EQ(missing.code(), Code::unavailable);
  EXPECT_TRUE(
      backend_->dequantize_for_attention(layout, part.block(), {int2, bf16}, 0, 32, k, v).ok());
}

TEST(WgpuKvCache, HoldsAndReadsWhatThatOfTheOracleDoes) {
  CacheConfig config;
  config.shape = {2, 32};
  config.max_positions = 160;
  for (QuantScheme* scheme : {&config.scheme.key, &config.scheme.value}) {
    *scheme = {int8, per_token, 32, false, true, int2};
  }
  config.policy = {.sink_blocks = 1,
                   .recent_blocks = 1,
                   .mid = {.key = int8, .value = int4},
                   .far = {.key = int4, .value = int2}};
  Expected<WgpuBackend> opened = WgpuBackend::open();
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  auto made = TieredKvCache<WgpuBackend>::create(std::move(opened.value()), config);
  auto oracle = test::RefCache::create({}, config);
  ASSERT_TRUE(made.ok() && oracle.ok());
  std::vector<float> rows(std::size_t{150} * 64);
  generate(Input::laplace, 9, config.shape, config.scheme.key, rows);
  ASSERT_TRUE(made.value().append(rows, rows).ok());
  ASSERT_TRUE(oracle.value().append(rows, rows).ok());
  EXPECT_EQ(test::held_by(made.value()), test::held_by(oracle.value()));
  std::vector<float> found, expected;
  ASSERT_TRUE(test::read(made.value(), 149, 0, 150, found).ok());
  ASSERT_TRUE(test::read(oracle.value(), 149, 0, 150, expected).ok());
  EXPECT_EQ(found, expected);
}

TEST(WgpuKvFaults, ALostDeviceIsASentenceAndTheBlockIsAsItWas) {
  auto device = gpu::Device::open({});
  ASSERT_TRUE(device.has_value()) << device.error().message;
  Expected<WgpuBackend> made = WgpuBackend::make(**device);
  ASSERT_TRUE(made.ok()) << made.status().message();
  WgpuBackend& backend = made.value();
  const QuantScheme scheme = {int8, per_token, 16, false, true, int2};
  const BlockLayout layout = BlockLayout::make({1, 16}, {scheme, scheme}).value();
  std::vector<float> rows(std::size_t{16} * 16);
  generate(Input::gaussian, 5, layout.shape(), scheme, rows);
  OwnedBlock owned(layout);
  ASSERT_TRUE(backend.quantize_append(layout, rows, rows, owned.block()).ok());
  OwnedBlock before(layout);
  const auto copy_all = [&](KvBlock& from, KvBlock& to) {
    for (const Side side : kBothSides) {
      for (const Plane plane : kEveryPlane) {
        std::memcpy(to.plane(side, plane), from.plane(side, plane),
                    layout.plane(side, plane).bytes);
      }
    }
  };
  copy_all(owned.block(), before.block());

  (*device)->destroy();
  const Status append = backend.quantize_append(layout, rows, rows, owned.block());
  EXPECT_EQ(append.code(), Code::unavailable);
  EXPECT_THAT(append.message(), testing::HasSubstr("lost"));
  EXPECT_THAT(append.message(), testing::HasSubstr((*device)->adapter().name));
  EXPECT_EQ(owned.block().positions, 16);
  for (const Side side : kBothSides) {
    for (const Plane plane : kEveryPlane) {
      EXPECT_EQ(std::memcmp(owned.block().plane(side, plane), before.block().plane(side, plane),
                            layout.plane(side, plane).bytes),
                0)
          << name_of(side) << " " << name_of(plane);
    }
  }
  std::vector<float> k(rows.size(), 7.0f), v(rows.size(), 7.0f);
  const Status read =
      backend.dequantize_for_attention(layout, owned.block(), {bf16, bf16}, 0, 16, k, v);
  EXPECT_EQ(read.code(), Code::unavailable);
  EXPECT_THAT(k, testing::Each(7.0f));
  EXPECT_THAT(v, testing::Each(7.0f));
}

TEST(WgpuKvFaults, AnUnknownAdapterIsNamed) {
  const Expected<WgpuBackend> opened = WgpuBackend::open("no such adapter");
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), Code::unavailable);
  EXPECT_THAT(opened.status().message(), testing::HasSubstr("no such adapter"));
}

}  // namespace
}  // namespace kvquant
