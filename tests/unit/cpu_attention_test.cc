// The attention kernels of the cpu backend against plain double code, on every CPU target, and
// against themselves however queries are put together.
#include "backend/cpu/attention.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "base/float16.h"
#include "support/cpu_targets.h"
#include "support/random_floats.h"
#include "support/sanitized.h"

namespace kipp::cpu {
namespace {

using test::normal_floats;
using test::on_every_target;

constexpr std::size_t kDim = kHeadDim;

// Keys and values of one KV head, in blocks of which what lies past `positions` is NaN.
class Cache {
 public:
  Cache(int positions, KvStore store, unsigned seed, double key_scale = 1) : store_(store) {
    const auto n = static_cast<std::size_t>(positions) * kDim;
    set(normal_floats(seed, n, key_scale), normal_floats(seed + 1, n));
  }
  Cache(const std::vector<float>& keys, const std::vector<float>& values, KvStore store)
      : store_(store) {
    set(keys, values);
  }

  std::vector<KvHead> blocks() const {
    std::vector<KvHead> heads;
    for (std::size_t b = 0; b < n_blocks_; ++b) {
      heads.push_back({keys_.data() + b * block_bytes(), values_.data() + b * block_bytes()});
    }
    return heads;
  }
  KvStore store() const { return store_; }
  double key(int pos, std::size_t i) const { return stored(keys_, pos, i); }
  double value(int pos, std::size_t i) const { return stored(values_, pos, i); }

 private:
  std::size_t element_bytes() const { return store_ == KvStore::bf16 ? 2 : 4; }
  std::size_t block_bytes() const { return kBlockPositions * kDim * element_bytes(); }

  void set(const std::vector<float>& keys, const std::vector<float>& values) {
    n_blocks_ = static_cast<std::size_t>(blocks_for(static_cast<int>(keys.size() / kDim)));
    keys_ = bytes_of(keys);
    values_ = bytes_of(values);
  }
  std::vector<std::byte> bytes_of(const std::vector<float>& floats) const {
    std::vector<std::byte> bytes(n_blocks_ * block_bytes(), std::byte{0xff});
    for (std::size_t i = 0; i < floats.size(); ++i) {
      const std::uint16_t half = f32_to_bf16(floats[i]);
      std::memcpy(bytes.data() + i * element_bytes(),
                  store_ == KvStore::bf16 ? static_cast<const void*>(&half) : &floats[i],
                  element_bytes());
    }
    return bytes;
  }
  double stored(const std::vector<std::byte>& bytes, int pos, std::size_t i) const {
    const std::byte* at =
        bytes.data() + (static_cast<std::size_t>(pos) * kDim + i) * element_bytes();
    std::uint16_t half;
    float whole;
    std::memcpy(&half, at, sizeof(half));
    if (store_ == KvStore::bf16) return static_cast<double>(bf16_to_f32(half));
    std::memcpy(&whole, at, sizeof(whole));
    return static_cast<double>(whole);
  }

  KvStore store_;
  std::size_t n_blocks_ = 0;
  std::vector<std::byte> keys_, values_;
};

struct alignas(64) State {
  float out[kTileQueries * kDim];
  float greatest[kTileQueries];
  float sum[kTileQueries];

