#include "engine/recall.h"

#include <algorithm>
#include <cmath>

#include "engine/perplexity.h"

namespace kipp {
namespace {

// Greedy decoding never emits an id that names no token.
Token likeliest(std::span<const float> logits) {
  const auto named = logits.first(kNamedTokens);
  return static_cast<Token>(std::ranges::max_element(named) - named.begin());
}

Result<void> check_case(const RecallCase& recall, std::size_t number, const Session& session) {
  if (recall.prompt.empty() || recall.answer.empty()) {
    return fail(ErrorCode::invalid, "case {}: expected a prompt and an answer, found none", number);
  }
  const std::size_t tokens = recall.prompt.size() + recall.answer.size();
  if (tokens > static_cast<std::size_t>(session.capacity())) {
    return fail(ErrorCode::invalid, "case {}: expected at most {} tokens, found {}", number,
                session.capacity(), tokens);
  }
  if (recall.answer.size() > static_cast<std::size_t>(session.max_scored())) {
    return fail(ErrorCode::invalid, "case {}: expected an answer of at most {} tokens, found {}",
                number, session.max_scored(), recall.answer.size());
  }
  return {};
}

Result<void> add_token(std::span<const float> logits, Token token, RecallScore& score) {
  KIPP_TRY_ASSIGN(row, score_row(logits, token, {}));
  score.nll += row.nll;
  score.given = score.given && likeliest(logits) == token;
  return {};
}

}  // namespace

Result<std::vector<RecallScore>> score_recall(Session& session, std::span<const RecallCase> cases,
                                              const RecallHooks& hooks) {
  std::size_t total = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    KIPP_TRY(check_case(cases[i], i + 1, session));
    total += cases[i].prompt.size();
  }
  std::vector<RecallScore> scores;
  std::size_t done = 0;
  for (const RecallCase& recall : cases) {
    const auto report = [&](int read, int) {
      if (hooks.progress) hooks.progress(done + static_cast<std::size_t>(read), total);
    };
    KIPP_TRY(session.truncate(0));
    const auto read = session.sync(recall.prompt, report, hooks.cancel);
    if (!read && read.error().code == ErrorCode::interrupted) return scores;
    KIPP_TRY(read);
    done += recall.prompt.size();
    RecallScore score{.given = true, .nll = 0};
    KIPP_TRY(add_token(session.logits(), recall.answer.front(), score));
    const auto known = std::span(recall.answer).first(recall.answer.size() - 1);
    if (!known.empty()) {
      KIPP_TRY_ASSIGN(rows, session.append_scored(known));
      for (std::size_t i = 0; i < known.size(); ++i) {
        KIPP_TRY(add_token(rows.row(static_cast<int>(i)), recall.answer[i + 1], score));
      }
    }
    scores.push_back(score);
  }
  return scores;
}

}  // namespace kipp
