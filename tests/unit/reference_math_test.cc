// The arithmetic of the reference backend against naive double versions. Tolerances are computed: k
// roundings of a sum cost at most k * 2^-24 of the sum of magnitudes.
#include "backend/reference/reference_math.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/float16.h"
#include "model/rope.h"

namespace kipp::reference {
namespace {

constexpr double kHalfUlp = 0x1p-24;

std::vector<float> random_floats(std::size_t n, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

TEST(Dot, StaysWithinItsRoundings) {
  for (const int n : {32, 64, 128, 320, 1024, 25600}) {
    const auto size = static_cast<std::size_t>(n);
    const auto a = random_floats(size, 1), b = random_floats(size, 2);
    double sum = 0, magnitudes = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const double product = static_cast<double>(a[i]) * static_cast<double>(b[i]);
      sum += product;
      magnitudes += std::abs(product);
    }
    const double roundings = n / kLanes + 5 + 1;  // additions in a lane, folds, the product
    EXPECT_NEAR(dot(a.data(), b.data(), n), sum, roundings * kHalfUlp * magnitudes) << n;
  }
}

// The order is part of the contract: it makes results equal across compilers.
TEST(Dot, AddsInTheDocumentedOrder) {
  const int n = 320;
  const auto a = random_floats(n, 3), b = random_floats(n, 4);
  std::vector<float> sums;
  for (int lane = 0; lane < 32; ++lane) {
    volatile float sum = 0;
    for (int i = lane; i < n; i += 32) {
      volatile float product = a[static_cast<std::size_t>(i)] * b[static_cast<std::size_t>(i)];
      sum = sum + product;
    }
    sums.push_back(float{sum});
  }
  while (sums.size() > 1) {
    const std::size_t half = sums.size() / 2;
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    sums.resize(half);
  }
  EXPECT_EQ(std::bit_cast<std::uint32_t>(dot(a.data(), b.data(), n)),
            std::bit_cast<std::uint32_t>(sums[0]));
}

class Bytes {
 public:
  Bytes& f16(float value) { return u16(f32_to_f16(value)); }
  Bytes& bf16(float value) { return u16(f32_to_bf16(value)); }
  Bytes& u16(std::uint16_t bits) {
    return u8(static_cast<std::uint8_t>(bits)).u8(static_cast<std::uint8_t>(bits >> 8));
  }
  Bytes& u8(std::uint8_t value) {
    data_.push_back(std::byte{value});
    return *this;
  }
  MatrixView matrix(Scheme scheme, int rows, int cols) const {
    EXPECT_EQ(data_.size(), static_cast<std::size_t>(rows) * row_bytes(scheme, cols));
    return {.data = data_.data(), .scheme = scheme, .rows = rows, .cols = cols};
  }

 private:
  std::vector<std::byte> data_;
};

TEST(DecodeRow, Bf16) {
  Bytes bytes;
  for (int i = 0; i < 64; ++i) bytes.bf16(static_cast<float>(i) - 10.5f);
  std::vector<float> row(32);
  decode_row(bytes.matrix(Scheme::bf16, 2, 32), 1, row);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(row[static_cast<std::size_t>(i)], static_cast<float>(32 + i) - 10.5f);
  }
}

TEST(DecodeRow, Q80) {
  Bytes bytes;
  for (const float scale : {0.5f, -0.25f}) {
    bytes.f16(scale);
    for (int i = 0; i < 32; ++i) bytes.u8(static_cast<std::uint8_t>(i * 8 - 128));
  }
  std::vector<float> row(64);
  decode_row(bytes.matrix(Scheme::q8_0, 1, 64), 0, row);
  for (int i = 0; i < 32; ++i) {
    const auto q = static_cast<float>(i * 8 - 128);
    EXPECT_EQ(row[static_cast<std::size_t>(i)], 0.5f * q);
    EXPECT_EQ(row[static_cast<std::size_t>(i + 32)], -0.25f * q);
  }
}

// Byte i holds weight i in its low and weight i + 16 in its high nibble.
TEST(DecodeRow, FourBits) {
  Bytes affine, scaled;
  affine.f16(0.5f).f16(-3.0f);
  scaled.f16(0.5f);
  for (int i = 0; i < 16; ++i) {
    const auto pair = static_cast<std::uint8_t>(i | (15 - i) << 4);
    affine.u8(pair);
    scaled.u8(pair);
  }
  std::vector<float> row(32);
  decode_row(affine.matrix(Scheme::affine4_gs32, 1, 32), 0, row);
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(row[i], 0.5f * static_cast<float>(i) - 3.0f);
    EXPECT_EQ(row[i + 16], 0.5f * static_cast<float>(15 - i) - 3.0f);
  }
  decode_row(scaled.matrix(Scheme::scale4_gs32, 1, 32), 0, row);
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(row[i], 0.5f * (static_cast<float>(i) - 8));
    EXPECT_EQ(row[i + 16], 0.5f * (static_cast<float>(15 - i) - 8));
  }
}

