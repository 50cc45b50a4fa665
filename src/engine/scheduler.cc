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

void plan_generation(std::span<const SequenceProgress> sequences, Left& left,
                     std::vector<PlannedItem>& items) {
  const auto n =
      static_cast<int>(std::ranges::count(sequences, Phase::generate, &SequenceProgress::phase));
  assert(n <= left.tokens && n <= left.rows);
  left.tokens -= n;  // one each, whatever the others would like to have verified
  left.rows -= n;
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

void plan_prompts(std::span<const SequenceProgress> sequences, Left left,
                  std::vector<PlannedItem>& items) {
  for (std::size_t i = 0; i < sequences.size() && left.tokens > 0; ++i) {
    const SequenceProgress& s = sequences[i];
    if (s.phase != Phase::prompt) continue;
    int tokens = std::min(unevaluated(s), left.tokens);
    bool ends = tokens == unevaluated(s);
    if (ends && left.rows == 0) {
      --tokens;  // the last token waits for a step that can return its logits
      ends = false;
    }
    if (tokens == 0) continue;
    left.tokens -= tokens;
    left.rows -= int{ends};
    items.push_back({.sequence = static_cast<int>(i),
                     .pos = s.evaluated,
                     .tokens = tokens,
                     .want = ends ? LogitRows::last : LogitRows::none});
  }
}

}  // namespace

void plan_step(std::span<const SequenceProgress> sequences, const StepBudget& budget,
               std::vector<PlannedItem>& items) {
  items.clear();
  Left left{budget.tokens, budget.logit_rows};
  plan_generation(sequences, left, items);
  if (!items.empty()) {
    left.tokens = std::min(left.tokens, budget.prompt_tokens_beside_generation);
  }
  plan_prompts(sequences, left, items);
}

}  // namespace kipp
