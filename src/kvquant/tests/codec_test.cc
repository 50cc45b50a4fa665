// The arithmetic of codec.h against independent computations: number formats over all of their bit
// patterns, the rotation against its matrix, planes against the codes that went in, ranges and
// fitted levels against searches in double precision.
#include "kvquant/codec.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kvquant/differential.h"

namespace kvquant {
namespace {

constexpr BitWidth kCodeWidths[] = {BitWidth::int8, BitWidth::int4, BitWidth::int2};
constexpr int kFp16Infinity = 0x7c00;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// --- number formats
// -------------------------------------------------------------------------------------------

// The number that a sign, `exponent_bits` and `mantissa_bits` mean, by the definition of IEEE 754.
double meaning(int bits, int exponent_bits, int mantissa_bits) {
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = bits >> (exponent_bits + mantissa_bits) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

std::uint16_t pattern(int bits) { return static_cast<std::uint16_t>(bits); }

template <class ToFloat, class FromFloat>
void expect_round_trips(int exponent_bits, int mantissa_bits, const ToFloat& to_float,
                        const FromFloat& from_float) {
  for (int bits = 0; bits < 65536; ++bits) {
    const float value = to_float(pattern(bits));
    const double expected = meaning(bits, exponent_bits, mantissa_bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), expected) << bits;
    ASSERT_EQ(std::signbit(value), bits >= 0x8000) << bits;
    if (std::isfinite(value)) {
      ASSERT_EQ(from_float(value), bits) << bits;
    }
  }
}

TEST(NumberFormats, EveryBf16PatternRoundTrips) {
  expect_round_trips(8, 7, bf16_to_float, float_to_bf16);
}

TEST(NumberFormats, EveryFp16PatternRoundTrips) {
  expect_round_trips(5, 10, fp16_to_float, float_to_fp16);
}

// Floats that matter between two neighbours: both, what is next to them, and the middle with what
// is next to it.
std::vector<float> floats_between(float low, float high) {
  const float middle = low + (high - low) * 0.5f;  // exact
  return {low,    std::nextafterf(low, kInfinity),    std::nextafterf(middle, -kInfinity),
          middle, std::nextafterf(middle, kInfinity), std::nextafterf(high, -kInfinity),
          high};
}

// Of the neighbours, which lie in the order of their patterns' magnitudes: ties go to the even one.
int nearest(double value, double low, double high, int low_bits, int high_bits) {
  const double below = value - low;
  const double above = high - value;
  if (below == above) return low_bits % 2 == 0 ? low_bits : high_bits;
  return below < above ? low_bits : high_bits;
}

// -0 as +0.
int without_negative_zero(int bits) { return bits == 0x8000 ? 0 : bits; }

TEST(NumberFormats, Fp16RoundsBetweenAllNeighbours) {
  for (int magnitude = 0; magnitude < kFp16Infinity - 1; ++magnitude) {
    const float near = fp16_to_float(pattern(magnitude));
    const float far = fp16_to_float(pattern(magnitude + 1));
    for (const float value : floats_between(near, far)) {
      const auto exact = static_cast<double>(value);
      const int rounded = nearest(exact, static_cast<double>(near), static_cast<double>(far),
                                  magnitude, magnitude + 1);
      ASSERT_EQ(float_to_fp16(value), rounded) << value;
      ASSERT_EQ(float_to_fp16(-value), rounded | 0x8000) << value;
      ASSERT_EQ(float_to_fp16_down(value), value < far ? magnitude : magnitude + 1) << value;
      ASSERT_EQ(float_to_fp16_up(value), value > near ? magnitude + 1 : magnitude) << value;
      const int down = without_negative_zero((value > near ? magnitude + 1 : magnitude) | 0x8000);
      ASSERT_EQ(float_to_fp16_down(-value), down) << -value;
    }
  }
}

TEST(NumberFormats, Fp16RoundsTheSmallestAndTheLargest) {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(float_to_fp16(kTiny), 0);
  EXPECT_EQ(float_to_fp16_up(kTiny), 1);
  EXPECT_EQ(float_to_fp16_down(kTiny), 0);
  EXPECT_EQ(float_to_fp16_down(-kTiny), 0x8001);
  EXPECT_EQ(float_to_fp16_down(-0.0f), 0);
  EXPECT_EQ(float_to_fp16(0x1p-25f), 0) << "a tie goes to the even pattern";
  EXPECT_EQ(float_to_fp16(0x1.8p-24f), 2) << "and again";
  EXPECT_EQ(float_to_fp16(65504.0f), 0x7bff);
  EXPECT_EQ(float_to_fp16_down(65504.0f), 0x7bff);
  EXPECT_EQ(float_to_fp16_down(-65504.0f), 0xfbff);
  EXPECT_EQ(float_to_fp16_up(65504.0f), 0x7bff);
}

TEST(NumberFormats, Bf16RoundsBetweenAllNeighbours) {
  for (int magnitude = 0; magnitude < 0x7f7f; ++magnitude) {
    const float near = bf16_to_float(pattern(magnitude));
    const float far = bf16_to_float(pattern(magnitude + 1));
    for (const float value : floats_between(near, far)) {
      const int rounded = nearest(static_cast<double>(value), static_cast<double>(near),
                                  static_cast<double>(far), magnitude, magnitude + 1);
      ASSERT_EQ(float_to_bf16(value), rounded) << value;
      ASSERT_EQ(float_to_bf16(-value), rounded | 0x8000) << value;
    }
  }
}

// --- what can be coded
// -----------------------------------------------------------------------------------------

TEST(Limits, SmallValuesAreZeroAndOthersAreKept) {
  EXPECT_EQ(flush_small(std::nextafterf(kSmallest, 0.0f)), 0.0f);
  EXPECT_FALSE(std::signbit(flush_small(-0x1p-41f)));
  EXPECT_EQ(flush_small(kSmallest), kSmallest);
  EXPECT_EQ(flush_small(-kSmallest), -kSmallest);
}

// The hardest rows: all of the largest magnitude, and in step with one row of the matrix, which
// gathers them into one element.
TEST(Limits, TheLargestRowsStayWithinFp16WhenTheyAreRotated) {
  QuantScheme scheme;
  scheme.hadamard = true;
  for (int width = 16; width <= 512; width *= 2) {
    const float largest = bf16_to_float(float_to_bf16(largest_value(scheme, width)));
    for (const unsigned gathered : {0u, 1u, static_cast<unsigned>(width - 1)}) {
      std::vector<float> row;
      for (unsigned i = 0; i < static_cast<unsigned>(width); ++i) {
        row.push_back(std::popcount(i & gathered) % 2 == 0 ? largest : -largest);
      }
      hadamard(row.data(), width);
      EXPECT_GT(row[gathered], 65000.0f) << width;
      EXPECT_LE(row[gathered], 65504.0f) << width;
      const GroupParams params = fit_range(scheme, -row[gathered], row[gathered]);
      EXPECT_LT(params.offset, 0xfc00) << "finite";
      EXPECT_LT(params.scale, kFp16Infinity);
    }
  }
  EXPECT_EQ(largest_value({.bits = BitWidth::bf16}, 128), bf16_to_float(0x7f7f));
}

// --- rotation
// -------------------------------------------------------------------------------------------------

std::vector<float> gaussian_row(int width, std::uint64_t seed) {
  std::vector<float> row(static_cast<std::size_t>(width));
  generate(Input::gaussian, seed, {1, width}, {}, row);
  return row;
}

TEST(Hadamard, IsTheMatrixOfItsDefinition) {
  for (int width = 1; width <= 512; width *= 2) {
    const auto size = static_cast<std::size_t>(width);
    const std::vector<float> row = gaussian_row(width, 3);
    std::vector<float> turned = row;
    hadamard(turned.data(), width);
    double norm = 0;
    for (const float value : row) norm += static_cast<double>(value) * static_cast<double>(value);
    const double slack = std::sqrt(norm) * 0x1p-24 * 2 * (1 + std::log2(width));
    for (std::size_t i = 0; i < size; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < size; ++j) {
        const double sign = std::popcount(i & j) % 2 == 0 ? 1.0 : -1.0;
        sum += sign * static_cast<double>(row[j]);
      }
      ASSERT_NEAR(static_cast<double>(turned[i]), sum / std::sqrt(width), slack) << width;
    }
  }
}

// Small integers add up exactly, so this holds to the bit wherever the scale is a power of two.
TEST(Hadamard, IsOrthonormalAndItsOwnInverse) {
  for (int width = 1; width <= 512; width *= 2) {
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    ASSERT_NEAR(static_cast<double>(hadamard_scale(width)), scale, scale * 0x1p-24);
    std::vector<float> row;
    for (int i = 0; i < width; ++i) row.push_back(static_cast<float>(i * 37 % 101 - 50));
    std::vector<float> turned = row;
    hadamard(turned.data(), width);
    double norm = 0;
    double turned_norm = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      norm += static_cast<double>(row[i]) * static_cast<double>(row[i]);
      turned_norm += static_cast<double>(turned[i]) * static_cast<double>(turned[i]);
    }
    ASSERT_NEAR(turned_norm, norm, norm * 0x1p-20) << width;
    hadamard(turned.data(), width);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double exact = std::log2(width) / 2 == std::floor(std::log2(width) / 2) ? 0 : 1e-4;
      ASSERT_NEAR(static_cast<double>(turned[i]), static_cast<double>(row[i]), exact) << width;
    }
  }
}

