#include "convert/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/float16.h"

namespace kipp {
namespace {

constexpr std::size_t kBlock = kQuantBlock;
using Values = std::array<float, kBlock>;
using Codes = std::array<float, kBlock>;  // whole numbers

// Nearest whole number, ties to even, for |x| < 2^22; inlines and vectorizes where std::nearbyint
// does not.
inline float nearest(float x) {
  constexpr float kShift = 0x1.8p23f;
  return (x + kShift) - kShift;
}

// Sums in a fixed order over eight lanes, so that the compiler may use vectors without changing the
// result.
template <class Term>
inline float lane_sum(const Term& term) {
  std::array<float, 8> lanes{};
  for (std::size_t i = 0; i < kBlock; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) lanes[lane] += term(i + lane);
  }
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
         ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

// A block's line: value = scale * code + bias, both FP16.
struct Fit {
  std::uint16_t scale = 0;
  std::uint16_t bias = 0;
  Codes codes{};
  float error = std::numeric_limits<float>::infinity();  // infinite: nothing fits
};

struct Range {
  float low, high;  // of the codes
};

// Codes for a given line, and their squared error.
inline Fit fit_codes(const Values& x, std::uint16_t scale, std::uint16_t bias, Range range) {
  Fit fit{scale, bias, {}, 0};
  const float d = f16_to_f32(scale);
  const float m = f16_to_f32(bias);
  for (std::size_t i = 0; i < kBlock; ++i) {
    // Clamped before rounding: a tiny scale makes the quotient huge.
    const float code = d == 0 ? 0.0f : (x[i] - m) / d;
    fit.codes[i] = nearest(std::min(std::max(code, range.low), range.high));
  }
  fit.error = lane_sum([&](std::size_t i) {
    const float miss = x[i] - (d * fit.codes[i] + m);
    return miss * miss;
  });
  return fit;
}

inline bool is_finite_f16(std::uint16_t bits) { return (bits & 0x7c00u) != 0x7c00u; }

// Keeps the better of two; on a tie the earlier one, so that the outcome is fixed.
inline void keep_better(Fit& best, const Fit& candidate) {
  if (candidate.error < best.error) best = candidate;
}

// Tries the FP16 value nearest to `scale` and, where that rounds to nothing, the smallest one.
inline void try_scale(Fit& best, const Values& x, float scale, Range range) {
  std::uint16_t d = f32_to_f16(scale);
  if ((d & 0x7fffu) == 0 && scale != 0) d |= 1u;
  if (is_finite_f16(d)) keep_better(best, fit_codes(x, d, 0, range));
}

// The scale that minimizes the squared error of the codes the best fit has.
inline void refine_scale(Fit& best, const Values& x, Range range) {
  const Codes codes = best.codes;
  const float square = lane_sum([&](std::size_t i) { return codes[i] * codes[i]; });
  if (square == 0) return;
  const float product = lane_sum([&](std::size_t i) { return x[i] * codes[i]; });
  try_scale(best, x, product / square, range);
}

float extreme(const Values& x) {
  float found = 0;
  for (const float v : x) {
    if (std::abs(v) > std::abs(found)) found = v;
  }
  return found;
}

Fit fit_q8_0(const Values& x) {
  constexpr Range kRange{-127, 127};
  const float far = extreme(x);
  if (far == 0) return fit_codes(x, 0, 0, kRange);
  Fit best;
  try_scale(best, x, std::abs(far) / 127, kRange);
  refine_scale(best, x, kRange);
  return best;
}

// Divisors of the extreme: -8 maps it to the code that has no twin, +8 and 7 to the other side, the
// rest clip or spare a little. Found by trying finer grids on normal, uniform and heavy-tailed
// blocks: more of them gained less than 1 % of squared error.
constexpr std::array<float, 8> kSymmetricDivisors = {-8, -7.5f, -7, -8.5f, 7, 7.5f, 8, 6.5f};

Fit fit_q4_0(const Values& x) {
  constexpr Range kRange{-8, 7};
  const float far = extreme(x);
  if (far == 0) return fit_codes(x, 0, 0, kRange);
  Fit best;
  for (const float divisor : kSymmetricDivisors) try_scale(best, x, far / divisor, kRange);
  refine_scale(best, x, kRange);
  refine_scale(best, x, kRange);
  return best;
}

inline void try_line(Fit& best, const Values& x, float scale, float bias) {
  constexpr Range kRange{0, 15};
  std::uint16_t d = f32_to_f16(scale);
  if ((d & 0x7fffu) == 0 && scale != 0) d |= 1u;
  const std::uint16_t m = f32_to_f16(bias);
  if (is_finite_f16(d) && is_finite_f16(m)) keep_better(best, fit_codes(x, d, m, kRange));
}

// The line of least squares through (code, value) for the codes the best fit has.
inline void refine_line(Fit& best, const Values& x) {
  const Codes codes = best.codes;
  constexpr float n = kBlock;
  const float sum_q = lane_sum([&](std::size_t i) { return codes[i]; });
  const float sum_qq = lane_sum([&](std::size_t i) { return codes[i] * codes[i]; });
  const float spread = n * sum_qq - sum_q * sum_q;
  if (spread == 0) return;
  const float sum_x = lane_sum([&](std::size_t i) { return x[i]; });
  const float sum_xq = lane_sum([&](std::size_t i) { return x[i] * codes[i]; });
  const float scale = (n * sum_xq - sum_x * sum_q) / spread;
  try_line(best, x, scale, (sum_x - scale * sum_q) / n);
}

// How far each end of the range is drawn in, in steps.
constexpr std::array<float, 3> kTrims = {0, 0.35f, 0.7f};

Fit fit_q4_1(const Values& x) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const float step = (*high - *low) / 15;
  Fit best;
  if (step == 0) {
    try_line(best, x, 0, *low);
    return best;
  }
  for (const float from_low : kTrims) {
    for (const float from_high : kTrims) {
      const float bias = *low + from_low * step;
      try_line(best, x, (*high - from_high * step - bias) / 15, bias);
    }
  }
  refine_line(best, x);
  refine_line(best, x);
  return best;
}

std::byte* put_u16(std::byte* out, std::uint16_t value) {
  std::memcpy(out, &value, sizeof(value));
  return out + sizeof(value);
}

std::byte* put_nibbles(std::byte* out, const Codes& codes, float offset) {
  for (std::size_t i = 0; i < kBlock / 2; ++i) {
    const auto low = static_cast<unsigned>(codes[i] + offset);
    const auto high = static_cast<unsigned>(codes[i + kBlock / 2] + offset);
    *out++ = static_cast<std::byte>(low | (high << 4));
  }
  return out;
}

std::byte* encode_block(Scheme scheme, const Values& x, std::byte* out, bool& fits) {
  const Fit fit = scheme == Scheme::q8_0           ? fit_q8_0(x)
                  : scheme == Scheme::affine4_gs32 ? fit_q4_1(x)
                                                   : fit_q4_0(x);
  fits = std::isfinite(fit.error);
  out = put_u16(out, fit.scale);
  if (scheme == Scheme::q8_0) {
    for (const float code : fit.codes) *out++ = static_cast<std::byte>(static_cast<int>(code));
    return out;
  }
  if (scheme == Scheme::affine4_gs32) return put_nibbles(put_u16(out, fit.bias), fit.codes, 0);
  return put_nibbles(out, fit.codes, 8);
}

}  // namespace

Result<void> encode_row(Scheme scheme, std::span<const std::uint16_t> row,
                        std::span<std::byte> out) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    if ((row[i] & 0x7f80u) == 0x7f80u) {
      return fail(ErrorCode::refused, "column {}: expected a finite value, found {}", i,
                  bf16_to_f32(row[i]));
    }
  }
  if (scheme == Scheme::bf16) {
    std::memcpy(out.data(), row.data(), row.size_bytes());
    return {};
  }
  std::byte* to = out.data();
  for (std::size_t at = 0; at < row.size(); at += kBlock) {
    Values x;
    for (std::size_t i = 0; i < kBlock; ++i) x[i] = bf16_to_f32(row[at + i]);
    bool fits = false;
    to = encode_block(scheme, x, to, fits);
    if (!fits) {
      return fail(ErrorCode::refused,
                  "column {}: expected values that an FP16 scale can reach, found one as large as "
                  "{}",
                  at, std::abs(extreme(x)));
    }
  }
  return {};
}

}  // namespace kipp
