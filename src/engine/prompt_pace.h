// How many prompt tokens a step may read beside sequences that generate, so that somebody's long
// prompt slows running streams by a bounded factor, on any machine, for any model and at any depth.
//
// Learned from how long steps took: those that only generate say what the streams' own pace is,
// those that read prompt tokens as well how much of them fits below `slowdown` times that. Once
// in kStepsBetweenLooks a step leaves the prompt alone, to look at the pace again; until then a
// stream that joined makes the bound stricter and one that ended more generous. Changes when
// prompts are read and nothing else.
#pragma once

#include "base/clock.h"

namespace kipp {

class PromptPace {
 public:
  static constexpr int kFirstTokens = 8;
  static constexpr int kStepsBetweenLooks = 64;
  static constexpr int kStepsBeforeFirstLook = 8;

  // `most`: tokens of one step, however fast they are; at least 1. `slowdown`: how many times its
  // time alone a step may take; 0: whatever it takes, and every step reads `most`.
  PromptPace(int most, double slowdown);

  // Prompt tokens for the next step beside sequences that generate, at least 1; 0: this step looks
  // at their pace alone.
  int tokens() const { return steps_to_look_ <= 0 ? 0 : static_cast<int>(tokens_); }
  // That step was evaluated in `time`, with so many prompt tokens in it.
  void learn(int n_generating, int n_prompt_tokens, Clock::Time time);

 private:
  const int most_;
  const double slowdown_;
  double tokens_;
  int steps_to_look_ = kStepsBeforeFirstLook;
  int n_seen_ = 0;  // sequences that generated in the last step without prompt tokens; 0: none yet
  double alone_ = 0;  // seconds of it
};

}  // namespace kipp
