#include "backend/reference/reference_math.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"

namespace kipp::reference {

namespace {

float exp_f32(float x) { return static_cast<float>(std::exp(static_cast<double>(x))); }

std::uint16_t load_u16(const std::byte* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return bits;
}

void widen_bf16(const std::byte* stored, float* out, int n) {
  for (int i = 0; i < n; ++i) out[i] = bf16_to_f32(load_u16(stored + 2 * i));
}

// fp16 scale, 32 int8: scale * q
void decode_q8_0(const std::byte* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  for (int i = 0; i < kQuantBlock; ++i) {
    out[i] = scale * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
  }
}

// Nibbles of the 4-bit schemes: byte i holds weight i in its low and weight i + 16 in its high
// half.
void decode_nibbles(const std::byte* nibbles, float scale, float bias, float offset, float* out) {
  for (int i = 0; i < kQuantBlock / 2; ++i) {
    const auto pair = static_cast<unsigned>(nibbles[i]);
    out[i] = scale * (static_cast<float>(pair & 0xfu) - offset) + bias;
    out[i + kQuantBlock / 2] = scale * (static_cast<float>(pair >> 4) - offset) + bias;
  }
}

// Sanitizers that look at every element here took half the time of all tests of a model.
__attribute__((no_sanitize("address", "undefined"))) float dot_unwatched(const float* a,
                                                                         const float* b, int n) {
  float lane[kLanes] = {};
  for (int i = 0; i < n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lane[l] += a[i + l] * b[i + l];
  }
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lane[l] += lane[l + width];
  }
  return lane[0];
}

}  // namespace

float dot(const float* a, const float* b, int n) {
  volatile float ends = a[n - 1] + b[n - 1];  // what sanitizers are shown of both
  static_cast<void>(ends);
  return dot_unwatched(a, b, n);
}

void decode_row(const MatrixView& matrix, int row, std::span<float> out) {
  const std::byte* at = matrix.row(row).data();
  if (matrix.scheme == Scheme::bf16) {
    widen_bf16(at, out.data(), matrix.cols);
    return;
  }
  const std::size_t block_bytes = row_bytes(matrix.scheme, kQuantBlock);
  for (int c = 0; c < matrix.cols; c += kQuantBlock, at += block_bytes) {
    float* block = out.data() + c;
    if (matrix.scheme == Scheme::q8_0) {
      decode_q8_0(at, block);
    } else if (matrix.scheme == Scheme::affine4_gs32) {
      decode_nibbles(at + 4, f16_to_f32(load_u16(at)), f16_to_f32(load_u16(at + 2)), 0.0f, block);
    } else {
      decode_nibbles(at + 2, f16_to_f32(load_u16(at)), 0.0f, 8.0f, block);
    }
  }
}

const float* widen(const std::uint16_t* stored, float* buffer) {
  for (int i = 0; i < kHeadDim; ++i) buffer[i] = bf16_to_f32(stored[i]);
  return buffer;
}

void rms_norm(std::span<float> out, std::span<const float> in, std::span<const float> weight) {
  double sum = 0;
  for (const float v : in) sum += static_cast<double>(v) * static_cast<double>(v);
  const double mean = sum / static_cast<double>(in.size());
  const auto scale = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(kRmsEps)));
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = in[i] * scale * weight[i];
}

void rope(std::span<float> head, std::span<const float> cos, std::span<const float> sin) {
  const std::size_t half = head.size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    const float a = head[i];
    const float b = head[i + half];
    head[i] = a * cos[i] - b * sin[i];
    head[i + half] = b * cos[i] + a * sin[i];
  }
}

void silu_mul(std::span<float> out, std::span<const float> gate, std::span<const float> up) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = gate[i] / (1.0f + exp_f32(-gate[i])) * up[i];
  }
}

double softmax_terms(std::span<float> scores) {
  const float max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (float& s : scores) {
    s = exp_f32(s - max);
    sum += static_cast<double>(s);
  }
  return sum;
}

}  // namespace kipp::reference
