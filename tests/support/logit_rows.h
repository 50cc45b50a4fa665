// How far two rows of numbers are apart, and whether they are the same.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

namespace kipp::test {

// The square of the error relative to that of what is expected, as the contract defines it.
inline double nmse(std::span<const float> found, std::span<const float> expected) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double truth = static_cast<double>(expected[i]);
    error += (static_cast<double>(found[i]) - truth) * (static_cast<double>(found[i]) - truth);
    size += truth * truth;
  }
  return error / size;
}

inline std::ptrdiff_t arg_max(std::span<const float> row) {
  return std::ranges::max_element(row) - row.begin();
}

// A backend's rows last until its next step.
inline std::vector<float> copy_of(std::span<const float> row) { return {row.begin(), row.end()}; }

inline testing::AssertionResult same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) {
    return testing::AssertionFailure() << a.size() << " and " << b.size() << " numbers";
  }
  if (std::memcmp(a.data(), b.data(), a.size_bytes()) == 0) return testing::AssertionSuccess();
  std::size_t i = 0;
  while (std::memcmp(&a[i], &b[i], sizeof(float)) == 0) ++i;
  return testing::AssertionFailure() << "number " << i << ": " << a[i] << " and " << b[i];
}

}  // namespace kipp::test
