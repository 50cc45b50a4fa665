// What a layer does to a row between its products and its attention: norms, rotation, activation,
// conversion. Each result is a function of its own row alone. Sums are taken in 32 lanes, lane l
// adding elements l, l + 32, ... by fused multiply-add, folded in halves; so the order does not
// depend on the CPU's vector width either. All lengths are multiples of 32.
#pragma once

#include <cstdint>
#include <span>

namespace kipp::cpu {

// out[i] = in[i] / sqrt(mean(in^2) + kRmsEps) * weight[i]; out and in may be the same.
void rms_norm(std::span<float> out, std::span<const float> in, std::span<const float> weight);

// One head [kHeadDim] in place: RMSNorm with its own weight, then rotation of the pairs (i, i +
// kHeadDim / 2). cos, sin: [kHeadDim / 2].
void norm_rope_head(std::span<float> head, std::span<const float> weight,
                    std::span<const float> cos, std::span<const float> sin);

// out[i] = gate[i] / (1 + exp(-gate[i])) * up[i]
void silu_mul(std::span<float> out, std::span<const float> gate, std::span<const float> up);

// exp(in[i]) as silu_mul and attention take it: within 0.9 units in the last place (1.2 on CPUs
// without fused multiply-add), 0 where it would be subnormal.
void exp(std::span<float> out, std::span<const float> in);

// BF16 to nearest, ties to even, and back: the bits of base/float16.h.
void store_bf16(std::span<std::uint16_t> out, std::span<const float> in);
void widen_bf16(std::span<float> out, std::span<const std::uint16_t> in);

}  // namespace kipp::cpu
