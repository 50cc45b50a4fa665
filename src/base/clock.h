// Time as something handed in, so that tests decide what time it is.
#pragma once

#include <chrono>

namespace kipp {

class Clock {
 public:
  using Time = std::chrono::nanoseconds;  // since some fixed moment; never goes back

  virtual ~Clock() = default;
  // From any thread.
  virtual Time now() const = 0;
};

inline double seconds(Clock::Time time) { return std::chrono::duration<double>(time).count(); }

// The machine's own.
inline const Clock& steady_clock() {
  class Steady final : public Clock {
   public:
    Time now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
  };
  static const Steady clock;
  return clock;
}

}  // namespace kipp
