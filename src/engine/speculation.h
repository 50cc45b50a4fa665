// Speculation: a drafter proposes how a generation goes on, and one step evaluates the whole
// proposal behind the token that was drawn last. Every row is then drawn from as it would have been
// alone, with the same random numbers; a proposed token that equals the one drawn has saved a step,
// and the first that does not is forgotten with all behind it. So tokens, text, log-probabilities
// and the way a generation ends are those of plain decoding, greedy or not.
//
// How much is proposed adapts to what came of earlier proposals, and to nothing else: no clock. A
// proposal that is not evaluated is compared with what was drawn all the same, so that a drafter
// which costs nothing proves itself before it costs anything. Where text does not repeat, what is
// spent on proposals is bounded by an allowance of one per cent and a small credit.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/drafter.h"
#include "engine/session.h"

namespace kipp {

inline constexpr int kMaxDraft = 64;

struct Speculation {
  DrafterFactory drafter = {};  // none: tokens are drawn one step each
  int max_draft = 8;            // tokens of one proposal, 1 to kMaxDraft
  // What a row adds to a step of many, in steps of one row. Few rows cost hardly more than one,
  // because all wait for the same weights: about 1 / row_cost of them.
  double row_cost = 0.25;
};

// Prompt lookup (engine/ngram_drafter.h) for generations of `target`.
Speculation ngram_speculation(Model& target, int max_draft = 8);
// A smaller checkpoint (engine/model_drafter.h).
Result<Speculation> model_speculation(Model& target, std::shared_ptr<Model> draft,
                                      int max_draft = 8);

// Refuses values out of range.
Result<void> validate(const Speculation& speculation);

struct SpeculationStats {
  std::uint64_t steps = 0;     // that verified proposals
  std::uint64_t drafted = 0;   // tokens verified
  std::uint64_t accepted = 0;  // of these, as drawn
  std::uint64_t failures = 0;  // drafters given up: no memory for them, or an error of theirs

  SpeculationStats& operator+=(const SpeculationStats& other) {
    steps += other.steps;
    drafted += other.drafted;
    accepted += other.accepted;
    failures += other.failures;
    return *this;
  }
  friend SpeculationStats operator-(SpeculationStats a, const SpeculationStats& b) {
    return {a.steps - b.steps, a.drafted - b.drafted, a.accepted - b.accepted,
            a.failures - b.failures};
  }
};

// The drafter of one generation, and what is known about it.
class Speculator {
 public:
  // Without a drafter it proposes nothing. stop_tokens: nothing is proposed behind them.
  Speculator(const Speculation& speculation, const DraftTask& task,
             std::span<const Token> stop_tokens);

  // What to evaluate behind `timeline`, whose last token was drawn and is not evaluated yet: at
  // most `most` tokens, often none. Valid until the next call. n_generating: sequences that share
  // the step, this one included. Every timeline begins with those of the calls before.
  std::span<const Token> propose(std::span<const Token> timeline, int most, int n_generating = 1);
  // Of the latest proposal so many tokens were evaluated, and so many of them drawn.
  void settle(int verified, int accepted);

  const SpeculationStats& stats() const { return stats_; }

 private:
  // How often a kind of draft has been right.
  struct Estimate {
    double likely = 0;
    int trials = 0;
    bool known = false;
  };

  void learn(std::span<const Token> timeline);
  int worth(const DraftProspect& prospect, double likely, int most) const;
  // What `rows` rows more than the generating sequences' own add to the step.
  double extra_cost(int rows) const;
  void give_up();

  std::unique_ptr<Drafter> drafter_;
  const int max_draft_;
  const double row_cost_;
  const std::span<const Token> stop_tokens_;
  std::array<Estimate, kDraftKinds> estimates_;
  double balance_;        // what may still be spent, in steps of one row
  int n_generating_ = 1;  // in the latest step

  std::vector<Token> draft_;  // the latest; more than was proposed, perhaps
  std::size_t drafted_at_ = 0;
  int kind_ = 0;
  SpeculationStats stats_;
};

}  // namespace kipp
