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

// Four values side by side. Written out, because floating-point exceptions keep compilers from
// vectorizing the clamps; sums are over fixed lanes in a fixed order, so every compiler gives the
// same codes.
using Lanes = float __attribute__((vector_size(16)));
constexpr std::size_t kLanes = 4;
using Block = std::array<Lanes, kBlock / kLanes>;

inline Lanes all(float value) { return Lanes{value, value, value, value}; }

inline float sum(const Block& terms) {
  Lanes even = terms[0];
  Lanes odd = terms[1];
  for (std::size_t i = 2; i < terms.size(); i += 2) {
    even += terms[i];
    odd += terms[i + 1];
  }
  const Lanes both = even + odd;
  return (both[0] + both[2]) + (both[1] + both[3]);
}

template <class Term>
inline Block each(const Term& term) {
  Block block;
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = term(i);
  return block;
}

inline float sum_of_products(const Block& a, const Block& b) {
  return sum(each([&](std::size_t i) { return a[i] * b[i]; }));
}

struct Range {
  float low, high;  // of the codes
};

// A block's line, value = scale * code + bias, and the squared error it leaves.
struct Line {
  std::uint16_t scale = 0;                               // FP16
  std::uint16_t bias = 0;                                // FP16
  float error = std::numeric_limits<float>::infinity();  // infinite: nothing fits
};

// Whole codes of values on the line (d, m), d != 0, rounded to nearest, ties to even. Clamped
// before rounding, since a tiny scale makes the quotient huge; a magnitude below 2^22 is rounded by
// adding 1.5 * 2^23.
inline Lanes code_of(Lanes x, Lanes d, Lanes m, Range range) {
  const Lanes low = all(range.low);
  const Lanes high = all(range.high);
  const Lanes shift = all(0x1.8p23f);
  Lanes code = (x - m) / d;
  code = code > low ? code : low;
  code = code < high ? code : high;
  return (code + shift) - shift;
}

inline Block codes_of(const Block& x, const Line& line, Range range) {
  const Lanes d = all(f16_to_f32(line.scale));
  const Lanes m = all(f16_to_f32(line.bias));
  if (d[0] == 0) return Block{};
  return each([&](std::size_t i) { return code_of(x[i], d, m, range); });
}

inline float squared_error(const Block& x, const Line& line, Range range) {
  const Lanes d = all(f16_to_f32(line.scale));
  const Lanes m = all(f16_to_f32(line.bias));
  const Block codes = codes_of(x, line, range);
  const Block misses = each([&](std::size_t i) { return x[i] - (d * codes[i] + m); });
  return sum_of_products(misses, misses);
}

inline bool is_finite_f16(std::uint16_t bits) { return (bits & 0x7c00u) != 0x7c00u; }

// Tries the FP16 line nearest to the one given, with the smallest scale where it would round to
// none. Keeps the better one; on a tie the earlier, so that the outcome is fixed.
inline void try_line(Line& best, const Block& x, float scale, float bias, Range range) {
  std::uint16_t d = f32_to_f16(scale);
  if ((d & 0x7fffu) == 0 && scale != 0) d |= 1u;
  const std::uint16_t m = f32_to_f16(bias);
  if (!is_finite_f16(d) || !is_finite_f16(m)) return;
  Line line{d, m, 0};
  line.error = squared_error(x, line, range);
  if (line.error < best.error) best = line;
}

// The scale that minimizes the squared error of the codes the best line has.
inline void refine_scale(Line& best, const Block& x, Range range) {
  const Block codes = codes_of(x, best, range);
  const float square = sum_of_products(codes, codes);
  if (square == 0) return;
  try_line(best, x, sum_of_products(x, codes) / square, 0, range);
}

// The line of least squares through (code, value) for the codes the best line has.
inline void refine_line(Line& best, const Block& x, Range range) {
  constexpr float n = kBlock;
  const Block codes = codes_of(x, best, range);
  const float sum_q = sum(codes);
  const float spread = n * sum_of_products(codes, codes) - sum_q * sum_q;
  if (spread == 0) return;
  const float sum_x = sum(x);
  const float scale = (n * sum_of_products(x, codes) - sum_x * sum_q) / spread;
  try_line(best, x, scale, (sum_x - scale * sum_q) / n, range);
}

