// The kernels of the cpu backend's attention over bit planes against plain double code that reads
// the same codes, on every CPU target, and against themselves however queries are put together.
#define HWY_WANT_AVX3_DL  // before Highway: one of the targets of these kernels alone
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "backend/cpu/code_attention.h"
#include "base/float16.h"
#include "kvquant/codec.h"
#include "kvquant/cpu_ref.h"
#include "support/cpu_targets.h"
#include "support/random_floats.h"
#include "support/sanitized.h"

namespace kipp::cpu {
namespace {

using kvquant::BitWidth;
using kvquant::Plane;
using kvquant::Side;
using test::normal_floats;
using test::on_every_target;

constexpr std::size_t kDim = kHeadDim;
constexpr std::size_t kBlockFloats = kDim * kBlockPositions;

struct Widths {
  BitWidth key, value;
};

// Keys and values of one KV head: BF16 rows and every plane of codes, block by block.
class Cache {
 public:
  Cache(int positions, bool rotated, unsigned seed, double spread = 1) : rotated_(rotated) {
    const auto blocks = static_cast<std::size_t>(blocks_for(positions));
    const auto make = [&](unsigned s) {
      auto floats = normal_floats(s, blocks * kBlockFloats, spread);
      for (std::size_t i = 0; i < floats.size(); i += kDim) floats[i + 5] *= 7;  // an outlier
      for (float& x : floats) x = bf16_to_f32(f32_to_bf16(x));
      return floats;
    };
    rows_[0] = make(seed);
    rows_[1] = make(seed + 1);
    scheme_ = {.bits = BitWidth::int8,
               .group_size = kHeadDim,
               .hadamard = rotated,
               .narrowest = BitWidth::int2};
    const auto layout = kvquant::BlockLayout::make({.kv_heads = 1, .head_width = kHeadDim},
                                                   {.key = scheme_, .value = scheme_})
                            .value();
    kvquant::CpuRefBackend oracle;
    for (std::size_t b = 0; b < blocks; ++b) {
      auto stored = std::make_unique<Stored>();
      kvquant::KvBlock block;
      for (const Side side : {Side::key, Side::value}) {
        for (const Plane plane : {Plane::hi2, Plane::mid2, Plane::low4, Plane::bf16}) {
          block.plane(side, plane) = stored->plane(side, plane);
        }
      }
      const auto of = [&](int side) {
        return std::span(rows_[side]).subspan(b * kBlockFloats, kBlockFloats);
      };
      const auto status = oracle.quantize_append(layout, of(0), of(1), block);
      EXPECT_TRUE(status.ok()) << status.message();
      blocks_.push_back(std::move(stored));
    }
    layout_ = layout;
  }

  bool rotated() const { return rotated_; }
  TieredHead head(std::size_t block, Widths widths) const {
    return {.keys = side(block, Side::key, widths.key),
            .values = side(block, Side::value, widths.value)};
  }
  // What a read at `width` is, in double: [kDim].
  std::vector<double> read(Side s, int position, BitWidth width) const {
    const auto block = static_cast<std::size_t>(position) / kBlockPositions;
    const auto p = static_cast<std::size_t>(position) % kBlockPositions;
    std::vector<double> x(kDim);
    if (width == BitWidth::bf16) {
      const auto& rows = rows_[static_cast<int>(s)];
      for (std::size_t c = 0; c < kDim; ++c) {
        x[c] = static_cast<double>(rows[(block * kBlockPositions + p) * kDim + c]);
      }
      return x;
    }
    const CodeHead codes = side(block, s, width).codes;
    const auto channels = [&](int c) {
      int top = kvquant::get2(codes.hi2 + p * 32, kHeadDim, c);
      if (codes.mid2 != nullptr) top = 4 * top + kvquant::get2(codes.mid2 + p * 32, kHeadDim, c);
      if (codes.low4 != nullptr) top = 16 * top + kvquant::get4(codes.low4 + p * 64, kHeadDim, c);
      return top;
    };
    const auto scale = static_cast<double>(kvquant::fp16_to_float(codes.scales[p]));
    const auto offset = static_cast<double>(kvquant::fp16_to_float(codes.offsets[p]));
    for (int c = 0; c < kHeadDim; ++c) {
      const int top = channels(c);
      const auto level =
          static_cast<double>(width == BitWidth::int2 ? static_cast<float>(top)
                                                      : kvquant::level_of(scheme_, width, top));
      x[static_cast<std::size_t>(c)] = offset + scale * level;
    }
    if (rotated_) turn(x);
    return x;
  }