// --- codes
// --------------------------------------------------------------------------------------------------

struct Group {
  std::vector<int> codes;
  GroupParams range, fitted;
};

Group encode_group(const QuantScheme& scheme, const std::vector<float>& values) {
  Group group;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  group.range = fit_range(scheme, *low, *high);
  const Encoder e = encoder(scheme, group.range);
  LevelSums sums;
  for (const float value : values) {
    group.codes.push_back(encode(e, value));
    add_code(sums, scheme, group.codes.back());
  }
  if (has_fitted_pair(scheme)) group.fitted = fit_levels(scheme, group.range, sums);
  return group;
}

int top2(const QuantScheme& scheme, int code) {
  return code >> (static_cast<int>(scheme.bits) - 2);
}

TEST(Codes, EveryLevelIsTheMeanOfTheCodesBehindIt) {
  for (const BitWidth bits : kCodeWidths) {
    for (const BitWidth read : kCodeWidths) {
      if (read > bits) continue;
      for (const bool symmetric : {false, true}) {
        const QuantScheme scheme = {.bits = bits, .symmetric = symmetric};
        const int dropped = static_cast<int>(bits) - static_cast<int>(read);
        for (int top = 0; top < 1 << static_cast<int>(read); ++top) {
          double sum = 0;
          int count = 0;
          for (int code = 0; code <= code_levels(bits); ++code) {
            if (code >> dropped != top) continue;
            sum += code - (symmetric ? (code_levels(bits) + 1) / 2 : 0);
            ++count;
          }
          ASSERT_EQ(static_cast<double>(level_of(scheme, read, top)), sum / count);
        }
      }
    }
  }
}