using Values = std::array<float, kBlock>;

Values values_of(const Block& block) {
  Values values;
  std::memcpy(values.data(), block.data(), sizeof(values));
  return values;
}

// The value of largest magnitude, the first of several.
float extreme(const Block& x) {
  float found = 0;
  for (const float v : values_of(x)) {
    if (std::abs(v) > std::abs(found)) found = v;
  }
  return found;
}

constexpr Range kInt8{-127, 127};
constexpr Range kSigned4{-8, 7};
constexpr Range kUnsigned4{0, 15};

Line fit_q8_0(const Block& x) {
  Line best;
  try_line(best, x, std::abs(extreme(x)) / 127, 0, kInt8);
  refine_scale(best, x, kInt8);
  return best;
}

// The extreme divided by these gives the scales to try: -8 maps it to the code without a twin, 7 to
// the other side, the rest clip or spare a little.
constexpr std::array<float, 8> kDivisors = {-8, -7.5f, -7, -8.5f, 7, 7.5f, 8, 6.5f};

Line fit_q4_0(const Block& x) {
  Line best;
  const float far = extreme(x);
  for (const float divisor : kDivisors) try_line(best, x, far / divisor, 0, kSigned4);
  refine_scale(best, x, kSigned4);
  refine_scale(best, x, kSigned4);
  return best;
}

// How far each end of the range is drawn in, in steps.
constexpr std::array<float, 3> kTrims = {0, 0.35f, 0.7f};

Line fit_q4_1(const Block& x) {
  const Values values = values_of(x);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const float step = (*high - *low) / 15;
  Line best;
  for (const float from_low : kTrims) {
    for (const float from_high : kTrims) {
      const float bias = *low + from_low * step;
      try_line(best, x, (*high - from_high * step - bias) / 15, bias, kUnsigned4);
    }
  }
  refine_line(best, x, kUnsigned4);
  refine_line(best, x, kUnsigned4);
  return best;
}

std::byte* put_u16(std::byte* out, std::uint16_t value) {
  std::memcpy(out, &value, sizeof(value));
  return out + sizeof(value);
}

void put_nibbles(std::byte* out, const Values& codes, float offset) {
  for (std::size_t i = 0; i < kBlock / 2; ++i) {
    const auto low = static_cast<unsigned>(codes[i] + offset);
    const auto high = static_cast<unsigned>(codes[i + kBlock / 2] + offset);
    *out++ = static_cast<std::byte>(low | (high << 4));
  }
}

// False if no FP16 line reaches the values.
bool encode_block(Scheme scheme, const Block& x, std::byte* out) {
  const bool q8 = scheme == Scheme::q8_0;
  const bool affine = scheme == Scheme::affine4_gs32;
  const Line line = q8 ? fit_q8_0(x) : affine ? fit_q4_1(x) : fit_q4_0(x);
  const Values codes = values_of(codes_of(x, line, q8 ? kInt8 : affine ? kUnsigned4 : kSigned4));
  out = put_u16(out, line.scale);
  if (q8) {
    for (const float code : codes) *out++ = static_cast<std::byte>(static_cast<int>(code));
  } else if (affine) {
    put_nibbles(put_u16(out, line.bias), codes, 0);
  } else {
    put_nibbles(out, codes, 8);
  }
  return std::isfinite(line.error);
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
  const std::size_t block_bytes = row_bytes(scheme, kQuantBlock);
  for (std::size_t at = 0; at < row.size(); at += kBlock) {
    Values values;
    for (std::size_t i = 0; i < kBlock; ++i) values[i] = bf16_to_f32(row[at + i]);
    Block x;
    std::memcpy(x.data(), values.data(), sizeof(x));
    if (!encode_block(scheme, x, out.data() + at / kBlock * block_bytes)) {
      return fail(ErrorCode::refused,
                  "column {}: expected values that an FP16 scale can reach, found one as large as "
                  "{}",
                  at, std::abs(extreme(x)));
    }
  }
  return {};
}

}  // namespace kipp
