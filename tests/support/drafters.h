// Drafters whose guesses a test chooses: right ones with errors in between, and worse.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "engine/speculation.h"
#include "support/history_backend.h"

namespace kipp::test {

// Speculation that tries nearly always: rows cost hardly anything.
inline Speculation eager(DrafterFactory drafter, int max_draft = 8) {
  return {.drafter = std::move(drafter), .max_draft = max_draft, .row_cost = 0};
}

template <class D, class... Args>
DrafterFactory drafters(Args... args) {
  return [=](const DraftTask& task) -> Result<std::unique_ptr<Drafter>> {
    return std::make_unique<D>(task, args...);
  };
}

// Base of drafters that guess one token at a time.
class TokenwiseDrafter : public Drafter {
 public:
  explicit TokenwiseDrafter(const DraftTask& task) : task_(task) {}

  std::optional<DraftProspect> look(std::span<const Token>) override {
    return DraftProspect{.kind = 0, .likely = 0.9};
  }
  Result<void> draft(std::span<const Token> timeline, int n, std::vector<Token>& out) override {
    std::vector<Token> all(timeline.begin(), timeline.end());
    for (int i = 0; i < n; ++i) {
      all.push_back(next(all));
      out.push_back(all.back());
    }
    return {};
  }

 protected:
  virtual Token next(std::span<const Token> all) = 0;

  const DraftTask task_;
};

// What the history backend's model will answer, wrong at one position in `one_wrong_in`.
class HistoryDrafter final : public TokenwiseDrafter {
 public:
  HistoryDrafter(const DraftTask& task, std::uint64_t one_wrong_in)
      : TokenwiseDrafter(task), one_wrong_in_(one_wrong_in) {}

 private:
  Token next(std::span<const Token> all) override {
    const auto n_prompt = static_cast<std::size_t>(task_.n_prompt);
    const auto drawn = all.subspan(n_prompt);
    const Token right = sample(HistoryBackend::logits_after(all), task_.sampling,
                               {all.first(n_prompt), drawn}, drawn.size());
    return draw_bits(9, all.size()) % one_wrong_in_ == 0 ? right + 1 : right;
  }

  const std::uint64_t one_wrong_in_;
};

// An answer known beforehand, wrong at one position in `one_wrong_in`.
class ReplayDrafter final : public TokenwiseDrafter {
 public:
  ReplayDrafter(const DraftTask& task, std::vector<Token> answer, std::uint64_t one_wrong_in)
      : TokenwiseDrafter(task), answer_(std::move(answer)), one_wrong_in_(one_wrong_in) {}

 private:
  Token next(std::span<const Token> all) override {
    const std::size_t i = all.size() - static_cast<std::size_t>(task_.n_prompt);
    if (i >= answer_.size() || draw_bits(7, i) % one_wrong_in_ == 0) return 1;
    return answer_[i];
  }

  const std::vector<Token> answer_;
  const std::uint64_t one_wrong_in_;
};

// Breaks every rule of the interface but crashing: more tokens than asked for, ids that name no
// token, kinds that do not exist, promises, and an error once in a while.
class HostileDrafter final : public Drafter {
 public:
  HostileDrafter(const DraftTask&, std::uint64_t seed) : seed_(seed) {}

  std::optional<DraftProspect> look(std::span<const Token>) override {
    switch (draw_bits(seed_, calls_++) % 5) {
      case 0:
        return std::nullopt;
      case 1:
        return DraftProspect{.kind = -7, .likely = 1};
      case 2:
        return DraftProspect{.kind = 1000, .likely = 50, .cost_once = -3, .cost_token = -1};
      default:
        return DraftProspect{.kind = static_cast<int>(calls_ % kDraftKinds), .likely = 1};
    }
  }
  Result<void> draft(std::span<const Token> timeline, int n, std::vector<Token>& out) override {
    constexpr Token kIds[] = {-1,
                              0,
                              kNamedTokens - 1,
                              kNamedTokens,
                              kVocabRows,
                              std::numeric_limits<Token>::max(),
                              std::numeric_limits<Token>::min()};
    for (int i = 0; i < 2 * n + 3; ++i) {
      const std::uint64_t bits =
          draw_bits(seed_ + 1, timeline.size() + static_cast<std::size_t>(i));
      out.push_back(bits % 3 == 0 ? kIds[bits / 3 % std::size(kIds)]
                                  : static_cast<Token>(1000 + bits % 4000));
    }
    if (draw_bits(seed_ + 2, calls_) % 40 == 0) return fail(ErrorCode::io, "drafter: out of ideas");
    return {};
  }

 private:
  const std::uint64_t seed_;
  std::uint64_t calls_ = 0;
};

}  // namespace kipp::test
