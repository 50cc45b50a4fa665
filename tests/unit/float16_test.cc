// All patterns of both 16-bit formats, against a slow model in double precision: the nearest of all
// values, ties to the even pattern.
#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace kipp {
namespace {

struct Format {
  int exponent_bits;
  int mantissa_bits;
  float (*decode)(std::uint16_t);
  std::uint16_t (*encode)(float);
};

constexpr Format kBf16{8, 7, bf16_to_f32, f32_to_bf16};
constexpr Format kF16{5, 10, f16_to_f32, f32_to_f16};

// The value of a pattern by the definition of IEEE 754; NaN and infinities included.
double value_of(const Format& f, std::uint32_t bits) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const std::uint32_t exponent = (bits >> f.mantissa_bits) & ((1u << f.exponent_bits) - 1);
  const std::uint32_t mantissa = bits & ((1u << f.mantissa_bits) - 1);
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  if (exponent == (1u << f.exponent_bits) - 1) {
    if (mantissa != 0) return std::numeric_limits<double>::quiet_NaN();
    return sign * std::numeric_limits<double>::infinity();
  }
  const double fraction = std::ldexp(static_cast<double>(mantissa), -f.mantissa_bits);
  return exponent == 0 ? sign * std::ldexp(fraction, 1 - bias)
                       : sign * std::ldexp(1.0 + fraction, static_cast<int>(exponent) - bias);
}

// Positive finite values ascend with their patterns; the next one after the largest is where
// infinity begins.
std::uint32_t slow_encode(const Format& f, float value) {
  const std::uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
  const double magnitude = std::abs(static_cast<double>(value));
  const std::uint32_t infinity = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
  const auto at = [&](std::uint32_t bits) {
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    return bits == infinity ? std::ldexp(1.0, bias + 1) : value_of(f, bits);
  };
  std::uint32_t low = 0;
  std::uint32_t high = infinity;
  if (magnitude >= at(infinity)) return sign | infinity;
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (at(middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - at(low);
  const double above = at(high) - magnitude;
  if (below == above) return sign | (low % 2 == 0 ? low : high);
  return sign | (below < above ? low : high);
}

void expect_decodes_every_pattern(const Format& f) {
  for (std::uint32_t bits = 0; bits <= 0xffffu; ++bits) {
    const double expected = value_of(f, bits);
    const float found = f.decode(static_cast<std::uint16_t>(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(found)) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(found), expected) << bits;
    ASSERT_EQ(std::signbit(found), (bits & 0x8000u) != 0) << bits;
  }
}

void expect_round_trip(const Format& f) {
  for (std::uint32_t bits = 0; bits <= 0xffffu; ++bits) {
    const float value = f.decode(static_cast<std::uint16_t>(bits));
    const std::uint16_t again = f.encode(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(f.decode(again))) << bits;
    } else {
      ASSERT_EQ(again, bits);
    }
  }
}

// Every representable value, every midpoint between two of them, and the floats next to both.
void expect_rounds_to_nearest_even(const Format& f) {
  for (std::uint32_t bits = 0; bits <= 0xffffu; ++bits) {
    const float here = f.decode(static_cast<std::uint16_t>(bits));
    const float next = f.decode(static_cast<std::uint16_t>(bits + 1));
    if (!std::isfinite(here)) continue;
    std::vector<float> tries = {here};
    if (std::isfinite(next)) {
      tries.push_back(
          static_cast<float>((static_cast<double>(here) + static_cast<double>(next)) / 2));
    }
    for (const float center : tries) {
      for (const float toward : {-INFINITY, center, INFINITY}) {
        const float value = std::nextafter(center, toward);
        if (!std::isfinite(value)) continue;
        ASSERT_EQ(f.encode(value), slow_encode(f, value)) << value << " near pattern " << bits;
      }
    }
  }
}

void expect_random_floats_agree(const Format& f) {
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const auto bits = static_cast<std::uint32_t>(draw_bits(11, i));
    const float value = std::bit_cast<float>(bits);
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(f.encode(value), slow_encode(f, value)) << value;
  }
}

TEST(Float16, Bf16DecodesEveryPattern) { expect_decodes_every_pattern(kBf16); }
TEST(Float16, F16DecodesEveryPattern) { expect_decodes_every_pattern(kF16); }
TEST(Float16, Bf16RoundTrips) { expect_round_trip(kBf16); }
TEST(Float16, F16RoundTrips) { expect_round_trip(kF16); }
TEST(Float16, Bf16RoundsToNearestEven) { expect_rounds_to_nearest_even(kBf16); }
TEST(Float16, F16RoundsToNearestEven) { expect_rounds_to_nearest_even(kF16); }
TEST(Float16, Bf16AgreesOnRandomFloats) { expect_random_floats_agree(kBf16); }
TEST(Float16, F16AgreesOnRandomFloats) { expect_random_floats_agree(kF16); }

TEST(Float16, KeepsInfinitiesAndNan) {
  for (const Format& f : {kBf16, kF16}) {
    EXPECT_EQ(f.decode(f.encode(INFINITY)), INFINITY);
    EXPECT_EQ(f.decode(f.encode(-INFINITY)), -INFINITY);
    // A NaN whose payload is only in the bits that are cut off.
    EXPECT_TRUE(std::isnan(f.decode(f.encode(std::bit_cast<float>(0x7f800001u)))));
    EXPECT_TRUE(std::isnan(f.decode(f.encode(std::bit_cast<float>(0xffffffffu)))));
  }
}

TEST(Float16, F16OverflowsWhereIeeeSays) {
  EXPECT_EQ(f32_to_f16(65504.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0x0000);  // a tie goes to the even zero
  EXPECT_EQ(f32_to_f16(std::nextafter(0x1p-25f, 1.0f)), 0x0001);
}

TEST(Float16, WorksAtCompileTime) {
  static_assert(bf16_to_f32(0x3f80) == 1.0f);
  static_assert(f32_to_bf16(1.0f) == 0x3f80);
  static_assert(f16_to_f32(0x3c00) == 1.0f);
  static_assert(f32_to_f16(-2.0f) == 0xc000);
  static_assert(round_to_bf16(1.00390625f) == 1.0f);
}

}  // namespace
}  // namespace kipp
