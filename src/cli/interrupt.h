// Ctrl-C as a request: while an Interrupt lives, SIGINT and SIGTERM set a flag that long work looks
// at, so that it can stop at a clean point. A second signal ends the program the usual way.
#pragma once

#include <atomic>

namespace kipp {

class Interrupt {
 public:
  Interrupt();   // at most one at a time
  ~Interrupt();  // puts the earlier handlers back
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static const std::atomic<bool>& flag();
  static bool requested() { return flag().load(std::memory_order_relaxed); }
};

}  // namespace kipp
