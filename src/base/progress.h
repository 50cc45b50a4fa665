// Progress of long work on standard error: one redrawn line with a bar on a terminal, a plain line
// every few seconds elsewhere (logs, pipes). Work shorter than half a second prints nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace kipp {

enum class ProgressUnit : std::uint8_t { bytes, tokens, items };

class ProgressBar {
 public:
  ProgressBar(std::string label, ProgressUnit unit);
  ~ProgressBar();  // finishes the line if it was begun
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(std::uint64_t done, std::uint64_t total);
  // The last state, with the time it took.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(Clock::time_point now, bool last);

  std::string label_;
  ProgressUnit unit_;
  bool terminal_;
  bool drawn_ = false;
  bool finished_ = false;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
  Clock::time_point start_;
  Clock::time_point next_draw_;
};

}  // namespace kipp
