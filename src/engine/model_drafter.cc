#include "engine/model_drafter.h"

#include <algorithm>
#include <utility>

namespace kipp {
namespace {

// Tokens that one call evaluates to catch up with the timeline. A long prompt so is read over
// several steps, and streams beside it keep their pace.
constexpr int kCatchUp = 128;

}  // namespace

Result<DrafterFactory> model_drafters(const Model& target, std::shared_ptr<Model> draft,
                                      double row_cost) {
  const auto draft_bytes = static_cast<double>(draft->artifact().file_bytes());
  const auto target_bytes = static_cast<double>(target.artifact().file_bytes());
  if (draft_bytes >= target_bytes) {
    return fail(ErrorCode::invalid,
                "draft model: expected fewer bytes than {} has ({}), found {} with {}",
                target.checkpoint().id, target.artifact().file_bytes(), draft->checkpoint().id,
                draft->artifact().file_bytes());
  }
  return [draft = std::move(draft), cost = draft_bytes / target_bytes,
          row_cost](const DraftTask& task) -> Result<std::unique_ptr<Drafter>> {
    const int capacity = std::min(task.n_positions, draft->artifact().config().context_length);
    KIPP_TRY_ASSIGN(session, Session::create(draft, capacity, task.salt));
    return std::make_unique<ModelDrafter>(std::move(session), task, cost, row_cost);
  };
}

// The last token of a timeline is evaluated in any case, for its logits.
int ModelDrafter::in_common(std::span<const Token> timeline) const {
  const auto same = std::ranges::mismatch(session_.tokens(), timeline).in1;
  return std::min(static_cast<int>(same - session_.tokens().begin()),
                  static_cast<int>(timeline.size()) - 1);
}

std::optional<DraftProspect> ModelDrafter::look(std::span<const Token> timeline) {
  const auto size = static_cast<int>(timeline.size());
  if (size >= session_.capacity()) return std::nullopt;
  // The prompt has to be read once, whatever comes of it. The token that the step before added is
  // the first row of the next step.
  const int behind = std::min(size - std::max(in_common(timeline), task_.n_prompt), kCatchUp);
  return DraftProspect{.kind = 0,
                       .likely = 0.7,
                       .cost_once = cost_ * row_cost_ * std::max(behind - 1, 0),
                       .cost_token = cost_};
}

Result<void> ModelDrafter::draft(std::span<const Token> timeline, int n, std::vector<Token>& out) {
  const auto size = static_cast<int>(timeline.size());
  const int synced = std::min(size, in_common(timeline) + kCatchUp);
  KIPP_TRY(session_.sync(timeline.first(static_cast<std::size_t>(synced))));
  if (synced < size) return {};
  const auto n_prompt = static_cast<std::size_t>(task_.n_prompt);
  const auto prompt = timeline.first(n_prompt);
  guess_.assign(timeline.begin() + task_.n_prompt, timeline.end());
  n = std::min(n, session_.capacity() - size + 1);  // the last one is not evaluated
  for (int i = 0; i < n; ++i) {
    if (i > 0) KIPP_TRY(session_.append(guess_.back()));
    guess_.push_back(sample(session_.logits(), task_.sampling, {prompt, guess_}, guess_.size()));
    out.push_back(guess_.back());
  }
  return {};
}

}  // namespace kipp
