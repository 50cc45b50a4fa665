// From logits to a token. The choice depends on (params, logits, context, draw) alone: the
// generator is counter-based, so batch neighbours, threads and restarts cannot change it.
//
// Order of the chain: logit bias, penalties, (arg max if greedy), temperature, top-k, top-p, min-p,
// draw. Everything after the logits is done in double. Selection is exact and breaks ties towards
// the lower id, so that the result does not depend on the standard library; the one platform
// dependency is the last bit of std::exp, which matters only when a draw falls within about 1e-15
// of the border between two tokens.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/types.h"

namespace kipp {

struct SamplingParams {
  float temperature = 1.0f;  // >= 0; 0 is greedy
  int top_k = 0;             // 0: off; else exactly so many tokens are kept
  float top_p = 1.0f;  // (0, 1]: the fewest best tokens that hold this share of what top-k kept
  float min_p = 0.0f;  // [0, 1]: keep tokens of at least min_p times the best probability
  float repetition_penalty = 1.0f;  // > 0; each distinct token of prompt and output once
  float presence_penalty = 0.0f;    // [-2, 2]; generated tokens only
  float frequency_penalty = 0.0f;   // [-2, 2]; generated tokens only
  std::vector<std::pair<Token, float>> logit_bias;  // [-100, 100]; each named token at most once
  std::uint64_t seed = 0;
};

// All penalties look at this many of the latest generated tokens; repetition_penalty at the whole
// prompt too.
inline constexpr int kPenaltyWindow = 64;

// One sentence naming the field, what is allowed and what was found. NaN is never allowed.
Result<void> validate(const SamplingParams& params);

struct SampleContext {
  // What the penalties count over.
  std::span<const Token> prompt;
  std::span<const Token> generated;
  // Not to be drawn: the chain begins with their logits at minus infinity.
  std::span<const Token> barred = {};
};

// logits: one row of kVocabRows. draw: how many tokens this request has drawn before.
// Never returns an id that names no token. A logit that is not a number is never chosen.
Token sample(std::span<const float> logits, const SamplingParams& params,
             const SampleContext& context, std::uint64_t draw);

}  // namespace kipp
