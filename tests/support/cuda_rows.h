// What tests of the CUDA kernels hand to them: activations in both forms and packed matrices, in
// memory of exactly their size (the address sanitizer then sees who leaves it), beside the same
// values in double.
#pragma once

#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "backend/cuda/emulation.h"
#include "backend/cuda/kernels.h"
#include "base/float16.h"
#include "support/stored_weights.h"

namespace kipp::test {

// [rows, cols] as split activations, and the values that the two terms stand for.
struct SplitMatrix {
  int rows = 0;
  int cols = 0;
  std::vector<std::uint16_t> data;
  std::vector<float> values;

  SplitMatrix(int n_rows, int n_cols)
      : rows(n_rows), cols(n_cols), data(index_of(n_rows, 2 * n_cols, 0), 0xffff) {}
  SplitMatrix(std::vector<float> from, int n_rows, int n_cols) : SplitMatrix(n_rows, n_cols) {
    values = std::move(from);
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < cols; ++c) {
        const float v = values[index_of(r, cols, c)];
        const std::uint16_t hi = f32_to_bf16(v);
        data[index_of(r, 2 * cols, c)] = hi;
        data[index_of(r, 2 * cols, cols + c)] = f32_to_bf16(v - bf16_to_f32(hi));
      }
    }
  }

  cuda::SplitRows view() { return {data.data(), rows, cols}; }
  float joined(int row, int col) const {
    return bf16_to_f32(data[index_of(row, 2 * cols, col)]) +
           bf16_to_f32(data[index_of(row, 2 * cols, cols + col)]);
  }
  // Rows first .. first + n alone.
  SplitMatrix part(int first, int n) const {
    SplitMatrix out(n, cols);
    std::memcpy(out.data.data(), data.data() + index_of(first, 2 * cols, 0),
                out.data.size() * sizeof(std::uint16_t));
    return out;
  }
};

// Random weights packed by the kernels.
struct PackedWeights : StoredWeights {
  cuda::DeviceMatrix matrix;
  std::vector<std::uint8_t> weights, scales;

  PackedWeights(Scheme scheme, int rows, int cols, std::uint64_t seed = 1)
      : StoredWeights(scheme, rows, cols, seed) {
    const std::size_t row_size = row_bytes(scheme, cols);
    weights.resize(cuda::packed_weight_bytes(scheme, rows, cols));
    scales.resize(cuda::packed_scale_bytes(scheme, rows, cols));
    matrix = {weights.data(), scales.data(), scheme, rows, cols};
    // In two pieces that end inside a tile, as a loader with a staging buffer may.
    const int first = rows / 3;
    packed = cuda::pack_rows(nullptr, matrix, 0, first, stored.data());
    if (packed == 0) {
      packed = cuda::pack_rows(nullptr, matrix, first, rows - first,
                               stored.data() + row_size * static_cast<std::size_t>(first));
    }
  }
  cuda::LaunchCode packed = 0;
};

// The emulation takes threads in descending order while one of these lives: what needs a barrier
// that is not there then gives other bits.
class DescendingThreads {
 public:
  DescendingThreads() { cuda::emulation::set_descending(true); }
  ~DescendingThreads() { cuda::emulation::set_descending(false); }
  DescendingThreads(const DescendingThreads&) = delete;
  DescendingThreads& operator=(const DescendingThreads&) = delete;
};

}  // namespace kipp::test
