// Progress of a prompt's evaluation, for prompts that take more than one step; shorter ones are
// over before anybody wonders.
#pragma once

#include <cstdint>

#include "base/progress.h"

namespace kipp {

class PromptProgressBar {
 public:
  // As Session::Progress. What the session held already is not counted as work.
  void operator()(int done, int total) {
    if (reused_ < 0) {
      reused_ = done;
      return;
    }
    many_steps_ = many_steps_ || done < total;
    if (!many_steps_) return;
    bar_.update(static_cast<std::uint64_t>(done - reused_),
                static_cast<std::uint64_t>(total - reused_));
    if (done == total) bar_.finish();
  }

 private:
  ProgressBar bar_{"prompt", ProgressUnit::tokens};
  int reused_ = -1;  // not told yet
  bool many_steps_ = false;
};

}  // namespace kipp