 private:
  struct alignas(64) Stored {
    std::uint8_t planes[kvquant::kSides][kvquant::kPlanes][kBlockFloats * 2];
    std::uint8_t* plane(Side side, Plane p) {
      return planes[static_cast<int>(side)][static_cast<int>(p)];
    }
  };

  static void turn(std::vector<double>& x) {
    for (std::size_t half = 1; half < kDim; half *= 2) {
      for (std::size_t start = 0; start < kDim; start += 2 * half) {
        for (std::size_t i = start; i < start + half; ++i) {
          const double a = x[i];
          x[i] = a + x[i + half];
          x[i + half] = a - x[i + half];
        }
      }
    }
    for (double& v : x) v /= std::sqrt(static_cast<double>(kDim));
  }

  TieredSide side(std::size_t block, Side s, BitWidth width) const {
    Stored& stored = *blocks_[block];
    if (width == BitWidth::bf16) {
      return {.rows = reinterpret_cast<const std::uint16_t*>(stored.plane(s, Plane::bf16)),
              .codes = {}};
    }
    const Plane of = width == BitWidth::int2 ? Plane::hi2 : layout_.range_plane(s);
    const auto& parts = layout_.plane(s, of);
    const std::uint8_t* from = stored.plane(s, of);
    return {.rows = nullptr,
            .codes = {.hi2 = stored.plane(s, Plane::hi2),
                      .mid2 = width >= BitWidth::int4 ? stored.plane(s, Plane::mid2) : nullptr,
                      .low4 = width == BitWidth::int8 ? stored.plane(s, Plane::low4) : nullptr,
                      .scales = reinterpret_cast<const std::uint16_t*>(from + parts.scales),
                      .offsets = reinterpret_cast<const std::uint16_t*>(from + parts.offsets),
                      .width = width}};
  }

  bool rotated_;
  kvquant::QuantScheme scheme_;
  kvquant::BlockLayout layout_;
  std::vector<float> rows_[2];
  std::vector<std::unique_ptr<Stored>> blocks_;
};

// The widths of every block before the query's own, which is BF16.
using Tiers = std::function<Widths(int block)>;

Widths widths_of(const Tiers& tiers, int block, int pos) {
  if (block == pos / kBlockPositions) return {BitWidth::bf16, BitWidth::bf16};
  return tiers(block);
}

struct States {
  struct alignas(64) State {
    float out[kTileQueries * kDim];
    float greatest[kTileQueries];
    float sum[kTileQueries];
    AttentionState view() { return {.out = out, .greatest = greatest, .sum = sum}; }
  };
  State codes, rows;
  TieredState view() { return {.codes = codes.view(), .rows = rows.view()}; }
};

// Attention of `positions` positions from `pos` on, all in one block, `heads` heads each.
std::vector<float> attend(const Cache& cache, const Tiers& tiers, std::span<const float> queries,
                          int pos, int positions, int heads) {
  const std::size_t row = static_cast<std::size_t>(heads) * kDim;
  const QueryTile tile = {.first = queries.data(),
                          .stride = static_cast<std::ptrdiff_t>(row),
                          .positions = positions,
                          .heads = heads};
  const auto scratch = std::make_unique<TieredScratch>();
  const auto coded = std::make_unique<CodedQueries>();
  const auto total = std::make_unique<States>(), next = std::make_unique<States>();
  code_queries(*coded, tile, cache.rotated());
  const int end = blocks_for(pos + positions);
  for (int run = 0; run < runs_for(pos + positions); ++run) {
    std::vector<TieredHead> blocks;
    for (int b = run * kRunBlocks; b < std::min(end, (run + 1) * kRunBlocks); ++b) {
      blocks.push_back(cache.head(static_cast<std::size_t>(b), widths_of(tiers, b, pos)));
    }
    attend_tiered_run(run == 0 ? total->view() : next->view(), tile, *coded, blocks,
                      pos + 1 - run * kRunPositions, blocks, *scratch);
    if (run > 0) {
      merge_run(total->view().codes, next->view().codes, tile.queries());
      merge_run(total->view().rows, next->view().rows, tile.queries());
    }
  }
  std::vector<float> out(queries.size());
  finish_tiered_attention(out.data(), static_cast<std::ptrdiff_t>(row), total->view(), positions,
                          heads, cache.rotated());
  return out;
}

std::vector<double> expected(const Cache& cache, const Tiers& tiers, const float* query, int pos) {
  std::vector<double> weights, out(kDim);
  double greatest = -1e300, sum = 0;
  for (int key = 0; key <= pos; ++key) {
    const auto k = cache.read(Side::key, key, widths_of(tiers, key / kBlockPositions, pos).key);
    double score = 0;
    for (std::size_t i = 0; i < kDim; ++i) score += static_cast<double>(query[i]) * k[i];
    weights.push_back(score / std::sqrt(128.0));
    greatest = std::max(greatest, weights.back());
  }
  for (double& w : weights) sum += w = std::exp(w - greatest);
  for (int key = 0; key <= pos; ++key) {
    const auto v = cache.read(Side::value, key, widths_of(tiers, key / kBlockPositions, pos).value);
    for (std::size_t i = 0; i < kDim; ++i) {
      out[i] += weights[static_cast<std::size_t>(key)] / sum * v[i];
    }
  }
  return out;
}

double nmse(std::span<const float> found, std::span<const double> truth) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    error += std::pow(static_cast<double>(found[i]) - truth[i], 2);
    size += truth[i] * truth[i];
  }
  return error / size;
}

