// Whether a model gives the answers that it should: to questions on what its context holds, say.
//
// An answer counts as given when each of its tokens is the likeliest after the prompt and the ones
// before it. That is what greedy decoding would write, found without decoding: one step an answer.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "base/types.h"
#include "engine/session.h"

namespace kipp {

struct RecallCase {
  std::vector<Token> prompt;  // at least one token
  std::vector<Token> answer;  // at least one
};

struct RecallScore {
  bool given = false;
  double nll = 0;  // -log of the probability of the whole answer, in nats
};

struct RecallHooks {
  std::function<void(std::size_t done, std::size_t total)> progress = {};  // in tokens of prompts
  const std::atomic<bool>* cancel = nullptr;
};

// Scores of all cases, or of those before `cancel` became true. Refuses a case that the session has
// no room for, or whose answer is longer than its max_scored().
Result<std::vector<RecallScore>> score_recall(Session& session, std::span<const RecallCase> cases,
                                              const RecallHooks& hooks = {});

}  // namespace kipp