TEST(Codes, EveryCodeIsReadBackAsItself) {
  for (const BitWidth bits : kCodeWidths) {
    for (const bool symmetric : {false, true}) {
      const QuantScheme scheme = {.bits = bits, .symmetric = symmetric};
      // A scale that is no power of two, an offset that is none of its multiples.
      const GroupParams params = {0x2e66, symmetric ? std::uint16_t{0} : std::uint16_t{0xc248}};
      const Encoder e = encoder(scheme, params);
      for (int code = symmetric ? 1 : 0; code <= code_levels(bits); ++code) {
        const float level = level_of(scheme, bits, code);
        const float value = fp16_to_float(params.offset) + fp16_to_float(params.scale) * level;
        ASSERT_EQ(encode(e, value), code) << name_of(bits);
      }
      EXPECT_EQ(encode(e, -1e4f), symmetric ? 1 : 0) << "what lies outside gets the last code";
      EXPECT_EQ(encode(e, 1e4f), code_levels(bits));
    }
  }
}

// fit_range() gives the largest FP16 offset below and the smallest FP16 scale that covers what is
// above it: the next smaller scale would not.
TEST(Codes, RangesCoverTheirGroupAndNoMoreThanFp16MakesThem) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> exponent(-26.0f, 15.9f);
  for (int i = 0; i < 100000; ++i) {
    const QuantScheme scheme = {.bits = kCodeWidths[i % 3], .symmetric = i % 2 == 1};
    const float a = std::exp2(exponent(random)) * (random() % 2 == 0 ? 1.0f : -1.0f);
    const float b = std::exp2(exponent(random)) * (random() % 2 == 0 ? 1.0f : -1.0f);
    const float low = std::min(a, b);
    const float high = std::max(a, b);
    const GroupParams params = fit_range(scheme, low, high);
    const double scale = meaning(params.scale, 5, 10);
    const double smaller = params.scale == 0 ? 0 : meaning(params.scale - 1, 5, 10);
    const double offset = meaning(params.offset, 5, 10);
    double steps = code_levels(scheme.bits);
    double reach = static_cast<double>(high) - offset;
    if (scheme.symmetric) {
      ASSERT_EQ(params.offset, 0);
      steps = (1 << (static_cast<int>(scheme.bits) - 1)) - 1;
      reach = std::fmax(static_cast<double>(-low), static_cast<double>(high));
    } else {
      ASSERT_LE(offset, static_cast<double>(low));
      const int above = params.offset >= 0x8000 ? params.offset - 1 : params.offset + 1;
      const bool last = params.offset == 0x8000;  // minus zero is never stored
      ASSERT_FALSE(last);
      const int next = above == 0x8000 ? 0 : above;
      ASSERT_GT(meaning(next, 5, 10), static_cast<double>(low)) << offset;
    }
    // The quotient is rounded to FP32 before it is rounded up.
    ASSERT_GE(scale * steps, reach * (1 - 0x1p-22)) << low << ' ' << high;
    ASSERT_LE(smaller * steps, reach * (1 + 0x1p-22)) << low << ' ' << high;
  }
}

