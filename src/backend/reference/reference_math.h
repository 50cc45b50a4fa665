// The arithmetic of the reference backend: scalar FP32 with every sum in a fixed order, so that a
// result is a function of its inputs alone. A dot product is the sum of kLanes interleaved partial
// sums, folded in halves; lanes are independent, so a compiler may vectorize them without changing
// a bit (the build forbids fusing multiply and add). exp is taken in double and rounded once, as
// sin and cos are (model/rope.h), which hides the last-bit differences between C libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/config.h"
#include "model/weights.h"

namespace kipp::reference {

inline constexpr int kLanes =
    32;  // as many as weights in a quantized block; all widths are multiples of it

inline constexpr float kScoreScale = 0.08838834764831845f;  // 1 / sqrt(kHeadDim)

constexpr std::size_t offset(int row, int cols) {
  return static_cast<std::size_t>(row) * static_cast<std::size_t>(cols);
}

// Values of one head in a row whose heads begin at `begin`.
inline std::span<float> head_of(std::span<float> row, int begin, int head) {
  return row.subspan(static_cast<std::size_t>(begin + head * kHeadDim), kHeadDim);
}

// sum a[i] * b[i]: lane l adds i = l, l + 32, l + 64, ... in that order; then lanes l and l + 16
// are added, then l and l + 8, and so on. n is a multiple of kLanes.
float dot(const float* a, const float* b, int n);

// One row of a matrix as floats: [cols].
void decode_row(const MatrixView& matrix, int row, std::span<float> out);

// n values of a cached key or value as floats, in place when they are floats already.
inline const float* widen(const float* stored, float*) { return stored; }
const float* widen(const std::uint16_t* stored, float* buffer);  // kHeadDim BF16 values

// The sum of squares is in double, in index order. out and in may be the same.
void rms_norm(std::span<float> out, std::span<const float> in, std::span<const float> weight);

// Rotates the pairs (i, i + kHeadDim / 2) of one head in place.
void rope(std::span<float> head, std::span<const float> cos, std::span<const float> sin);

// out[i] = gate[i] / (1 + exp(-gate[i])) * up[i]
void silu_mul(std::span<float> out, std::span<const float> gate, std::span<const float> up);

// Turns scores into exp(score - max) in place and returns their sum, in double and in position
// order.
double softmax_terms(std::span<float> scores);

}  // namespace kipp::reference
