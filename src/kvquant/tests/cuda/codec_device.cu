// Every function of codec.h, called from a kernel: that this compiles is what codec.h promises.
// tests/python/test_kvquant_cuda.py compiles it, and sees to it that no function is left out.
#include "kvquant/codec.h"

namespace kvquant {

// One thread, one group of `count` <= 512 values, all of one head's row. Numbers that say what each
// step gave go to `out`, so that none of them is dropped.
extern "C" __global__ void codec_device(QuantScheme scheme, const float* values, int count,
                                        std::uint8_t* two_bits, std::uint8_t* four_bits,
                                        float* out) {
  float row[512];
  const float largest = largest_value(scheme, count);
  for (int i = 0; i < count; ++i) {
    const std::uint16_t bits = float_to_bf16(fminf(fmaxf(values[i], -largest), largest));
    row[i] = bf16_to_float(bits);
  }
  if (scheme.hadamard) hadamard(row, count);

  float low = row[0];
  float high = row[0];
  for (int i = 0; i < count; ++i) {
    row[i] = flush_small(row[i]);
    low = fminf(low, row[i]);
    high = fmaxf(high, row[i]);
  }
  const GroupParams params = fit_range(scheme, low, high);
  const Encoder group = encoder(scheme, params);
  LevelSums sums;
  for (int i = 0; i < count; ++i) {
    const int code = encode(group, row[i]);
    add_code(sums, scheme, code);
    put2(two_bits, count, i, code & 3);
    put4(four_bits, count, i, code & 15);
  }
  const GroupParams pair = has_fitted_pair(scheme) ? fit_levels(scheme, params, sums) : params;
  for (int i = 0; i < count; ++i) {
    const int h = get2(two_bits, count, i);
    out[2 * i] = fp16_to_float(pair.offset) + fp16_to_float(pair.scale) * fitted_level(scheme, h);
    out[2 * i + 1] = level_of(scheme, BitWidth::int4, get4(four_bits, count, i));
  }

  float* rest = out + 2 * count;
  rest[0] = fp16_to_float(float_to_fp16(low));
  rest[1] = fp16_to_float(float_to_fp16_down(low));
  rest[2] = fp16_to_float(float_to_fp16_up(fabsf(high)));
  rest[3] = static_cast<float>(fp16_truncate(high).magnitude);
  rest[4] = float_of(bits_of(low) ^ 1u);
  rest[5] = rounded_product(low, high) + hadamard_scale(count);
  rest[6] = static_cast<float>(clamp_int(code_middle(scheme), 0, code_levels(scheme.bits)));
}

}  // namespace kvquant
