// The row kernels of the cpu backend against plain double code, on every CPU target.
#include "backend/cpu/kernels.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/float16.h"
#include "model/config.h"
#include "support/cpu_targets.h"
#include "support/random_floats.h"

namespace kipp::cpu {
namespace {

using test::normal_floats;
using test::on_every_target;

constexpr double kHalfUlp = 0x1p-24;

// Bits of what the first target with fused multiply-add gave; the others must give the same.
class SameBits {
 public:
  void check(const std::vector<float>& values) {
    if (first_.empty()) first_ = values;
    ASSERT_EQ(first_.size(), values.size());
    EXPECT_EQ(std::memcmp(first_.data(), values.data(), values.size() * sizeof(float)), 0);
  }

 private:
  std::vector<float> first_;
};

// The distance to the true value in units in the last place of the result.
double ulps_off(float found, double expected) {
  const int exponent = std::max(std::ilogb(expected), -126);
  return std::abs(static_cast<double>(found) - expected) / std::ldexp(1.0, exponent - 23);
}

TEST(CpuExp, IsWithinAUnitInTheLastPlace) {
  // Every 1021st float between the bounds of either sign; a prime, so that no pattern of the bits
  // is missed.
  std::vector<float> in;
  const float highest = 0x1.62e42ep+6f, lowest = -0x1.5d589ep+6f;
  for (std::uint32_t bits = 0; bits <= std::bit_cast<std::uint32_t>(highest); bits += 1021) {
    in.push_back(std::bit_cast<float>(bits));
    const float negative = -std::bit_cast<float>(bits);
    if (negative >= lowest) in.push_back(negative);
  }
  in.insert(in.end(), {highest, lowest, -0.0f});
  in.resize((in.size() + 31) / 32 * 32, 0.5f);
  std::vector<float> out(in.size());
  on_every_target([&](bool fused) {
    exp(out, in);
    double worst = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      worst = std::max(worst, ulps_off(out[i], std::exp(static_cast<double>(in[i]))));
    }
    EXPECT_LE(worst, fused ? 0.9 : 1.2);
  });
}

TEST(CpuExp, SaturatesAndKeepsWhatIsNoNumber) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> in(32, 0.0f);
  const std::vector<std::pair<float, float>> cases = {{0x1.62e43p+6f, kInfinity},
                                                      {1e4f, kInfinity},
                                                      {3e38f, kInfinity},
                                                      {kInfinity, kInfinity},
                                                      {-0x1.5d58ap+6f, 0.0f},
                                                      {-1e4f, 0.0f},
                                                      {-3e38f, 0.0f},
                                                      {-kInfinity, 0.0f},
                                                      {0.0f, 1.0f},
                                                      {-0.0f, 1.0f},
                                                      {1e-40f, 1.0f},
                                                      {-1e-40f, 1.0f}};
  for (std::size_t i = 0; i < cases.size(); ++i) in[i] = cases[i].first;
  in[31] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> out(32);
  on_every_target([&](bool) {
    exp(out, in);
    for (std::size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(out[i], cases[i].second) << in[i];
    EXPECT_TRUE(std::isnan(out[31]));
  });
}

TEST(CpuRmsNorm, AgreesWithDoubleAndWorksInPlace) {
  for (const std::size_t n : {32u, 64u, 320u, 1024u, 5120u}) {
    SCOPED_TRACE(n);
    const auto x = normal_floats(1, n, 30), weight = normal_floats(2, n);
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * static_cast<double>(v);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
    // A lane adds n / 32 squares, the fold 5 times; half of that relative error passes the root,
    // then come the mean, eps, root, quotient and two products.
    const double bound = (static_cast<double>(n) / 32 * 2 + 5) / 2 + 7;
    SameBits bits;
    on_every_target([&](bool fused) {
      std::vector<float> out(n), in_place = x;
      rms_norm(out, x, weight);
      for (std::size_t i = 0; i < n; ++i) {
        const double expected = static_cast<double>(x[i]) * scale * static_cast<double>(weight[i]);
        ASSERT_NEAR(out[i], expected, bound * kHalfUlp * std::abs(expected)) << i;
      }
      rms_norm(in_place, in_place, weight);
      EXPECT_EQ(in_place, out);
      if (fused) bits.check(out);
    });
  }
}

TEST(CpuRmsNorm, OfZerosIsZero) {
  std::vector<float> x(64, 0.0f);
  rms_norm(x, x, normal_floats(3, 64));
  EXPECT_THAT(x, testing::Each(0.0f));
}

TEST(CpuNormRope, NormsThenTurnsPairs) {
  const auto head = normal_floats(4, kHeadDim, 3), weight = normal_floats(5, kHeadDim);
  std::vector<float> cos, sin;
  for (int i = 0; i < kHeadDim / 2; ++i) {
    const double angle = 1000 * std::pow(1e6, -i / 64.0);
    cos.push_back(static_cast<float>(std::cos(angle)));
    sin.push_back(static_cast<float>(std::sin(angle)));
  }
  double squares = 0;
  for (const float v : head) squares += static_cast<double>(v) * static_cast<double>(v);
  const double scale = 1 / std::sqrt(squares / kHeadDim + 1e-6);
  SameBits bits;
  on_every_target([&](bool fused) {
    auto out = head;
    norm_rope_head(out, weight, cos, sin);
    for (std::size_t i = 0; i < 64; ++i) {
      const auto normed = [&](std::size_t at) {
        return static_cast<double>(head[at]) * scale * static_cast<double>(weight[at]);
      };
      const double a = normed(i), b = normed(i + 64);
      const double c = static_cast<double>(cos[i]), s = static_cast<double>(sin[i]);
      const double bound = 16 * kHalfUlp * (std::abs(a) + std::abs(b));
      ASSERT_NEAR(out[i], a * c - b * s, bound) << i;
      ASSERT_NEAR(out[i + 64], b * c + a * s, bound) << i;
    }
    if (fused) bits.check(out);
  });
}

TEST(CpuSiluMul, AgreesWithDoubleAndSurvivesExtremes) {
  auto gate = normal_floats(6, 320, 8);
  const float extremes[] = {-3e38f, -1000, -100, -88, -1, -1e-30f, 0, 1e-30f, 2, 88, 1000, 3e38f};
  std::copy(std::begin(extremes), std::end(extremes), gate.begin());
  const std::vector<float> up(gate.size(), 0.5f);
  std::vector<float> out(gate.size());
  SameBits bits;
  on_every_target([&](bool fused) {
    silu_mul(out, gate, up);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const double g = static_cast<double>(gate[i]);
      const double expected = g / (1 + std::exp(-g)) * 0.5;
      ASSERT_TRUE(std::isfinite(out[i])) << gate[i];
      // Below the smallest normal float the result may be zero.
      ASSERT_NEAR(out[i], expected, 6 * kHalfUlp * std::abs(expected) + 1e-36) << gate[i];
    }
    if (fused) bits.check(out);
  });
}

TEST(CpuBf16, RoundsAndWidensAsTheScalarDefinitionDoes) {
  // Every pattern of the upper half with the lower halves that decide: kept, just below, at and
  // above the middle.
  std::vector<float> in;
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    for (const std::uint32_t low : {0x0u, 0x1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      in.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  ASSERT_EQ(in.size() % 32, 0u);
  std::vector<std::uint16_t> stored(in.size());
  std::vector<float> wide(in.size());
  on_every_target([&](bool) {
    store_bf16(stored, in);
    widen_bf16(wide, stored);
    for (std::size_t i = 0; i < in.size(); ++i) {
      ASSERT_EQ(stored[i], f32_to_bf16(in[i])) << in[i];
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::uint32_t{stored[i]} << 16);
    }
  });
}

}  // namespace
}  // namespace kipp::cpu