constexpr BitWidth kWidths[] = {BitWidth::bf16, BitWidth::int8, BitWidth::int4, BitWidth::int2};

// Every pair of widths in turn.
Widths mixed(int block) { return {kWidths[block % 4], kWidths[(block / 4 + block) % 4]}; }

class CpuTieredAttention : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Rotation, CpuTieredAttention, testing::Values(true, false),
                         [](const auto& test) { return std::string(test.param ? "On" : "Off"); });

TEST_P(CpuTieredAttention, OfEveryPairOfWidths) {
  const Cache cache(200, GetParam(), 20);
  const auto queries = normal_floats(9, 2 * kDim);
  for (const BitWidth key : kWidths) {
    for (const BitWidth value : kWidths) {
      const Tiers tiers = [&](int) { return Widths{key, value}; };
      std::vector<double> truth;
      for (std::size_t head = 0; head < 2; ++head) {
        const auto of_head = expected(cache, tiers, queries.data() + head * kDim, 170);
        truth.insert(truth.end(), of_head.begin(), of_head.end());
      }
      on_every_target([&](bool) {
        const auto found = attend(cache, tiers, queries, 170, 1, 2);
        EXPECT_LE(nmse(found, truth), 2e-8)
            << kvquant::name_of(key) << " keys, " << kvquant::name_of(value) << " values";
      });
    }
  }
}

TEST_P(CpuTieredAttention, OfEveryGroupOverMixedRuns) {
  const Cache cache(700, GetParam(), 30, 2);
  for (const int heads : {1, 2, 3, 4, 5, 8}) {
    const auto queries = normal_floats(10, static_cast<std::size_t>(heads) * kDim, 2);
    for (const int pos : {0, 31, 32, 255, 256, 699}) {
      std::vector<double> truth;
      for (int head = 0; head < heads; ++head) {
        const auto of_head = expected(
            cache, mixed, queries.data() + static_cast<std::ptrdiff_t>(head) * kHeadDim, pos);
        truth.insert(truth.end(), of_head.begin(), of_head.end());
      }
      on_every_target([&](bool) {
        EXPECT_LE(nmse(attend(cache, mixed, queries, pos, 1, heads), truth), 2e-8)
            << heads << " heads at " << pos;
      });
    }
  }
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// However positions are put into tiles, and which target computes.
TEST_P(CpuTieredAttention, TheSameBitsInAnyTile) {
  constexpr int kFirst = 608;
  const Cache cache(kFirst + kBlockPositions, GetParam(), 50);
  for (const int heads : {5, 2, 3, 4, 8}) {
    if (test::kSanitized && heads != 5) break;
    const auto width = static_cast<std::size_t>(heads) * kDim;
    const auto queries = normal_floats(12, kBlockPositions * width);
    std::vector<float> first;
    on_every_target([&](bool fused) {
      std::vector<float> alone;
      for (std::size_t p = 0; p < kBlockPositions; ++p) {
        const auto out = attend(cache, mixed, std::span(queries).subspan(p * width, width),
                                kFirst + static_cast<int>(p), 1, heads);
        alone.insert(alone.end(), out.begin(), out.end());
      }
      for (const int size : {3, kTileQueries / heads}) {
        for (int p = 0; p < kBlockPositions; p += size) {
          const int n = std::min(size, kBlockPositions - p);
          const auto begin = width * static_cast<std::size_t>(p);
          const auto length = width * static_cast<std::size_t>(n);
          ASSERT_TRUE(same_bits(
              attend(cache, mixed, std::span(queries).subspan(begin, length), kFirst + p, n, heads),
              std::span(alone).subspan(begin, length)))
              << heads << " heads, " << n << " positions from " << p;
        }
      }
      if (!fused) return;
      if (first.empty()) first = alone;
      EXPECT_TRUE(same_bits(first, alone)) << "another vector width";
    });
  }
}

}  // namespace
}  // namespace kipp::cpu