// --- the fitted pair
// ------------------------------------------------------------------------------------------

// Squared error, in codes, of reading codes with top bits h as levels[h].
double squared_error(const QuantScheme& scheme, const std::vector<int>& codes,
                     const double (&levels)[4]) {
  double sum = 0;
  for (const int code : codes) {
    const double from_middle = code - code_middle(scheme);
    sum += std::pow(from_middle - levels[top2(scheme, code)], 2);
  }
  return sum;
}

// Levels whose ends lie x and y off the centres of their cells; in a symmetric scheme one number is
// free, the outermost level.
double error_of(const QuantScheme& scheme, const std::vector<int>& codes, double x, double y) {
  const double cell = 1 << (static_cast<int>(scheme.bits) - 2);
  double levels[4];
  for (int h = 0; h < 4; ++h) {
    levels[h] = scheme.symmetric ? (2 * h - 3) / 3.0 * (1.5 * cell - 0.5 + x)
                                 : h * cell + (cell - 1) / 2 + x + (y - x) * h / 3;
  }
  return squared_error(scheme, codes, levels);
}

// The smallest value of a convex function between -room and room.
template <class Function>
double least_within(double room, const Function& function) {
  double low = -room;
  double high = room;
  for (int i = 0; i < 60; ++i) {
    const double left = low + (high - low) / 3;
    const double right = high - (high - low) / 3;
    (function(left) < function(right) ? high : low) =
        function(left) < function(right) ? right : left;
  }
  return function((low + high) / 2);
}

// The least error of all levels that stay inside their cells, found by trying.
double least_error(const QuantScheme& scheme, const std::vector<int>& codes, double room) {
  if (scheme.symmetric) {
    return least_within(room, [&](double x) { return error_of(scheme, codes, x, 0); });
  }
  return least_within(room, [&](double x) {
    return least_within(room, [&](double y) { return error_of(scheme, codes, x, y); });
  });
}

std::vector<int> random_codes(std::mt19937& random, const QuantScheme& scheme, int count) {
  const int most = code_levels(scheme.bits);
  const int low = static_cast<int>(random() % static_cast<unsigned>(most + 1));
  const int span = 1 + static_cast<int>(random() % static_cast<unsigned>(most));
  std::vector<int> codes;
  for (int i = 0; i < count; ++i) {
    // Some groups are spread over all cells, some lie in one, some lean to one side.
    const int step = static_cast<int>(random() % static_cast<unsigned>(span));
    codes.push_back(
        std::clamp(random() % 4 == 0 ? step : low + step, scheme.symmetric ? 1 : 0, most));
  }
  return codes;
}

// Where the clamp does not hold the optimum back, the pair is the optimum, but for sixteenths of a
// code and FP16; where it does, the ends shrink together, and the pair lies between the optimum and
// the cell centres.
TEST(FittedPair, IsTheBestThereIsWithinTheCells) {
  std::mt19937 random(11);
  int at_the_optimum = 0;
  for (int i = 0; i < 600; ++i) {
    const QuantScheme scheme = {.bits = i % 2 == 0 ? BitWidth::int8 : BitWidth::int4,
                                .symmetric = i % 4 >= 2};
    const std::vector<int> codes =
        random_codes(random, scheme, 2 + static_cast<int>(random() % 40));
    LevelSums sums;
    for (const int code : codes) add_code(sums, scheme, code);
    const GroupParams fitted = fit_levels(scheme, {0x3c00, 0}, sums);  // scale 1: codes are values
    const double cell = 1 << (static_cast<int>(scheme.bits) - 2);
    const double scale = meaning(fitted.scale, 5, 10);
    const double offset = meaning(fitted.offset, 5, 10);
    double levels[4];
    double centres[4];
    for (int h = 0; h < 4; ++h) {
      levels[h] = offset + scale * static_cast<double>(fitted_level(scheme, h));
      centres[h] = h * cell + (cell - 1) / 2 - code_middle(scheme);
    }
    const double count = static_cast<double>(codes.size());
    const double rounding = 0.1 + 3 * scale * 0x1p-11;  // of a level, in codes
    const double found = std::sqrt(squared_error(scheme, codes, levels) / count);
    const double least = std::sqrt(least_error(scheme, codes, cell / 2) / count);
    ASSERT_GE(found, least - rounding);
    if (scheme.symmetric) {
      ASSERT_LE(found, least + rounding);
    } else {
      ASSERT_LE(found, std::sqrt(squared_error(scheme, codes, centres) / count) + rounding);
    }
    at_the_optimum += found <= least + rounding ? 1 : 0;
    for (int h = 0; h < 4; ++h) {
      ASSERT_LE(std::fabs(levels[h] - (h * cell + (cell - 1) / 2 - code_middle(scheme))),
                cell / 2 + rounding + (scheme.symmetric ? 1 : 0))
          << "level " << h << " lies in its cell, which code 0, never written, makes wider";
    }
  }
  EXPECT_GT(at_the_optimum, 500);
}

