// From logits to a token. The choice depends on (params, logits, draw) alone: the generator is counter-based.
// Order of the chain: logit bias, penalties, (argmax if greedy), temperature, top-k, top-p, min-p, draw.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/types.h"

namespace kipp {

struct SamplingParams {
  float temperature = 1.0f;         // >= 0; 0 is greedy
  int top_k = 0;                    // 0: off
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1]: keep tokens of at least min_p times the best probability
  float repetition_penalty = 1.0f;  // > 0; each distinct token of prompt and output once
  float presence_penalty = 0.0f;    // [-2, 2]; generated tokens only
  float frequency_penalty = 0.0f;   // [-2, 2]; generated tokens only
  std::vector<std::pair<Token, float>> logit_bias;  // [-100, 100]
  std::uint64_t seed = 0;
};

// Penalties look at this many of the latest generated tokens.
inline constexpr int kPenaltyWindow = 64;

// One sentence naming the field, what is allowed and what was found. NaN is never allowed.
Result<void> validate(const SamplingParams& params);

// What the penalties count over.
struct SampleContext {
  std::span<const Token> prompt;
  std::span<const Token> generated;
};

// logits: one row of kVocabRows. draw: how many tokens this request has drawn before.
// Never returns an id that names no token.
Token sample(std::span<const float> logits, const SamplingParams& params, const SampleContext& context,
             std::uint64_t draw);

struct TokenLogprob {
  Token token = 0;
  float logprob = 0;
};

// log softmax of the raw logits over named tokens: the chosen token's and the n best, best first.
TokenLogprob logprob_of(std::span<const float> logits, Token token);
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int n);

}  // namespace kipp
