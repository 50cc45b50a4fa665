#include "engine/perplexity.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/statistics.h"
#include "base/thread_pool.h"

namespace kipp {
namespace {

struct Softmax {
  double log_sum = 0;  // log of the sum of exp(logit): log p = logit - log_sum
  std::size_t top = 0;
};

Softmax softmax_of(std::span<const float> logits) {
  const auto top = std::ranges::max_element(logits);
  const double highest = *top;
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - highest);
  return {highest + std::log(sum), static_cast<std::size_t>(top - logits.begin())};
}

// A row whose maximum a NaN hides has a sum that is not finite either.
Result<Softmax> checked_softmax(std::span<const float> logits, const char* what) {
  const Softmax softmax = softmax_of(logits);
  if (!std::isfinite(softmax.log_sum)) {
    return fail(ErrorCode::refused, "{}: expected finite numbers, found others", what);
  }
  return softmax;
}

// Scores of the rows of one step; they are independent, so threads share them.
class RowScorer {
 public:
  RowScorer(ThreadPool& pool, const SavedLogits* against) : pool_(pool), against_(against) {}

  // `beside`: of the same tokens, without data if there is none. Rows before these are in `rows`.
  Result<void> add(const LogitsView& logits, const LogitsView& beside,
                   std::span<const Token> targets, int context, std::vector<RowScore>& rows) {
    const std::size_t first_row = rows.size();
    scores_.assign(targets.size(), RowScore{});
    pool_.parallel_for(static_cast<int>(targets.size()), [&](int begin, int end, int) {
      for (int i = begin; i < end; ++i) {
        const auto at = static_cast<std::size_t>(i);
        std::span<const float> other;
        if (against_ != nullptr) other = against_->row(first_row + at);
        if (beside.data != nullptr) other = beside.row(i);
        scores_[at] = score_row(logits.row(i), targets[at], other);
        if (scores_[at]) scores_[at]->context = context + i;
      }
    });
    for (const Result<RowScore>& score : scores_) {
      if (!score) return tl::unexpected(score.error());
      rows.push_back(*score);
    }
    return {};
  }

 private:
  ThreadPool& pool_;
  const SavedLogits* against_;
  std::vector<Result<RowScore>> scores_;
};

bool requested(const std::atomic<bool>* cancel) {
  return cancel != nullptr && cancel->load(std::memory_order_relaxed);
}

// The first position count of the bucket that holds `context`: 0, 32, 64, 128, ...
int bucket_start(int context) {
  int start = 32;
  if (context < start) return 0;
  while (context / 2 >= start) start *= 2;
  return start;
}

}  // namespace

std::vector<Window> plan_windows(int n_tokens, int context, int stride) {
  assert(context >= 2 && stride >= 1 && stride <= context);
  std::vector<Window> windows;
  int scored_to = 0;
  for (int begin = 0; begin < n_tokens - 1;) {
    const int end = n_tokens - begin > context ? begin + context : n_tokens;
    const Window window{begin, std::max(scored_to, begin + 1), end};
    if (window.first_scored < end) windows.push_back(window);
    if (end == n_tokens) break;
    scored_to = end;
    begin += stride;
  }
  return windows;
}

std::size_t scored_tokens(std::span<const Window> windows) {
  std::size_t sum = 0;
  for (const Window& w : windows) sum += static_cast<std::size_t>(w.end - w.first_scored);
  return sum;
}

Result<RowScore> score_row(std::span<const float> logits, Token target,
                           std::span<const float> other_logits) {
  KIPP_TRY_ASSIGN(own, checked_softmax(logits, "logits"));
  RowScore score;
  score.nll = own.log_sum - logits[static_cast<std::size_t>(target)];
  if (other_logits.empty()) return score;
  KIPP_TRY_ASSIGN(other, checked_softmax(other_logits, "saved logits"));
  score.other_nll = other.log_sum - other_logits[static_cast<std::size_t>(target)];
  double kl = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double log_p = other_logits[i] - other.log_sum;
    const double p = std::exp(log_p);
    if (p > 0) kl += p * (log_p - (logits[i] - own.log_sum));
  }
  score.kl = std::max(kl, 0.0);  // rounding can leave -1e-17
  score.same_top = own.top == other.top;
  return score;
}