  AttentionState view() { return {.out = out, .greatest = greatest, .sum = sum}; }
};

// Attention of `positions` positions from `pos` on, `heads` heads each: [positions * heads, kDim].
// The rows of queries and of the result have a gap, as the rows of a step have.
std::vector<float> attend(const Cache& cache, const std::vector<float>& queries, int pos,
                          int positions, int heads) {
  constexpr std::size_t kGap = 96;
  const std::size_t row = static_cast<std::size_t>(heads) * kDim;
  const std::size_t stride = row + kGap;
  std::vector<float> in(stride * static_cast<std::size_t>(positions), 1e30f);
  for (std::size_t t = 0; t < static_cast<std::size_t>(positions); ++t) {
    std::copy_n(queries.data() + t * row, row, in.data() + t * stride);
  }
  const QueryTile tile = {.first = in.data(),
                          .stride = static_cast<std::ptrdiff_t>(stride),
                          .positions = positions,
                          .heads = heads};
  const auto scratch = std::make_unique<AttentionScratch>();
  const auto total = std::make_unique<State>(), next = std::make_unique<State>();
  const auto blocks = cache.blocks();
  const int end = blocks_for(pos + positions);
  for (int run = 0; run < runs_for(pos + positions); ++run) {
    const int first = run * kRunBlocks;
    const auto of_run =
        std::span(blocks).subspan(static_cast<std::size_t>(first),
                                  static_cast<std::size_t>(std::min(kRunBlocks, end - first)));
    attend_run(run == 0 ? total->view() : next->view(), tile, cache.store(), of_run,
               pos + 1 - run * kRunPositions, of_run.front(), *scratch);
    if (run > 0) merge_run(total->view(), next->view(), tile.queries());
  }
  std::vector<float> out(in.size(), 7.0f);
  finish_attention(out.data(), static_cast<std::ptrdiff_t>(stride), total->view(), positions,
                   heads);
  std::vector<float> packed;
  for (std::size_t t = 0; t < static_cast<std::size_t>(positions); ++t) {
    const auto at = out.begin() + static_cast<std::ptrdiff_t>(t * stride);
    packed.insert(packed.end(), at, at + static_cast<std::ptrdiff_t>(row));
    for (std::size_t i = row; i < stride; ++i) EXPECT_EQ(out[t * stride + i], 7.0f) << "the gap";
  }
  return packed;
}

// One query over positions [0, seen) in double; `magnitude` is what roundings are relative to.
struct Expected {
  std::vector<double> out = std::vector<double>(kDim);
  std::vector<double> magnitude = std::vector<double>(kDim);
  double score_magnitude = 0;
};
Expected expected(const Cache& cache, const float* query, int seen) {
  Expected result;
  std::vector<double> weights;
  double greatest = -1e300, sum = 0;
  for (int pos = 0; pos < seen; ++pos) {
    double score = 0, magnitude = 0;
    for (std::size_t i = 0; i < kDim; ++i) {
      const double product = static_cast<double>(query[i]) * cache.key(pos, i);
      score += product;
      magnitude += std::abs(product);
    }
    weights.push_back(score / std::sqrt(128.0));
    greatest = std::max(greatest, weights.back());
    result.score_magnitude = std::max(result.score_magnitude, magnitude / std::sqrt(128.0));
  }
  for (double& w : weights) sum += w = std::exp(w - greatest);
  for (int pos = 0; pos < seen; ++pos) {
    for (std::size_t i = 0; i < kDim; ++i) {
      const double term = weights[static_cast<std::size_t>(pos)] / sum * cache.value(pos, i);
      result.out[i] += term;
      result.magnitude[i] += std::abs(term);
    }
  }
  return result;
}

void expect_close(const Cache& cache, const std::vector<float>& queries, int pos, int positions,
                  int heads, bool fused) {
  const auto found = attend(cache, queries, pos, positions, heads);
  double error = 0, size = 0;
  for (int q = 0; q < positions * heads; ++q) {
    const std::size_t at = static_cast<std::size_t>(q) * kDim;
    const int seen = pos + q / heads + 1;
    const Expected truth = expected(cache, queries.data() + at, seen);
    // A score rounds at each of its 128 steps (twice where they are not fused); the exponential
    // makes that a relative error of weights and of their sum. Then positions are added one by one,
    // and each block rescales what was there.
    const double steps = (fused ? 1 : 2) * 130.0;
    const double relative =
        (2 * steps * truth.score_magnitude + 2.0 * seen + 4.0 * blocks_for(seen) + 20) * 0x1p-24;
    for (std::size_t i = 0; i < kDim; ++i) {
      ASSERT_NEAR(found[at + i], truth.out[i], relative * truth.magnitude[i])
          << "position " << pos << " + " << q / heads << ", head " << q % heads << ", " << i;
      error += std::pow(static_cast<double>(found[at + i]) - truth.out[i], 2);
      size += truth.out[i] * truth.out[i];
    }
  }
  EXPECT_LE(error, 1e-11 * size);  // what is measured is near 1e-13
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

class CpuAttention : public testing::TestWithParam<KvStore> {};
INSTANTIATE_TEST_SUITE_P(Stores, CpuAttention, testing::Values(KvStore::bf16, KvStore::f32),
                         [](const auto& test) {
                           return std::string(test.param == KvStore::bf16 ? "Bf16" : "F32");
                         });

TEST_P(CpuAttention, OfEveryCountAndGroup) {
  for (const int heads : {1, 2, 3, 4, 5, 8}) {
    const auto queries = normal_floats(9, static_cast<std::size_t>(heads) * kDim);
    for (int seen = 1; seen <= 70; seen += seen < 33 ? 1 : 9) {
      const Cache cache(seen, GetParam(), 20);
      on_every_target([&](bool fused) { expect_close(cache, queries, seen - 1, 1, heads, fused); });
    }
  }
}

TEST_P(CpuAttention, OverLongRuns) {
  for (const int seen : {256, 257, 511, 512, 1000, 2049}) {
    const Cache cache(seen, GetParam(), 30, 2);
    const auto queries = normal_floats(10, 5 * kDim, 2);
    on_every_target([&](bool fused) { expect_close(cache, queries, seen - 1, 1, 5, fused); });
  }
}

TEST_P(CpuAttention, OfTilesIsCausal) {
  struct Tile {
    int pos, positions, heads;
  };
  for (const Tile& t : {Tile{0, 64, 1},
                        {0, 32, 2},
                        {17, 21, 3},
                        {40, 16, 4},
                        {250, 12, 5},
                        {224, 32, 2},
                        {255, 8, 8},
                        {300, 7, 1}}) {
    const Cache cache(t.pos + t.positions, GetParam(), 40);
    const auto queries = normal_floats(11, static_cast<std::size_t>(t.positions * t.heads) * kDim);
    on_every_target(
        [&](bool fused) { expect_close(cache, queries, t.pos, t.positions, t.heads, fused); });
  }
}

// However positions are put into tiles, what lies behind them and which target computes.
TEST_P(CpuAttention, TheSameBitsInAnyTile) {
  constexpr int kPositions = 300;
  for (const int heads : {5, 1, 2, 8}) {
    if (test::kSanitized && heads != 5) break;
    const auto width = static_cast<std::size_t>(heads) * kDim;
    const Cache cache(kPositions, GetParam(), 50);
    const auto queries = normal_floats(12, kPositions * width);
    std::vector<float> first;
    on_every_target([&](bool fused) {
      std::vector<float> alone;
      for (int pos = 0; pos < kPositions; ++pos) {
        const std::vector<float> query(
            queries.begin() + static_cast<std::ptrdiff_t>(width) * pos,
            queries.begin() + static_cast<std::ptrdiff_t>(width) * (pos + 1));
        const auto out = attend(cache, query, pos, 1, heads);
        alone.insert(alone.end(), out.begin(), out.end());
      }
      for (const int size : {2, 3, 7, 8, kTileQueries / heads}) {
        for (int pos = 0; pos < kPositions; pos += size) {
          const int n = std::min(size, kPositions - pos);
          const auto begin = width * static_cast<std::size_t>(pos);
          const auto length = width * static_cast<std::size_t>(n);
          const auto begin_at = queries.begin() + static_cast<std::ptrdiff_t>(begin);
          const std::vector<float> some(begin_at, begin_at + static_cast<std::ptrdiff_t>(length));
          ASSERT_TRUE(same_bits(attend(cache, some, pos, n, heads),
                                std::span(alone).subspan(begin, length)))
              << heads << " heads, " << n << " positions from " << pos;
        }
      }
      if (!fused) return;
      if (first.empty()) first = alone;
      EXPECT_TRUE(same_bits(first, alone)) << "another vector width";
    });
  }
}

// A tile computes for all its positions at once, but what a position holds may only reach those
// that see it.
TEST_P(CpuAttention, ALaterPositionReachesNoEarlierOne) {
  constexpr int kPositions = 45;
  for (const int heads : {1, 3}) {
    const auto width = static_cast<std::size_t>(heads) * kDim;
    auto keys = normal_floats(14, kPositions * kDim), values = normal_floats(15, kPositions * kDim);
    const auto queries = normal_floats(16, 12 * width);
    const auto before = attend(Cache(keys, values, GetParam()), queries, 33, 12, heads);
    for (const int poisoned : {34, 40, 44}) {
      auto bad_keys = keys, bad_values = values;
      const auto at = static_cast<std::ptrdiff_t>(poisoned) * kHeadDim;
      std::fill_n(bad_keys.begin() + at, kDim, std::numeric_limits<float>::quiet_NaN());
      std::fill_n(bad_values.begin() + at, kDim, std::numeric_limits<float>::infinity());
      const Cache cache(bad_keys, bad_values, GetParam());
      on_every_target([&](bool fused) {
        if (!fused) return;
        const auto found = attend(cache, queries, 33, 12, heads);
        const std::size_t untouched = width * static_cast<std::size_t>(poisoned - 33);
        EXPECT_TRUE(
            same_bits(std::span(found).first(untouched), std::span(before).first(untouched)))
            << poisoned;
        EXPECT_TRUE(std::isnan(found.back())) << "it does see the poison";
      });
    }
  }
}

// Scores set by the keys' first dimension alone.
class CpuAttentionScores : public testing::Test {
 protected:
  // `values` is 1 in dimension i of position i (mod kDim), so that the result shows the weights.
  static std::vector<float> weights_for(const std::vector<float>& scores) {
    std::vector<float> query(kDim, 0.0f), keys(scores.size() * kDim), values(keys.size());
    query[0] = 11.3125f;  // about sqrt(128), exact in BF16
    for (std::size_t pos = 0; pos < scores.size(); ++pos) {
      keys[pos * kDim] = scores[pos];
      values[pos * kDim + pos % kDim] = 1;
    }
    const Cache cache(keys, values, KvStore::f32);
    return attend(cache, query, static_cast<int>(scores.size()) - 1, 1, 1);
  }
};

TEST_F(CpuAttentionScores, EqualOnesShareEqually) {
  for (const float score : {0.0f, 1e4f, -1e4f, -3e30f}) {
    on_every_target([&](bool) {
      for (const std::size_t n : {1u, 31u, 32u, 33u, 128u}) {
        const auto found = weights_for(std::vector<float>(n, score));
        for (std::size_t i = 0; i < kDim; ++i) {
          ASSERT_FLOAT_EQ(found[i], i < n ? 1.0f / static_cast<float>(n) : 0.0f) << score;
        }
      }
    });
  }
}

TEST_F(CpuAttentionScores, OneFarAboveTakesAll) {
  for (const std::size_t n : {2u, 33u, 100u, 128u}) {
    for (const std::size_t winner : {std::size_t{0}, n / 2, n - 1}) {
      on_every_target([&](bool) {
        std::vector<float> scores(n, -1e4f);
        scores[winner] = 1e4f;
        const auto found = weights_for(scores);
        for (std::size_t i = 0; i < kDim; ++i) ASSERT_EQ(found[i], i == winner ? 1.0f : 0.0f);
      });
    }
  }
}

TEST_F(CpuAttentionScores, SwingingFromBlockToBlock) {
  std::vector<float> scores;
  for (int i = 0; i < 128; ++i)
    scores.push_back(i / 32 % 2 == 0 ? -1e4f : 1e4f + 0.5f * static_cast<float>(i % 32));
  on_every_target([&](bool) {
    const auto found = weights_for(scores);
    float sum = 0;
    for (std::size_t i = 0; i < kDim; ++i) {
      ASSERT_TRUE(std::isfinite(found[i]));
      if (i / 32 % 2 == 0) {
        ASSERT_EQ(found[i], 0.0f);
      }
      sum += found[i];
    }
    EXPECT_NEAR(sum, 1, 1e-5);
    EXPECT_EQ(found[63], found[127]) << "equal scores in two blocks";
    EXPECT_NEAR(found[63] / found[62], std::exp(0.5), 2e-3) << "1e4 in float has steps of 0.001";
  });
}

TEST(CpuAttentionRuns, ARunThatAQuerySeesNothingOfChangesNothing) {
  const Cache cache(300, KvStore::bf16, 60);
  const auto queries = normal_floats(13, 2 * kDim);
  // Positions 255 and 256: only the second sees the second run.
  const auto both = attend(cache, queries, 255, 2, 1);
  const std::vector<float> first(queries.begin(), queries.begin() + kDim);
  EXPECT_TRUE(same_bits(attend(cache, first, 255, 1, 1), std::span(both).first(kDim)));
}

}  // namespace
}  // namespace kipp::cpu
