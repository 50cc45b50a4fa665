#include "engine/speculation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/model_drafter.h"
#include "engine/ngram_drafter.h"
#include "model/step_plan.h"

namespace kipp {
namespace {

// What drafts may cost over all, as a share of the steps made, and in advance; so much that they
// gained may be lost again.
constexpr double kAllowance = 0.01;
constexpr double kCredit = 2;
// Of a row that waits for the weights like all others; what it costs is arithmetic and attention.
constexpr double kFewRowsCost = 0.05;
// The latest trials of a kind of draft that its estimate stands for.
constexpr int kMemory = 16;
// Trials that the first guess counts for.
constexpr int kPrior = 2;
// The longest draft of a drafter that has failed and costs something.
constexpr int kProbe = 4;

// In steps of one row.
double step_cost(int rows, double row_cost) {
  return std::max(1 + kFewRowsCost * (rows - 1), row_cost * rows);
}

// Measured with a qwen3-0.6b twin on two cores with AVX-512: 8 rows of BF16 and Q8_0 take 2.1 times
// as long as one, of 4 bits 2.9 to 3.4 times. The reference computes row by row.
double row_cost_of(Model& model) {
  if (model.backend().info().name == "reference") return 1;
  switch (model.artifact().scheme()) {
    case Scheme::bf16:
    case Scheme::q8_0:
      break;
    case Scheme::affine4_gs32:
    case Scheme::scale4_gs32:
      return 0.33;
  }
  return 0.25;
}

}  // namespace

Speculation ngram_speculation(Model& target, int max_draft) {
  return {.drafter = [](const DraftTask&) -> Result<std::unique_ptr<Drafter>> {
            return std::make_unique<NgramDrafter>();
          },
          .max_draft = max_draft,
          .row_cost = row_cost_of(target)};
}

Result<Speculation> model_speculation(Model& target, std::shared_ptr<Model> draft, int max_draft) {
  const double row_cost = row_cost_of(target);
  KIPP_TRY_ASSIGN(drafter, model_drafters(target, std::move(draft), row_cost));
  return Speculation{.drafter = std::move(drafter), .max_draft = max_draft, .row_cost = row_cost};
}

Result<void> validate(const Speculation& speculation) {
  if (speculation.max_draft < 1 || speculation.max_draft > kMaxDraft) {
    return fail(ErrorCode::invalid, "max_draft: expected 1 to {} tokens, found {}", kMaxDraft,
                speculation.max_draft);
  }
  if (!(speculation.row_cost >= 0 && speculation.row_cost <= 1)) {
    return fail(ErrorCode::invalid, "row_cost: expected a number from 0 to 1, found {}",
                speculation.row_cost);
  }
  return {};
}

Speculator::Speculator(const Speculation& speculation, const DraftTask& task,
                       std::span<const Token> stop_tokens)
    : max_draft_(speculation.max_draft),
      row_cost_(speculation.row_cost),
      stop_tokens_(stop_tokens),
      balance_(kCredit) {
  if (!speculation.drafter) return;
  auto drafter = speculation.drafter(task);
  if (drafter) {
    drafter_ = *std::move(drafter);
  } else {
    give_up();
  }
}

void Speculator::give_up() {
  drafter_.reset();
  draft_.clear();
  ++stats_.failures;
}

std::span<const Token> Speculator::propose(std::span<const Token> timeline, int most,
                                           int n_generating) {
  n_generating_ = n_generating;
  if (!drafter_) return {};
  learn(timeline);
  draft_.clear();
  const double own_step = step_cost(n_generating_, row_cost_) / n_generating_;
  balance_ = std::min(balance_ + kAllowance * own_step, kCredit);
  if (most < 1) return {};
  const auto prospect = drafter_->look(timeline);
  if (!prospect) return {};

  kind_ = std::clamp(prospect->kind, 0, kDraftKinds - 1);
  Estimate& estimate = estimates_[static_cast<std::size_t>(kind_)];
  if (!estimate.known) estimate = {.likely = prospect->likely, .trials = kPrior, .known = true};
  int n = worth(*prospect, estimate.likely, std::min(most, max_draft_));
  if (n == 0 && !prospect->free()) {
    // A whole credit, saved up over many steps, may buy another try.
    if (balance_ == kCredit) n = worth(*prospect, 1, std::min({most, max_draft_, kProbe}));
    if (n == 0) return {};
  }
  const int asked = std::max(n, 1);
  if (!drafter_->draft(timeline, asked, draft_)) {
    give_up();
    return {};
  }
  if (draft_.size() > static_cast<std::size_t>(asked))
    draft_.resize(static_cast<std::size_t>(asked));
  const auto no_use = [this](Token token) {
    return token < 0 || token >= kNamedTokens ||
           std::ranges::find(stop_tokens_, token) != stop_tokens_.end();
  };
  draft_.erase(std::ranges::find_if(draft_, no_use), draft_.end());
  drafted_at_ = timeline.size();
  balance_ -= prospect->cost_once + prospect->cost_token * static_cast<double>(draft_.size());
  return std::span(draft_).first(std::min(draft_.size(), static_cast<std::size_t>(n)));
}

void Speculator::settle(int verified, int accepted) {
  if (verified == 0) return;
  ++stats_.steps;
  stats_.drafted += static_cast<std::uint64_t>(verified);
  stats_.accepted += static_cast<std::uint64_t>(accepted);
  const double own_step = step_cost(n_generating_, row_cost_) / n_generating_;
  balance_ = std::min(balance_ + accepted * own_step - extra_cost(verified), kCredit);
}

// From what the timeline has become since: each token of the draft up to the first wrong one is a
// trial, whether it was evaluated or not.
void Speculator::learn(std::span<const Token> timeline) {
  Estimate& estimate = estimates_[static_cast<std::size_t>(kind_)];
  const auto known = timeline.subspan(std::min(drafted_at_, timeline.size()));
  for (std::size_t i = 0; i < std::min(draft_.size(), known.size()); ++i) {
    const bool right = draft_[i] == known[i];
    estimate.trials = std::min(estimate.trials + 1, kMemory);
    estimate.likely += ((right ? 1.0 : 0.0) - estimate.likely) / estimate.trials;
    if (!right) break;
  }
}

double Speculator::extra_cost(int rows) const {
  return step_cost(n_generating_ + rows, row_cost_) - step_cost(n_generating_, row_cost_);
}

// The number of tokens that makes the step cheapest per token it is expected to draw, as far as the
// balance reaches.
int Speculator::worth(const DraftProspect& prospect, double likely, int most) const {
  const double own_cost = step_cost(n_generating_, row_cost_);
  int best = 0;
  double best_rate = n_generating_ / own_cost;
  double expected = n_generating_;
  double right = 1;  // how likely all tokens up to this one are right
  for (int n = 1; n <= most; ++n) {
    right *= likely;
    expected += right;
    const double cost = prospect.cost_once + prospect.cost_token * n + extra_cost(n);
    if (cost > balance_) break;
    if (const double rate = expected / (own_cost + cost); rate > best_rate) {
      best = n;
      best_rate = rate;
    }
  }
  return best;
}

}  // namespace kipp
