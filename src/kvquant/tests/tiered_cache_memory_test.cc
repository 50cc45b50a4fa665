// What a cache costs: the report by band, bits per element, and memory set aside when it is made.
#include <gmock/gmock.h>

#include <climits>
#include <string>
#include <utility>

#include "kvquant/plane_arena.h"
#include "support/cache_probe.h"
#include "support/no_backend.h"

// Under AddressSanitizer: no memory is a null pointer, as it is from the system, not the end.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace kvquant {
namespace {

using namespace test;
using Cache = TieredKvCache<NoBackend>;

// Qwen3's 8 heads of 128: a row of 1024, as BF16 2048 bytes a side, as codes with one FP16 scale
// and offset for 128 elements 8.25, 4.25 or 2.25 bits an element.
constexpr int kRow = 1024;
constexpr std::size_t kBf16 = 32 * 2048;
constexpr std::size_t kInt4 = 32 * 1024 * 17 / 32;  // 4.25 / 8 bytes an element
constexpr std::size_t kInt2 = 32 * 1024 * 9 / 32;

CacheConfig qwen_config() {
  CacheConfig config;
  config.shape = {8, 128};
  config.scheme.key.bits = BitWidth::int4;
  config.scheme.key.narrowest = BitWidth::int4;
  config.scheme.value.bits = BitWidth::int4;
  config.policy.far = {BitWidth::int4, BitWidth::int2};
  config.max_positions = 32768;
  return config;
}

Cache make_cache(const CacheConfig& config) {
  Expected<Cache> cache = Cache::create({}, config);
  EXPECT_TRUE(cache.ok()) << cache.status().message();
  return std::move(cache.value());
}

void append(Cache& cache, int count) {
  const auto row = static_cast<std::size_t>(cache.layout().shape().row());
  const std::vector<float> rows(static_cast<std::size_t>(count) * row);
  const Status status = cache.append(rows, rows);
  ASSERT_TRUE(status.ok()) << status.message();
}

const MemoryReport::Part& part(const MemoryReport& report, Band band) {
  return report.bands[static_cast<int>(band)];
}

TEST(TieredCacheMemory, ReportOfALongCacheByBand) {
  CacheConfig config = qwen_config();
  config.undemoted_positions = 64;
  Cache cache = make_cache(config);
  while (cache.length() < config.max_positions) {
    ASSERT_NO_FATAL_FAILURE(append(cache, 64));
    ASSERT_TRUE(cache.demote(cache.length()).ok());
  }
  // 1024 blocks: 1 sink, 1 to 8 away recent, 9 to 16 away mid, the others far.
  const MemoryReport report = cache.memory();
  EXPECT_EQ(part(report, Band::open).blocks, 0);
  EXPECT_EQ(part(report, Band::sink).blocks, 1);
  EXPECT_EQ(part(report, Band::sink).bytes, 2 * kBf16);
  // Recent rows are BF16 beside the codes that they will be read as; the fitted int2 pair of values
  // stands in their hi2 plane from the start, a quarter of a bit more.
  constexpr std::size_t kValueCodes = kInt4 + 32 * 1024 / 32;
  EXPECT_EQ(part(report, Band::recent).blocks, 8);
  EXPECT_EQ(part(report, Band::recent).bytes, 8 * (2 * kBf16 + kInt4 + kValueCodes));
  EXPECT_EQ(part(report, Band::mid).blocks, 8);
  EXPECT_EQ(part(report, Band::mid).bytes, 8 * (kInt4 + kValueCodes));
  EXPECT_EQ(part(report, Band::far).blocks, 1007);
  EXPECT_EQ(part(report, Band::far).bytes, 1007 * (kInt4 + kInt2));
  EXPECT_EQ((kInt4 + kInt2) / 32, 832u) << "bytes of a far key with its value";
  std::size_t sum = 0;
  for (const MemoryReport::Part& band : report.bands) sum += band.bytes;
  EXPECT_EQ(report.held, sum);
  const double bits = 8.0 * static_cast<double>(sum) / (2.0 * 32768 * kRow);
  EXPECT_DOUBLE_EQ(report.bits_per_element, bits);
  EXPECT_NEAR(report.bits_per_element, 3.405, 0.001) << "3.25 far away, and 17 blocks that are not";
  EXPECT_EQ(report.reserved, Cache::bytes_needed(config).value());
  EXPECT_GE(report.reserved, report.held);
}

TEST(TieredCacheMemory, AnOpenBlockCostsItsRows) {
  Cache cache = make_cache(qwen_config());
  append(cache, 33);
  const MemoryReport report = cache.memory();
  EXPECT_EQ(part(report, Band::open).blocks, 1);
  EXPECT_EQ(part(report, Band::open).bytes, 2 * kBf16);
  EXPECT_EQ(part(report, Band::sink).bytes, 2 * kBf16);
  EXPECT_DOUBLE_EQ(report.bits_per_element, 64.0 * 16 / 33);
}

TEST(TieredCacheMemory, ReportAddsUpToThePlanesThatBlocksHold) {
  Cache cache = make_cache(qwen_config());
  append(cache, 1000);
  ASSERT_TRUE(cache.demote(900).ok());
  std::size_t held = 0;
  for (int index = 0; index < blocks_of(cache.length()); ++index) {
    for (const Side side : kBothSides) {
      for (const Plane plane : kEveryPlane) {
        if (cache.block(index).plane(side, plane) != nullptr) {
          held += cache.layout().plane(side, plane).bytes;
        }
      }
    }
  }
  EXPECT_EQ(cache.memory().held, held);
  ASSERT_TRUE(cache.truncate(0).ok());
  EXPECT_EQ(cache.memory().held, 0u);
}

TEST(TieredCacheMemory, APromiseOfDemotionSetsAsideLess) {
  CacheConfig config = qwen_config();
  // All that 1024 blocks have before anything is demoted: rows, codes and the fitted pair.
  constexpr std::size_t kValueCodes = kInt4 + 32 * 1024 / 32;
  EXPECT_EQ(Cache::bytes_needed(config).value(), 1024 * (2 * kBf16 + kInt4 + kValueCodes));
  config.undemoted_positions = 64;
  // Two blocks of the promise and the open one; 8 recent ones and the sink keep their rows. Values
  // keep mid2 in the recent and mid bands, and keys in every one.
  constexpr std::size_t kValueMid2 = 32 * 1024 * 9 / 32;
  EXPECT_EQ(Cache::bytes_needed(config).value(),
            12 * 2 * kBf16 + 1024 * (kInt4 + kInt2) + 19 * kValueMid2);
  config.undemoted_positions = INT_MAX;
  const std::size_t all = Cache::bytes_needed(config).value();
  config.undemoted_positions = 0;
  EXPECT_EQ(Cache::bytes_needed(config).value(), all);
}

TEST(TieredCacheMemory, BandsOfNoBlocksCostNothing) {
  CacheConfig config = qwen_config();
  config.policy.sink_blocks = 0;
  config.policy.recent_blocks = 0;
  config.policy.mid_blocks = 0;
  Cache cache = make_cache(config);
  append(cache, 64);
  EXPECT_EQ(cache.memory().held, 2 * (2 * kBf16 + kInt4 + kInt2));
  ASSERT_TRUE(cache.demote(64).ok());
  EXPECT_EQ(cache.memory().held, 2 * (kInt4 + kInt2));
}

TEST(TieredCacheMemory, SizesNoSystemHasAreAnErrorValue) {
  CacheConfig config;
  config.shape = {16, 512};
  config.scheme.key.group_size = config.scheme.value.group_size = 1;
  config.policy.sink_blocks = config.policy.recent_blocks = INT_MAX / 4;
  for (const int undemoted : {0, 1, INT_MAX}) {
    SCOPED_TRACE(undemoted);
    config.max_positions = INT_MAX;
    config.undemoted_positions = undemoted;
    const Expected<std::size_t> bytes = Cache::bytes_needed(config);
    ASSERT_TRUE(bytes.ok()) << bytes.status().message();
    EXPECT_GT(bytes.value(), std::size_t{1} << 47) << "more than a process can address";
    const Expected<Cache> cache = Cache::create({}, config);
    ASSERT_FALSE(cache.ok());
    EXPECT_EQ(cache.status().code(), Code::out_of_memory);
    EXPECT_EQ(
        std::string(cache.status().message()),
        "cache: the system has no " + std::to_string(bytes.value()) + " bytes for its planes");
  }
}

TEST(PlaneArena, HandsOutEveryPlaneOnceAlignedAndApart) {
  const BlockLayout layout = BlockLayout::make({8, 16}, {}).value();
  PlaneArena::Counts counts;
  for (auto& side : counts.planes) {
    for (int& count : side) count = 3;
  }
  PlaneArena arena;
  EXPECT_EQ(arena.take(Side::key, Plane::hi2), nullptr) << "nothing was set aside";
  ASSERT_TRUE(arena.reserve(layout, counts).ok());
  EXPECT_EQ(arena.bytes(), PlaneArena::bytes_needed(layout, counts));
  std::vector<std::pair<std::uintptr_t, std::size_t>> taken;
  for (const Side side : kBothSides) {
    for (const Plane plane : kEveryPlane) {
      const std::size_t bytes = layout.plane(side, plane).bytes;
      std::uint8_t* last = nullptr;
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(arena.free(side, plane), 3 - i);
        last = arena.take(side, plane);
        ASSERT_NE(last, nullptr);
        std::memset(last, 0xff, bytes);
        taken.emplace_back(reinterpret_cast<std::uintptr_t>(last), bytes);
        EXPECT_EQ(taken.back().first % 64, 0u);
      }
      EXPECT_EQ(arena.take(side, plane), nullptr);
      arena.give_back(side, plane, last);
      EXPECT_EQ(arena.free(side, plane), 1);
      EXPECT_EQ(arena.take(side, plane), last) << "warm memory goes out first";
    }
  }
  std::sort(taken.begin(), taken.end());
  for (std::size_t i = 1; i < taken.size(); ++i) {
    EXPECT_LE(taken[i - 1].first + taken[i - 1].second, taken[i].first);
  }
}

TEST(PlaneArena, PlanesTheLayoutDoesNotHaveAreIgnored) {
  KvScheme scheme;
  scheme.key.bits = BitWidth::int2;
  const BlockLayout layout = BlockLayout::make({8, 16}, scheme).value();
  PlaneArena::Counts counts;
  counts.planes[0][static_cast<int>(Plane::low4)] = 5;
  PlaneArena arena;
  ASSERT_TRUE(arena.reserve(layout, counts).ok());
  EXPECT_EQ(arena.bytes(), 0u);
  EXPECT_EQ(arena.take(Side::key, Plane::low4), nullptr);
}

}  // namespace
}  // namespace kvquant