TEST(FittedPair, ReadsAGroupOfOneCodeAsThatCode) {
  for (const BitWidth bits : {BitWidth::int8, BitWidth::int4}) {
    const QuantScheme scheme = {.bits = bits};
    for (int code = 0; code <= code_levels(bits); ++code) {
      LevelSums sums;
      for (int i = 0; i < 7; ++i) add_code(sums, scheme, code);
      const GroupParams fitted = fit_levels(scheme, {0x3c00, 0}, sums);
      const int h = top2(scheme, code);
      const double read = meaning(fitted.offset, 5, 10) + h * meaning(fitted.scale, 5, 10);
      ASSERT_NEAR(read, code, 3 * 43 * 0x1p-11) << "cells as far apart as they are";
    }
  }
}

// FP16 is coarser than the cells of a narrow group far from zero; the levels must not jump out of
// their cells with the rounding of their offset.
TEST(FittedPair, LevelsStayInTheirCellsWhenTheOffsetDwarfsTheRange) {
  const QuantScheme scheme;
  for (const float mean : {1000.3f, 2000.7f, -5000.9f}) {
    std::vector<float> values;
    for (int i = 0; i < 128; ++i) {
      values.push_back(mean + 0.001f * static_cast<float>(i * 37 % 128));
    }
    const Group group = encode_group(scheme, values);
    const double cell = 64.0 * static_cast<double>(fp16_to_float(group.range.scale));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float level = fitted_level(scheme, top2(scheme, group.codes[i]));
      const float read =
          fp16_to_float(group.fitted.offset) + fp16_to_float(group.fitted.scale) * level;
      EXPECT_LE(std::fabs(static_cast<double>(read) - static_cast<double>(values[i])), cell)
          << "mean " << mean << ", value " << i;
    }
  }
}

// --- planes
// -------------------------------------------------------------------------------------------------

TEST(Planes, RowsHoldWhatWasPutIntoThem) {
  std::mt19937 random(2);
  for (int width = 16; width <= 512; width += 16) {
    std::vector<std::uint8_t> two(static_cast<std::size_t>(width / 4));
    std::vector<std::uint8_t> four(static_cast<std::size_t>(width / 2));
    std::vector<int> codes;
    for (int c = 0; c < width; ++c) {
      codes.push_back(static_cast<int>(random() % 16));
      put2(two.data(), width, c, codes.back() & 3);
      put4(four.data(), width, c, codes.back());
    }
    for (int c = 0; c < width; ++c) {
      const int code = codes[static_cast<std::size_t>(c)];
      ASSERT_EQ(get2(two.data(), width, c), code & 3) << width << ' ' << c;
      ASSERT_EQ(get4(four.data(), width, c), code) << width << ' ' << c;
    }
  }
}

TEST(Planes, BytesHoldChannelsAQuarterAndAHalfOfTheRowApart) {
  std::vector<std::uint8_t> two(8);
  std::vector<std::uint8_t> four(16);
  for (const auto& [channel, code] : {std::pair{5, 1}, {13, 2}, {21, 3}})
    put2(two.data(), 32, channel, code);
  for (const auto& [channel, code] : {std::pair{5, 9}, {21, 12}})
    put4(four.data(), 32, channel, code);
  EXPECT_THAT(two, ::testing::ElementsAre(0, 0, 0, 0, 0, 1 | 2 << 2 | 3 << 4, 0, 0));
  EXPECT_EQ(four[5], 9 | 12 << 4);
}

}  // namespace
}  // namespace kvquant
