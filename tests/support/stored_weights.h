// A matrix of random weights as an artifact stores it, and decoded.
#pragma once

#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "backend/reference/reference_math.h"
#include "base/float16.h"
#include "convert/quantize.h"
#include "support/random_floats.h"

namespace kipp::test {

inline std::size_t index_of(int row, int cols, int col) {
  return static_cast<std::size_t>(row) * static_cast<std::size_t>(cols) +
         static_cast<std::size_t>(col);
}

struct StoredWeights {
  std::vector<float> decoded;  // [rows, cols]
  std::vector<std::byte> stored;
  MatrixView view;  // of `stored`, which may be moved but not copied

  StoredWeights(Scheme scheme, int rows, int cols, std::uint64_t seed = 1) {
    const std::size_t row_size = row_bytes(scheme, cols);
    stored.resize(row_size * static_cast<std::size_t>(rows));
    decoded.resize(index_of(rows, cols, 0));
    view = {stored.data(), scheme, rows, cols};
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
      reference::decode_row(view, r, std::span(decoded).subspan(index_of(r, cols, 0), row.size()));
    }
  }
  StoredWeights(StoredWeights&&) = default;
  StoredWeights(const StoredWeights&) = delete;
  StoredWeights& operator=(const StoredWeights&) = delete;
};

}  // namespace kipp::test
