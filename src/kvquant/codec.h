// The arithmetic of kvquant, one element or one group at a time: number formats, rotation, range
// and level fitting, codes and their bit planes. Plain inline functions, valid in C++20 and in
// CUDA, so that an attention kernel can read planes with the very functions that wrote them.
//
// Every device must produce the same codes and parameters, so nothing here depends on how sums are
// ordered or whether a multiply and an add are fused: products that are added to something are
// exact in FP32, level fitting runs on integers, and rounding is to nearest, ties to even, unless
// its name says otherwise. The host must not run with -ffast-math or with denormals flushed while
// it converts to FP16.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kvquant/kv_scheme.h"

#if defined(__CUDACC__)
#define KVQUANT_FN __host__ __device__ inline
#else
#define KVQUANT_FN inline
#endif

namespace kvquant {

// --- number formats
// -------------------------------------------------------------------------------------------

KVQUANT_FN std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

KVQUANT_FN float float_of(std::uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

KVQUANT_FN float bf16_to_float(std::uint16_t bits) {
  return float_of(static_cast<std::uint32_t>(bits) << 16);
}

// Finite input only; values beyond the largest BF16 become infinity.
KVQUANT_FN std::uint16_t float_to_bf16(float value) {
  const std::uint32_t bits = bits_of(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

KVQUANT_FN float fp16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1fu) return float_of(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return float_of(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // exact
  return sign != 0 ? -magnitude : magnitude;
}

// The magnitude |value| <= 65504 in units that order like FP16 bit patterns, and what is left below
// them.
struct Fp16Parts {
  std::uint32_t magnitude;  // FP16 bit pattern of the truncated |value|
  std::uint32_t rest;       // 0: exact; otherwise compare with half
  std::uint32_t half;
};

KVQUANT_FN Fp16Parts fp16_truncate(float value) {
  const std::uint32_t bits = bits_of(value) & 0x7fffffffu;
  if (bits >= 0x38800000u) {  // 2^-14 and above: drop 13 bits of mantissa
    return {(bits - 0x38000000u) >> 13, bits & 0x1fffu, 0x1000u};
  }
  const std::uint32_t exponent = bits >> 23;
  if (exponent < 102u) return {0, bits != 0 ? 1u : 0u, 2u};  // below 2^-25: less than half of 2^-24
  const std::uint32_t shift = 126u - exponent;               // 14 to 24
  const std::uint32_t mantissa = (bits & 0x7fffffu) | 0x800000u;
  return {mantissa >> shift, mantissa & ((1u << shift) - 1u), 1u << (shift - 1u)};
}

// |value| <= 65504 for the three of them.
KVQUANT_FN std::uint16_t float_to_fp16(float value) {
  const Fp16Parts p = fp16_truncate(value);
  const bool up = p.rest > p.half || (p.rest == p.half && (p.magnitude & 1u) != 0);
  return static_cast<std::uint16_t>(((bits_of(value) >> 16) & 0x8000u) |
                                    (p.magnitude + (up ? 1u : 0u)));
}

KVQUANT_FN std::uint16_t float_to_fp16_down(float value) {  // toward minus infinity; -0 becomes +0
  const Fp16Parts p = fp16_truncate(value);
  if (value >= 0.0f) return static_cast<std::uint16_t>(p.magnitude);
  return static_cast<std::uint16_t>(0x8000u | (p.magnitude + (p.rest != 0 ? 1u : 0u)));
}

KVQUANT_FN std::uint16_t float_to_fp16_up(float value) {  // toward plus infinity; value >= 0
  const Fp16Parts p = fp16_truncate(value);
  return static_cast<std::uint16_t>(p.magnitude + (p.rest != 0 ? 1u : 0u));
}

// A product that no compiler fuses with the addition after it. Host code that encodes is compiled
// with -ffp-contract=off instead.
KVQUANT_FN float rounded_product(float a, float b) {
#if defined(__CUDA_ARCH__)
  float product;  // clang takes __fmul_rn() for a plain product, and fuses it
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
  return product;
#else
  return a * b;
#endif
}

// --- what can be coded
// ----------------------------------------------------------------------------------------

// Largest magnitude an element may have: scales and offsets are FP16 and rows are rounded to BF16
// first, so 65280, and the square root of the head width less where a rotation can gather a row
// into one element.
KVQUANT_FN float largest_value(const QuantScheme& scheme, int head_width) {
  if (scheme.bits == BitWidth::bf16) return 0x1.fep127f;
  return scheme.hadamard ? 65280.0f / sqrtf(static_cast<float>(head_width)) : 65280.0f;
}

// Values smaller than this are coded as zero. No FP16 scale could tell them apart, and devices that
// flush denormals then agree with those that do not.
constexpr float kSmallest = 0x1p-40f;

KVQUANT_FN float flush_small(float value) { return fabsf(value) < kSmallest ? 0.0f : value; }

// --- rotation
// -------------------------------------------------------------------------------------------------

KVQUANT_FN float hadamard_scale(int width) {  // 1 / sqrt(width), width a power of two
  float scale = 1.0f;
  int rest = width;
  for (; rest >= 4; rest /= 4) scale *= 0.5f;
  return rest == 2 ? scale * 0.70710678118654752f : scale;
}

// Orthonormal Walsh-Hadamard transform of a row in place, natural (Sylvester) order; its own
// inverse. Stages run from neighbours outward, and each is one add and one subtract per pair: every
// device sums alike.
KVQUANT_FN void hadamard(float* row, int width) {
  for (int half = 1; half < width; half *= 2) {
    for (int start = 0; start < width; start += 2 * half) {
      for (int i = start; i < start + half; ++i) {
        const float a = row[i];
        const float b = row[i + half];
        row[i] = a + b;
        row[i + half] = a - b;
      }
    }
  }
  const float scale = hadamard_scale(width);
  for (int i = 0; i < width; ++i) row[i] = rounded_product(row[i], scale);
}

// --- groups
// ---------------------------------------------------------------------------------------------------

// value = offset + scale * level, both FP16 bit patterns. Symmetric groups have offset 0 and do not
// store it.
struct GroupParams {
  std::uint16_t scale = 0;
  std::uint16_t offset = 0;
};

KVQUANT_FN int code_levels(BitWidth bits) {
  return (1 << static_cast<int>(bits)) - 1;
}  // largest code

// Code that stands for zero in a symmetric group.
KVQUANT_FN int code_middle(const QuantScheme& scheme) {
  return scheme.symmetric ? 1 << (static_cast<int>(scheme.bits) - 1) : 0;
}

// Scale and offset of a group from its smallest and largest value. Rounded outward, so that the
// codes cover both and no value is further than half a step from its level.
KVQUANT_FN GroupParams fit_range(const QuantScheme& scheme, float smallest, float largest) {
  GroupParams params;
  const float keep = static_cast<float>(scheme.clip_percent) / 100.0f;
  if (scheme.symmetric) {
    const float magnitude = fmaxf(-smallest, largest) * keep;
    const float steps = static_cast<float>(code_levels(scheme.bits) / 2);
    params.scale = float_to_fp16_up(fmaxf(magnitude, 0.0f) / steps);
    return params;
  }
  if (scheme.clip_percent < 100) {
    const float share = static_cast<float>(100 - scheme.clip_percent) / 200.0f;
    const float cut = bf16_to_float(float_to_bf16(rounded_product(largest - smallest, share)));
    smallest += cut;
    largest -= cut;
  }
  params.offset = float_to_fp16_down(smallest);
  const float range = largest - fp16_to_float(params.offset);
  params.scale = float_to_fp16_up(range / static_cast<float>(code_levels(scheme.bits)));
  return params;
}

// What encode() needs of a group, made once.
struct Encoder {
  float offset;   // of the group
  float inverse;  // 1 / scale, 0 for a group of one value
  int middle;
  int smallest, largest;  // codes
};

KVQUANT_FN Encoder encoder(const QuantScheme& scheme, GroupParams params) {
  const float scale = fp16_to_float(params.scale);
  const int middle = code_middle(scheme);
  return {fp16_to_float(params.offset), scale > 0.0f ? 1.0f / scale : 0.0f, middle,
          scheme.symmetric ? 1 : 0, code_levels(scheme.bits)};
}

KVQUANT_FN int encode(const Encoder& e, float value) {
  const float steps = rounded_product(value - e.offset, e.inverse);
  const float below = static_cast<float>(e.smallest - e.middle);
  const float above = static_cast<float>(e.largest - e.middle);
  return static_cast<int>(lrintf(fminf(fmaxf(steps, below), above))) + e.middle;
}

// --- reading codes at fewer bits
// ------------------------------------------------------------------------------

// Level of a code of `scheme.bits` read at `bits`, from its top bits `top` (the whole code where
// the widths are equal): the centre of the cell that top bits stand for. A multiple of one half
// below 2^8, so that scale * level is exact in FP32. Not for the fitted int2 pair.
KVQUANT_FN float level_of(const QuantScheme& scheme, BitWidth bits, int top) {
  const int dropped = static_cast<int>(scheme.bits) - static_cast<int>(bits);
  const int cell = 1 << dropped;
  const int twice = 2 * (top * cell - code_middle(scheme)) + (cell - 1);
  return static_cast<float>(twice) * 0.5f;
}

// True where int2 reads use the second, fitted pair of parameters.
KVQUANT_FN bool has_fitted_pair(const QuantScheme& scheme) {
  return scheme.bits != BitWidth::int2 && scheme.bits != BitWidth::bf16 &&
         scheme.narrowest == BitWidth::int2;
}

// Level of the top two bits h under the fitted pair: value = offset2 + scale2 * level.
KVQUANT_FN float fitted_level(const QuantScheme& scheme, int h) {
  return scheme.symmetric ? static_cast<float>(h) - 1.5f : static_cast<float>(h);
}

// Sums over a group that the fit needs; integers, so that any order gives the same. h is the top
// two bits of `code`, and `code` counts from the scheme's middle.
struct LevelSums {
  std::int64_t count = 0, h = 0, hh = 0, code = 0, h_code = 0;
};

KVQUANT_FN void add_code(LevelSums& sums, const QuantScheme& scheme, int code) {
  const int h = code >> (static_cast<int>(scheme.bits) - 2);
  const int from_middle = code - code_middle(scheme);
  sums.count += 1;
  sums.h += h;
  sums.hh += h * h;
  sums.code += from_middle;
  sums.h_code += h * from_middle;
}

KVQUANT_FN int clamp_int(int value, int low, int high) {
  return value < low ? low : (value > high ? high : value);
}

// The int2 pair: least squares over the group of its codes against their top two bits, in
// sixteenths of a code, kept inside the cells. A read at int2 is therefore within one cell of the
// value, whatever the group held. Until the pair is rounded to FP16, its squared error over the
// codes of an affine group is no more than that of cell centres.
KVQUANT_FN GroupParams fit_levels(const QuantScheme& scheme, GroupParams params,
                                  const LevelSums& sums) {
  const float scale = fp16_to_float(params.scale);
  const int cell = 1 << (static_cast<int>(scheme.bits) - 2);  // 64 or 4
  GroupParams fitted;
  if (scheme.symmetric) {
    // Levels +-g and +-3g. Both sums over (2h - 3); 3g is clamped into the outermost cell.
    const std::int64_t top = 3 * (2 * sums.h_code - 3 * sums.code);
    const std::int64_t bottom = 4 * sums.hh - 12 * sums.h + 9 * sums.count;
    const float outer = static_cast<float>(top) / static_cast<float>(bottom);
    const int sixteenths =
        clamp_int(static_cast<int>(lrintf(outer * 16.0f)), 16 * cell - 8, 32 * cell - 8);
    fitted.scale = float_to_fp16(scale * static_cast<float>(sixteenths) / 24.0f);
    return fitted;
  }
  const std::int64_t bottom = sums.count * sums.hh - sums.h * sums.h;
  const float half =
      static_cast<float>(cell - 1) * 0.5f;  // centre of cell 0; that of cell 3 is 3 * cell more
  int first = 0;                            // distance of level 0 from its centre, sixteenths
  int last = 0;                             // the same of level 3
  if (bottom == 0) {
    // One cell holds the whole group: its mean, and cells as far apart as they are.
    const std::int64_t top = sums.code - cell * sums.h;
    first = static_cast<int>(
        lrintf((static_cast<float>(top) / static_cast<float>(sums.count) - half) * 16.0f));
    last = first;
  } else {
    const std::int64_t top = sums.code * sums.hh - sums.h * sums.h_code;
    const std::int64_t slope = sums.count * sums.h_code - sums.h * sums.code;
    const float at_first = static_cast<float>(top) / static_cast<float>(bottom);
    const float at_last = static_cast<float>(top + 3 * slope) / static_cast<float>(bottom);
    first = static_cast<int>(lrintf((at_first - half) * 16.0f));
    last = static_cast<int>(lrintf((at_last - half - static_cast<float>(3 * cell)) * 16.0f));
    // Both ends shrink together: on the way from centres to the optimum the error only falls.
    const int room = 8 * cell;
    const int first_size = first < 0 ? -first : first;
    const int last_size = last < 0 ? -last : last;
    const int size = first_size > last_size ? first_size : last_size;
    if (size > room) {
      first = static_cast<int>(static_cast<std::int64_t>(first) * room / size);
      last = static_cast<int>(static_cast<std::int64_t>(last) * room / size);
    }
  }
  // Every product below is exact. FP16 may be too coarse for the offset of a group far from zero:
  // rounding never takes level 0 out of its cell, and what it moves, the scale takes back at
  // level 3.
  const float offset = fp16_to_float(params.offset);
  const float level0 = half + static_cast<float>(first) * 0.0625f;
  const float level3 = half + static_cast<float>(48 * cell + last) * 0.0625f;
  const float target = fmaxf(offset + scale * level0, -65504.0f);  // half a code may lead beyond
  fitted.offset = float_to_fp16(target);
  const float moved = fp16_to_float(fitted.offset) - offset;
  if (moved < scale * -0.5f) fitted.offset = params.offset;
  if (moved > scale * (static_cast<float>(cell) - 0.5f)) fitted.offset = float_to_fp16_down(target);
  fitted.scale = float_to_fp16((scale * level3 - (fp16_to_float(fitted.offset) - offset)) / 3.0f);
  return fitted;
}

// --- planes
// ---------------------------------------------------------------------------------------------------

// A head's row of `width` codes in a plane is strided, so that a vector of bytes, shifted and
// masked, is a run of neighbouring channels: two-bit byte i holds channels i, i + w/4, i + w/2, i +
// 3w/4 from its low bits up, four-bit byte i holds channels i and i + w/2.
KVQUANT_FN int get2(const std::uint8_t* row, int width, int channel) {
  const int quarter = width / 4;
  return (row[channel % quarter] >> (2 * (channel / quarter))) & 3;
}

KVQUANT_FN int get4(const std::uint8_t* row, int width, int channel) {
  const int half = width / 2;
  return (row[channel % half] >> (4 * (channel / half))) & 15;
}

// Into bytes that are zero where the code goes.
KVQUANT_FN void put2(std::uint8_t* row, int width, int channel, int code) {
  const int quarter = width / 4;
  row[channel % quarter] =
      static_cast<std::uint8_t>(row[channel % quarter] | (code << (2 * (channel / quarter))));
}

KVQUANT_FN void put4(std::uint8_t* row, int width, int channel, int code) {
  const int half = width / 2;
  row[channel % half] =
      static_cast<std::uint8_t>(row[channel % half] | (code << (4 * (channel / half))));
}

}  // namespace kvquant
