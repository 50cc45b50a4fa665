#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace kipp {
namespace {

constexpr auto kFirstDraw = std::chrono::milliseconds(500);
constexpr auto kTerminalInterval = std::chrono::milliseconds(100);
constexpr auto kPlainInterval = std::chrono::seconds(5);
constexpr int kBarCells = 28;

std::string amount(double value, ProgressUnit unit) {
  if (unit == ProgressUnit::tokens) return fmt::format("{:.0f} tokens", value);
  if (unit == ProgressUnit::items) return fmt::format("{:.0f}", value);
  if (value >= 1e9) return fmt::format("{:.2f} GB", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.0f} kB", value / 1e3);
}

}  // namespace

ProgressBar::ProgressBar(std::string label, ProgressUnit unit)
    : label_(std::move(label)),
      unit_(unit),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      next_draw_(start_ + kFirstDraw) {}

ProgressBar::~ProgressBar() {
  if (drawn_ && !finished_ && terminal_) std::fputc('\n', stderr);
}

void ProgressBar::update(std::uint64_t done, std::uint64_t total) {
  done_ = done;
  total_ = total;
  const auto now = Clock::now();
  if (now < next_draw_) return;
  if (terminal_) {
    next_draw_ = now + kTerminalInterval;
  } else {
    next_draw_ = now + kPlainInterval;
  }
  draw(now, false);
}

void ProgressBar::finish() {
  if (finished_) return;
  finished_ = true;
  const auto now = Clock::now();
  if (drawn_ || now - start_ >= kFirstDraw) draw(now, true);
}

void ProgressBar::draw(Clock::time_point now, bool last) {
  drawn_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const auto done = static_cast<double>(done_);
  const auto total = static_cast<double>(total_);
  const double share = total_ == 0 ? 0.0 : done / total;
  const double rate = seconds > 0 ? done / seconds : 0.0;
  std::string line = fmt::format("{}: ", label_);
  if (terminal_) {
    const int full = static_cast<int>(share * kBarCells);
    for (int i = 0; i < kBarCells; ++i) line += i < full ? "█" : "░";
    line += ' ';
  }
  line +=
      fmt::format("{:3.0f} % of {}, {}/s", share * 100, amount(total, unit_), amount(rate, unit_));
  if (last) {
    line += fmt::format(", {:.1f} s", seconds);
  } else if (rate > 0 && total > done) {
    line += fmt::format(", {:.0f} s left", (total - done) / rate);
  }
  if (terminal_) {
    fmt::print(stderr, "\r{}\x1b[K{}", line, last ? "\n" : "");
  } else {
    fmt::print(stderr, "{}\n", line);
  }
  std::fflush(stderr);
}

}  // namespace kipp
