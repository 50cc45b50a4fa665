// Log-probabilities as readers are told them: the log softmax of a row of raw logits over the ids
// that name tokens, whatever sampling parameters make of the row.
#pragma once

#include <span>
#include <vector>

#include "base/types.h"

namespace kipp {

inline constexpr int kMaxTopLogprobs = 20;

struct TokenLogprob {
  Token token = 0;
  float logprob = 0;

  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

struct Logprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> best;  // best first; of equals the lower id

  friend bool operator==(const Logprobs&, const Logprobs&) = default;
};

// logits: one row of kVocabRows. Of `chosen`, which names a token, and of the n best, n at most
// kMaxTopLogprobs. Depends on the row alone. Within 1e-6 of the exact value; a logit that is not a
// number counts as minus infinity, and what is minus infinity is not among the best.
Logprobs logprobs_of(std::span<const float> logits, Token chosen, int n);

inline TokenLogprob logprob_of(std::span<const float> logits, Token token) {
  return logprobs_of(logits, token, 0).chosen;
}
inline std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int n) {
  return logprobs_of(logits, 0, n).best;
}

}  // namespace kipp
