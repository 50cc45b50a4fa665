// The weights of one checkpoint as views into the artifact's mapping. Shapes are [rows, cols], row
// major; y = W x, so rows are outputs and cols are inputs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "model/config.h"
#include "model/scheme.h"

namespace kipp {

std::string_view to_string(Scheme scheme);
Result<Scheme> parse_scheme(std::string_view name);

struct MatrixView {
  const std::byte* data = nullptr;  // rows * row_bytes(scheme, cols) bytes; 2-byte aligned at least
  Scheme scheme = Scheme::bf16;
  int rows = 0;
  int cols = 0;

  std::span<const std::byte> row(int r) const {
    const std::size_t bytes = row_bytes(scheme, cols);
    return {data + static_cast<std::size_t>(r) * bytes, bytes};
  }
};

// Matrices of equal cols that are used as one, their rows one below the other: q, k, v and gate,
// up.
struct StackedMatrix {
  std::array<MatrixView, 3> parts;
  int n_parts = 0;

  int rows() const {
    int sum = 0;
    for (int i = 0; i < n_parts; ++i) sum += parts[static_cast<std::size_t>(i)].rows;
    return sum;
  }
  int cols() const { return parts[0].cols; }
  std::span<const MatrixView> views() const {
    return {parts.data(), static_cast<std::size_t>(n_parts)};
  }
};

// W is what a backend multiplies with: StackedMatrix for `reference`, its own packed form
// elsewhere.
template <class W>
struct LayerWeights {
  std::span<const float> attn_norm;  // [hidden]
  W qkv;                             // [attention_width + 2 * kKvWidth, hidden]
  std::span<const float> q_norm;     // [kHeadDim]
  std::span<const float> k_norm;     // [kHeadDim]
  W attn_out;                        // [hidden, attention_width]
  std::span<const float> mlp_norm;   // [hidden]
  W gate_up;                         // [2 * intermediate, hidden]
  W down;                            // [hidden, intermediate]
};

template <class W>
struct Qwen3Weights {
  MatrixView embed;  // [kVocabRows, hidden] BF16
  std::vector<LayerWeights<W>> layers;
  std::span<const float> final_norm;  // [hidden]
  W lm_head;                          // [kVocabRows, hidden] BF16; the embedding itself when tied
};

}  // namespace kipp