TEST(RmsNorm, AgreesWithDoubleAndWorksInPlace) {
  const std::size_t n = 1024;
  auto x = random_floats(n, 5, 30.0f);
  const auto weight = random_floats(n, 6);
  double squares = 0;
  for (const float v : x) squares += static_cast<double>(v) * static_cast<double>(v);
  const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
  std::vector<float> out(n);
  rms_norm(out, x, weight);
  for (std::size_t i = 0; i < n; ++i) {
    const double expected = static_cast<double>(x[i]) * scale * static_cast<double>(weight[i]);
    // Roundings of eps (1e-6 as float), of the scale and of two products.
    ASSERT_NEAR(out[i], expected, 4 * kHalfUlp * std::abs(expected)) << i;
  }
  rms_norm(x, x, weight);
  EXPECT_EQ(x, out);
}

TEST(RmsNorm, OfZerosIsZero) {
  std::vector<float> x(64, 0.0f);
  rms_norm(x, x, random_floats(64, 7));
  EXPECT_THAT(x, testing::Each(0.0f));
}

class Rope : public testing::Test {
 protected:
  std::vector<float> turned(std::vector<float> head, int position, int theta = 1000000) {
    std::vector<double> frequency(kHeadDim / 2);
    std::vector<float> cos(kHeadDim / 2), sin(kHeadDim / 2);
    rope_inverse_frequency(theta, frequency);
    rope_angles(position, frequency, cos, sin);
    rope(head, cos, sin);
    return head;
  }
  const std::vector<float> head_ = random_floats(kHeadDim, 8);
};

TEST_F(Rope, PairsDimensionIWithI64AtEveryDistance) {
  for (const int theta : {1000000, 5000000}) {
    for (const int position : {0, 1, 31, 4095, 262143}) {
      const auto out = turned(head_, position, theta);
      for (std::size_t i = 0; i < 64; ++i) {
        const double angle = position * std::pow(theta, -static_cast<double>(i) / 64);
        const double a = static_cast<double>(head_[i]), b = static_cast<double>(head_[i + 64]);
        // cos, sin, two products and a sum are rounded; the angle is double: exact enough here.
        const double bound = 4 * kHalfUlp * (std::abs(a) + std::abs(b));
        ASSERT_NEAR(out[i], a * std::cos(angle) - b * std::sin(angle), bound) << position;
        ASSERT_NEAR(out[i + 64], b * std::cos(angle) + a * std::sin(angle), bound) << position;
      }
    }
  }
}

TEST_F(Rope, PositionZeroChangesNothing) { EXPECT_EQ(turned(head_, 0), head_); }

TEST(SiluMul, AgreesWithDoubleAndSurvivesExtremes) {
  const std::vector<float> gate = {-3e38f, -1000, -100, -88, -1, -1e-30f, 0, 1e-30f, 2, 88, 1000};
  const std::vector<float> up(gate.size(), 0.5f);
  std::vector<float> out(gate.size());
  silu_mul(out, gate, up);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double g = static_cast<double>(gate[i]);
    const double expected = g / (1 + std::exp(-g)) * 0.5;
    ASSERT_TRUE(std::isfinite(out[i])) << gate[i];
    // Below the smallest float the result may be zero.
    ASSERT_NEAR(out[i], expected, 4 * kHalfUlp * std::abs(expected) + 1e-37) << gate[i];
  }
}

TEST(SoftmaxTerms, AreRelativeToTheLargest) {
  std::vector<float> scores = {1000, 999, -1000, 1000};
  EXPECT_NEAR(softmax_terms(scores), 2 + std::exp(-1.0), 1e-7);
  EXPECT_EQ(scores[0], 1.0f);
  EXPECT_NEAR(scores[1], std::exp(-1.0), 1e-7);
  EXPECT_EQ(scores[2], 0.0f);
}

TEST(Widen, KeepsFloatsInPlaceAndExpandsBf16) {
  float buffer[kHeadDim];
  std::vector<float> floats(kHeadDim, 1.0f);
  EXPECT_EQ(widen(floats.data(), buffer), floats.data());
  std::vector<std::uint16_t> stored(kHeadDim);
  for (std::size_t i = 0; i < stored.size(); ++i) stored[i] = f32_to_bf16(static_cast<float>(i));
  const float* wide = widen(stored.data(), buffer);
  for (int i = 0; i < kHeadDim; ++i) EXPECT_EQ(wide[i], static_cast<float>(i));
}

}  // namespace
}  // namespace kipp::reference
