// The few statistics that measurements are reported with.
#pragma once

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace kipp {

// The least of the values that at least the share `q` of all values does not exceed (nearest rank,
// NumPy's "inverted_cdf"): always one of the values. `sorted` ascends and is not empty; 0 < q <= 1.
inline double percentile(std::span<const double> sorted, double q) {
  assert(!sorted.empty() && q > 0 && q <= 1);
  const double rank = std::ceil(q * static_cast<double>(sorted.size()));
  const auto at = static_cast<std::size_t>(std::max(rank, 1.0));
  return sorted[std::min(at, sorted.size()) - 1];
}

// The mean of the two in the middle where the count is even. `values` is not empty.
inline double median(std::vector<double> values) {
  assert(!values.empty());
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Of values that arrive one by one, without the loss of digits that sums of squares suffer
// (Welford 1962).
class RunningMean {
 public:
  void add(double value) {
    ++n_;
    const double from_mean = value - mean_;
    mean_ += from_mean / static_cast<double>(n_);
    squares_ += from_mean * (value - mean_);
  }
  std::size_t count() const { return n_; }
  double mean() const { return mean_; }
  // Of the mean, if the values are independent; 0 where fewer than two say nothing about it.
  double standard_error() const {
    if (n_ < 2) return 0;
    const auto n = static_cast<double>(n_);
    return std::sqrt(squares_ / (n - 1) / n);
  }

 private:
  std::size_t n_ = 0;
  double mean_ = 0;
  double squares_ = 0;  // of the deviations from the mean
};

}  // namespace kipp
