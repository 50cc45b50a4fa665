#include "engine/scheduler.h"

#include <algorithm>
#include <cassert>

namespace kipp {
namespace {

// What may still be spent.
struct Left {
  int tokens;
  int rows;
};

int unevaluated(const SequenceProgress& sequence) { return sequence.total - sequence.evaluated; }

// `left`: beyond a token and a row for every sequence.
void plan_generation(std::span<const SequenceProgress> sequences, Left& left,
                     std::vector<PlannedItem>& items) {
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const SequenceProgress& s = sequences[i];
    if (s.phase != Phase::generate) continue;
    const int more = std::min({unevaluated(s) - 1, left.tokens, left.rows});
    left.tokens -= more;
    left.rows -= more;
    items.push_back({.sequence = static_cast<int>(i),
                     .pos = s.evaluated,
                     .tokens = 1 + more,
                     .want = unevaluated(s) > 1 ? LogitRows::all : LogitRows::last});
  }
}

// `left`: at least a row for every prompt. `scored_cost`: what a token of a scored one takes of it.
void plan_prompts(std::span<const SequenceProgress> sequences, Left left, int scored_cost,
                  std::vector<PlannedItem>& items) {
  auto behind =
      static_cast<int>(std::ranges::count(sequences, Phase::prompt, &SequenceProgress::phase));
  for (std::size_t i = 0; i < sequences.size() && left.tokens > 0; ++i) {
    const SequenceProgress& s = sequences[i];
    if (s.phase != Phase::prompt) continue;
    --behind;
    const int cost = s.scored ? scored_cost : 1;
    int tokens = std::min(unevaluated(s), (left.tokens + cost - 1) / cost);
    if (s.scored) tokens = std::min(tokens, left.rows - behind);
    const bool ends = tokens == unevaluated(s);
    items.push_back({.sequence = static_cast<int>(i),
                     .pos = s.evaluated,
                     .tokens = tokens,
                     .want = s.scored ? LogitRows::all
                             : ends   ? LogitRows::last
                                      : LogitRows::none});
    left.tokens -= tokens * cost;
    left.rows -= items.back().rows();
  }
}

}  // namespace

void plan_step(std::span<const SequenceProgress> sequences, const StepBudget& budget,
               std::vector<PlannedItem>& items) {
  items.clear();
  const auto n = static_cast<int>(sequences.size());
  assert(n <= budget.tokens && n <= budget.logit_rows);
  Left left{budget.tokens - n, budget.logit_rows - n};  // beyond one each
  plan_generation(sequences, left, items);
  const int n_prompts = n - static_cast<int>(items.size());
  left.tokens += n_prompts;
  left.rows += n_prompts;
  const bool beside_generation = !items.empty();
  if (beside_generation) {
    left.tokens = std::min(left.tokens, budget.prompt_tokens_beside_generation);
  }
  plan_prompts(sequences, left, /*scored_cost=*/beside_generation ? 2 : 1, items);
}

}  // namespace kipp
