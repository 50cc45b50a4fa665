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
#include "backend/reference/reference_math.h"
#include "base/float16.h"
#include "convert/quantize.h"
#include "support/random_floats.h"

namespace kipp::test {

inline std::size_t index_of(int row, int cols, int col) {
  return static_cast<std::size_t>(row) * static_cast<std::size_t>(cols) +
         static_cast<std::size_t>(col);
}

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

// A matrix of random weights as an artifact stores it, packed by the kernels, and decoded.
struct PackedWeights {
  cuda::DeviceMatrix matrix;
  std::vector<float> decoded;  // [rows, cols]
  std::vector<std::byte> stored;
  std::vector<std::uint8_t> weights, scales;

  PackedWeights(Scheme scheme, int rows, int cols, std::uint64_t seed = 1) {
    const std::size_t row_size = row_bytes(scheme, cols);
    stored.resize(row_size * static_cast<std::size_t>(rows));
    decoded.resize(index_of(rows, cols, 0));
    const std::vector<float> values = normal_floats(seed, decoded.size(), 0.05);
    for (int r = 0; r < rows; ++r) {
      std::vector<std::uint16_t> row;
      for (int c = 0; c < cols; ++c) row.push_back(f32_to_bf16(values[index_of(r, cols, c)]));
      const auto out = std::span(stored).subspan(row_size * static_cast<std::size_t>(r), row_size);
      if (scheme == Scheme::bf16) {
        std::memcpy(out.data(), row.data(), row_size);
      } else if (!encode_row(scheme, row, out)) {
        std::abort();  // the values above fit every scheme
      }
      reference::decode_row(MatrixView{stored.data(), scheme, rows, cols}, r,
                            std::span(decoded).subspan(index_of(r, cols, 0), row.size()));
    }
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