Result<std::vector<RowScore>> score_windows(Model& model, Session& session,
                                            std::span<const Token> tokens,
                                            std::span<const Window> windows, bool pseudo_decode,
                                            const PerplexityHooks& hooks) {
  assert(hooks.against == nullptr || hooks.beside == nullptr);
  const BackendInfo& info = model.backend().info();
  int most = pseudo_decode ? 1 : std::min(info.max_step_tokens, info.max_logit_rows);
  if (hooks.beside != nullptr) most = std::min(most, hooks.beside->max_scored());
  const std::size_t total = scored_tokens(windows);
  KIPP_TRY_ASSIGN(pool, ThreadPool::create(info.threads));
  RowScorer scorer(*pool, hooks.against);
  std::vector<RowScore> rows;
  rows.reserve(total);
  const auto part = [&](int begin, int end) {
    return tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  };
  std::vector<Session*> sessions = {&session};
  if (hooks.beside != nullptr) sessions.push_back(hooks.beside);
  for (const Window& window : windows) {
    // The token at `at` predicts the one after it.
    int at = window.first_scored - 1;
    for (Session* each : sessions) {
      KIPP_TRY(each->truncate(0));
      if (at == window.begin) continue;
      const auto read = each->sync(part(window.begin, at), {}, hooks.cancel);
      if (!read && read.error().code == ErrorCode::interrupted) return rows;
      KIPP_TRY(read);
    }
    while (at < window.end - 1) {
      if (requested(hooks.cancel)) return rows;
      const int n = std::min(most, window.end - 1 - at);
      KIPP_TRY_ASSIGN(logits, session.append_scored(part(at, at + n)));
      if (hooks.save != nullptr) {
        for (int i = 0; i < n; ++i) KIPP_TRY(hooks.save->write(logits.row(i)));
      }
      LogitsView beside;
      if (hooks.beside != nullptr) {
        KIPP_TRY_ASSIGN(others, hooks.beside->append_scored(part(at, at + n)));
        beside = others;
      }
      KIPP_TRY(scorer.add(logits, beside, part(at + 1, at + 1 + n), at + 1 - window.begin, rows));
      at += n;
      if (hooks.progress) hooks.progress(rows.size(), total);
    }
  }
  return rows;
}

double PerplexitySummary::perplexity() const { return std::exp(nll); }

PerplexitySummary summarize(std::span<const RowScore> rows, bool compared) {
  RunningMean nll;
  RunningMean kl;
  RunningMean other_nll;
  std::size_t same = 0;
  std::vector<double> sorted;
  for (const RowScore& row : rows) {
    nll.add(row.nll);
    kl.add(row.kl);
    other_nll.add(row.other_nll);
    same += row.same_top ? 1 : 0;
    if (compared) sorted.push_back(row.kl);
  }
  PerplexitySummary summary{.rows = rows.size(),
                            .nll = nll.mean(),
                            .nll_error = nll.standard_error(),
                            .divergence = std::nullopt};
  if (!compared || rows.empty()) return summary;
  std::ranges::sort(sorted);
  summary.divergence =
      Divergence{.mean = kl.mean(),
                 .standard_error = kl.standard_error(),
                 .p999 = percentile(sorted, 0.999),
                 .max = sorted.back(),
                 .same_top = static_cast<double>(same) / static_cast<double>(rows.size()),
                 .nll = other_nll.mean()};
  return summary;
}

std::vector<PositionBucket> summarize_by_position(std::span<const RowScore> rows, bool compared) {
  std::vector<RowScore> ordered(rows.begin(), rows.end());
  std::ranges::stable_sort(ordered, {}, &RowScore::context);
  std::vector<PositionBucket> buckets;
  for (auto begin = ordered.begin(); begin != ordered.end();) {
    const int from = bucket_start(begin->context);
    const int to = from == 0 ? 32 : from * 2;
    const auto end = std::ranges::lower_bound(begin, ordered.end(), to, {}, &RowScore::context);
    buckets.push_back({from, to, summarize(std::span(begin, end), compared)});
    begin = end;
  }
  return buckets;
}

}  // namespace kipp
