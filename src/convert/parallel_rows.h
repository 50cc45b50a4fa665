// Splits rows over threads for work whose result for a row depends on that row alone: the outcome
// is the same with any number of threads.
#pragma once

#include <algorithm>
#include <functional>
#include <thread>
#include <vector>

namespace kipp {

// Calls work(first, count) for contiguous shares of [0, n_rows). It must not throw, nor touch rows
// outside.
inline void parallel_rows(int n_rows, int n_threads, const std::function<void(int, int)>& work) {
  const int shares = std::clamp(n_threads, 1, std::max(n_rows, 1));
  std::vector<std::jthread> others;
  const auto begin = [&](int share) {
    return static_cast<int>(static_cast<long long>(n_rows) * share / shares);
  };
  for (int share = 1; share < shares; ++share) {
    others.emplace_back(
        [&work, first = begin(share), last = begin(share + 1)] { work(first, last - first); });
  }
  work(0, begin(1));
}

}  // namespace kipp
