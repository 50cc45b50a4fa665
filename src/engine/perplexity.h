// How well a model predicts a text, and how far its predictions are from those of another run.
//
// The text is cut into windows, each evaluated as a sequence of its own from position 0. A window
// begins `stride` tokens after the one before it and predicts what that one has not: with stride ==
// context windows lie side by side and the first token of each is predicted by nobody; with a
// smaller stride every prediction but the first window's has seen at least context - stride tokens,
// for context / stride times the work.
//
// Probabilities are a softmax over all kVocabRows logits, ids that name no token included, as other
// tools compute it. Sums are in double precision.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"
#include "engine/saved_logits.h"
#include "engine/session.h"

namespace kipp {

// Tokens [begin, end) of the text, of which [first_scored, end) are predicted.
struct Window {
  int begin = 0;
  int first_scored = 0;
  int end = 0;

  friend bool operator==(const Window&, const Window&) = default;
};

// 2 <= context, 1 <= stride <= context. Windows that would predict nothing are left out; together
// the others predict every token at most once, in order.
std::vector<Window> plan_windows(int n_tokens, int context, int stride);
std::size_t scored_tokens(std::span<const Window> windows);

// One prediction.
struct RowScore {
  int context = 0;  // tokens it has seen
  double nll = 0;   // -log of the probability of the token that came, in nats
  // Against the other run P, Q being this one: KL(P || Q) in nats, whether both hold the same token
  // likeliest, and P's own nll. Zero and false without one.
  double kl = 0;
  bool same_top = false;
  double other_nll = 0;
};

// `other` empty: nothing to compare with. Fails on logits that are not finite.
Result<RowScore> score_row(std::span<const float> logits, Token target,
                           std::span<const float> other);

struct PerplexityHooks {
  std::function<void(std::size_t done, std::size_t total)> progress = {};
  const std::atomic<bool>* cancel = nullptr;
  LogitsWriter* save = nullptr;  // gets every row; the caller commits it
  // What to compare with, one of them at most: a file, or a session of another model that is given
  // the same tokens in the same steps (another way to keep the cache, say) and has as much room.
  const SavedLogits* against = nullptr;
  Session* beside = nullptr;
};

// Scores of all windows, or of those before `cancel` became true. `session` is the model's, with
// room for the longest window. pseudo_decode: predictions come from one token at a time, as in
// decoding, instead of from chunks; what a window has before its first prediction is its prompt.
Result<std::vector<RowScore>> score_windows(Model& model, Session& session,
                                            std::span<const Token> tokens,
                                            std::span<const Window> windows, bool pseudo_decode,
                                            const PerplexityHooks& hooks = {});

struct Divergence {
  double mean = 0;
  double standard_error = 0;
  double p999 = 0;  // 99.9 % of the rows are at most that far
  double max = 0;
  double same_top = 0;  // share of the rows
  double nll = 0;       // of the other run, mean
};

// Of some rows. Standard errors take the rows for independent.
struct PerplexitySummary {
  std::size_t rows = 0;
  double nll = 0;
  double nll_error = 0;
  std::optional<Divergence> divergence;

  double perplexity() const;
  double perplexity_error() const { return perplexity() * nll_error; }
};

PerplexitySummary summarize(std::span<const RowScore> rows, bool compared);

// Rows whose context is in [from, to).
struct PositionBucket {
  int from = 0;
  int to = 0;
  PerplexitySummary summary;
};

// By how much was seen: fewer than 32 tokens, then twice as many from bucket to bucket. Empty ones
// are left out.
std::vector<PositionBucket> summarize_by_position(std::span<const RowScore> rows, bool compared);

}  // namespace kipp
