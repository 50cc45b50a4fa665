// Test inputs, the same on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace kipp::test {

// Roughly normal, standard deviation `scale`: the sum of twelve uniform draws less 6.
inline std::vector<float> normal_floats(std::uint64_t seed, std::size_t n, double scale = 1) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    double sum = -6;
    for (std::uint64_t k = 0; k < 12; ++k) sum += draw_uniform(seed, 12 * i + k);
    values[i] = static_cast<float>(sum * scale);
  }
  return values;
}

}  // namespace kipp::test
