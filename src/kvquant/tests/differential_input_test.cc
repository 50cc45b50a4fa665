// What the differential harness feeds to backends is what the names say, the same everywhere.
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kvquant/codec.h"
#include "kvquant/differential.h"

namespace kvquant {
namespace {

std::vector<float> generated(Input input, std::uint64_t seed, const KvShape& shape, int rows,
                             const QuantScheme& scheme = {}) {
  std::vector<float> values(static_cast<std::size_t>(rows * shape.row()), -1.0f);
  generate(input, seed, shape, scheme, values);
  return values;
}

std::uint64_t fingerprint(const std::vector<float>& values) {  // FNV-1a over the bits
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const float value : values)
    hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3u;
  return hash;
}

constexpr KvShape kShape = {2, 64};

// Values of SplitMix64 for seed 0, as its author publishes them.
TEST(Generate, DrawsAreSplitMix64) {
  EXPECT_EQ(draw(0, 0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(draw(0, 1), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(draw(0, 2), 0x06c45d188009454fu);
}

TEST(Generate, IsAFunctionOfItsArguments) {
  for (int i = 0; i < kInputs; ++i) {
    const auto input = static_cast<Input>(i);
    const std::vector<float> rows = generated(input, 7, kShape, 8);
    EXPECT_EQ(fingerprint(rows), fingerprint(generated(input, 7, kShape, 8))) << name_of(input);
    EXPECT_NE(fingerprint(rows), fingerprint(generated(input, 8, kShape, 8))) << name_of(input);
    if (input == Input::not_finite) continue;
    const std::vector<float> fewer = generated(input, 7, kShape, 3);
    EXPECT_EQ(fingerprint(fewer), fingerprint({rows.begin(), rows.begin() + 3 * kShape.row()}))
        << name_of(input);
  }
}

double mean_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

// Moment about the mean.
double moment(const std::vector<float>& values, int power) {
  const double mean = mean_of(values);
  double sum = 0;
  for (const float value : values) sum += std::pow(static_cast<double>(value) - mean, power);
  return sum / static_cast<double>(values.size());
}

TEST(Generate, DistributionsAreWhatTheirNamesSay) {
  const std::vector<float> gaussian = generated(Input::gaussian, 1, kShape, 1000);
  EXPECT_NEAR(mean_of(gaussian), 0, 0.02);
  EXPECT_NEAR(moment(gaussian, 2), 1, 0.02);
  EXPECT_NEAR(moment(gaussian, 4) / std::pow(moment(gaussian, 2), 2), 2.9, 0.1);

  const std::vector<float> laplace = generated(Input::laplace, 1, kShape, 1000);
  EXPECT_NEAR(mean_of(laplace), 0, 0.02);
  EXPECT_NEAR(moment(laplace, 2), 2, 0.06);
  EXPECT_NEAR(moment(laplace, 4) / std::pow(moment(laplace, 2), 2), 6, 0.6);

  // P(|t| <= 1) = 1 / sqrt(3) and P(|t| > 10) = 1 - 10 / sqrt(102) for two degrees of freedom.
  const std::vector<float> tails = generated(Input::heavy_tail, 1, kShape, 1000);
  double inside = 0;
  double beyond = 0;
  for (const float value : tails) {
    inside += std::fabs(value) <= 1 ? 1 : 0;
    beyond += std::fabs(value) > 10 ? 1 : 0;
  }
  EXPECT_NEAR(inside / static_cast<double>(tails.size()), 1 / std::sqrt(3.0), 0.01);
  EXPECT_NEAR(beyond / static_cast<double>(tails.size()), 1 - 10 / std::sqrt(102.0), 0.001);
}

TEST(Generate, OneChannelStandsOut) {
  const std::vector<float> rows = generated(Input::outlier_channel, 1, kShape, 50);
  std::vector<double> mean(64);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    mean[i % 64] += static_cast<double>(std::fabs(rows[i])) / 100;
  }
  const auto highest = std::max_element(mean.begin(), mean.end());
  EXPECT_NEAR(*highest, 60, 3);
  *highest = 0;
  EXPECT_LT(*std::max_element(mean.begin(), mean.end()), 1.5);
}

TEST(Generate, RowsAreWhatTheirNamesSay) {
  const int row = kShape.row();
  const std::vector<float> constant = generated(Input::constant_rows, 1, kShape, 50);
  const std::vector<float> shifted = generated(Input::shifted, 1, kShape, 50);
  const std::vector<float> mixed = generated(Input::mixed_scale, 1, kShape, 50);
  double lowest = 1e30;
  double highest = 0;
  for (int i = 0; i < 50; ++i) {
    const auto of = [&](const std::vector<float>& rows) {
      return std::vector<float>(rows.begin() + i * row, rows.begin() + (i + 1) * row);
    };
    EXPECT_THAT(of(constant), ::testing::Each(constant[static_cast<std::size_t>(i * row)]));
    EXPECT_GT(std::fabs(mean_of(of(shifted))), 50 * std::sqrt(moment(of(shifted), 2)));
    const double size = std::sqrt(moment(of(mixed), 2));
    lowest = std::fmin(lowest, size);
    highest = std::fmax(highest, size);
  }
  EXPECT_NE(constant.front(), constant.back());
  EXPECT_LT(lowest, 1e-5);
  EXPECT_GT(highest, 100);
}

TEST(Generate, ExtremesAreWhatTheirNamesSay) {
  const auto count = [](const std::vector<float>& values, const auto& is) {
    return std::count_if(values.begin(), values.end(), is);
  };
  const std::vector<float> zeros = generated(Input::zeros, 1, kShape, 4);
  EXPECT_THAT(zeros, ::testing::Each(0.0f));
  EXPECT_GT(count(zeros, [](float x) { return std::signbit(x); }), 100);
  EXPECT_GT(count(zeros, [](float x) { return !std::signbit(x); }), 100);

  const std::vector<float> tiny = generated(Input::denormals, 1, kShape, 50);
  EXPECT_THAT(tiny,
              ::testing::Each(::testing::AllOf(::testing::Gt(-0x1p-13f), ::testing::Lt(0x1p-13f))));
  EXPECT_GT(count(tiny, [](float x) { return x != 0 && std::fabs(x) < 0x1p-126f; }), 100);
  EXPECT_GT(count(tiny, [](float x) { return std::fabs(x) > 0x1p-24f; }), 100);

  QuantScheme rotated;
  rotated.hadamard = true;
  for (const QuantScheme& scheme : {QuantScheme(), rotated}) {
    const float largest = largest_value(scheme, kShape.head_width);
    const std::vector<float> rows = generated(Input::largest, 1, kShape, 50, scheme);
    EXPECT_THAT(rows, ::testing::Each(::testing::AnyOf(largest, -largest)));
    int same_sign = 0;
    for (auto row = rows.begin(); row != rows.end(); row += kShape.row()) {
      same_sign += std::equal(row + 1, row + kShape.row(), row) ? 1 : 0;
    }
    EXPECT_GT(same_sign, 4);
    EXPECT_LT(same_sign, 25);
  }
}

TEST(Generate, OneElementMustBeRefused) {
  std::vector<float> refused;
  std::vector<std::ptrdiff_t> places;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const std::vector<float> rows = generated(Input::not_finite, seed, kShape, 3);
    const auto bad = [](float x) { return !(std::fabs(x) <= 65280); };
    EXPECT_EQ(std::count_if(rows.begin(), rows.end(), bad), 1);
    const auto at = std::find_if(rows.begin(), rows.end(), bad);
    refused.push_back(*at);
    places.push_back(at - rows.begin());
  }
  EXPECT_TRUE(std::isnan(refused[0]));
  EXPECT_EQ(refused[1], std::numeric_limits<float>::infinity());
  EXPECT_EQ(refused[2], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(refused[3], std::nextafter(65280.0f, 1e9f));
  EXPECT_EQ(refused[4], -std::nextafter(65280.0f, 1e9f));
  EXPECT_NE(places[0], places[1]);
}

// No input but not_finite goes beyond what the scheme takes, be it as little as rotation leaves.
TEST(Generate, StaysWithinTheScheme) {
  QuantScheme scheme;
  scheme.hadamard = true;
  const KvShape wide = {1, 512};
  const float largest = largest_value(scheme, wide.head_width);
  for (int i = 0; i < kInputs - 1; ++i) {
    for (const float value : generated(static_cast<Input>(i), 3, wide, 200, scheme)) {
      ASSERT_LE(std::fabs(value), largest) << name_of(static_cast<Input>(i));
    }
  }
}

}  // namespace
}  // namespace kvquant
