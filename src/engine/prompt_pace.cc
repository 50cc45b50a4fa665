#include "engine/prompt_pace.h"

#include <algorithm>

namespace kipp {

PromptPace::PromptPace(int most, double slowdown)
    : most_(most),
      slowdown_(slowdown),
      tokens_(slowdown == 0 ? most : std::min(most, kFirstTokens)) {}

void PromptPace::learn(int n_generating, int n_prompt_tokens, Clock::Time time) {
  if (n_generating == 0 || slowdown_ == 0) return;
  const double took = seconds(time);
  if (n_prompt_tokens == 0) {
    // Quick down and slowly up: a disturbance makes a step slower, never faster, and what a stream
    // has generated makes its steps slower, but not suddenly.
    alone_ = n_generating == n_seen_ ? std::min(alone_ * 1.02, took) : took;
    n_seen_ = n_generating;
    steps_to_look_ = kStepsBetweenLooks;
    return;
  }
  --steps_to_look_;
  if (n_seen_ == 0) return;
  const double most = slowdown_ * alone_;
  if (took > most) {
    // As if a step's time grew with its prompt tokens alone: quick down, since streams wait.
    tokens_ = std::max(1.0, tokens_ * std::max(0.5, most / took));
  } else {
    tokens_ = std::min<double>(most_, tokens_ * 1.05 + 0.05);
  }
}

}  // namespace kipp
