// A backend without a model. What it keeps in place of keys and values are the tokens themselves,
// in the blocks it is told to use, and a row of logits is a hash of everything its position can
// see. So a wrong block, a wrong slot, stale or shared memory changes what is drawn, and a step
// costs microseconds. What must be drawn
// can be computed from the tokens alone: logits_after().
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/rng.h"
#include "model/step_plan.h"

namespace kipp::test {

struct HistoryLimits {
  int blocks = 64;
  int max_step_tokens = 64;
  int max_logit_rows = 32;
  int context_length = 4096;
};

class HistoryBackend final : public Backend {
 public:
  // Ids that name ordinary text and are drawn by no accident elsewhere.
  static constexpr Token kFirstDrawn = 1000;
  static constexpr std::uint64_t kDrawn = 4000;

  explicit HistoryBackend(const HistoryLimits& limits = {})
      : info_{.name = "history",
              .max_step_tokens = limits.max_step_tokens,
              .max_logit_rows = limits.max_logit_rows},
        planner_({.max_step_tokens = limits.max_step_tokens,
                  .max_logit_rows = limits.max_logit_rows,
                  .kv_blocks = limits.blocks,
                  .context_length = limits.context_length}),
        cells_(static_cast<std::size_t>(limits.blocks) * kBlockPositions, -1),
        logits_(static_cast<std::size_t>(limits.max_logit_rows) * kVocabRows, 0.0f) {}

  // Called before each step is evaluated; an error fails the step.
  std::function<Result<void>(std::span<const EvalItem>)> on_eval;

  // The logits after `tokens`, [kVocabRows].
  static std::vector<float> logits_after(std::span<const Token> tokens) {
    std::uint64_t hash = 0;
    for (const Token token : tokens) hash = extend(hash, token);
    std::vector<float> row(kVocabRows, 0.0f);
    for (const auto& [token, logit] : choices(hash)) row[static_cast<std::size_t>(token)] = logit;
    return row;
  }

  const BackendInfo& info() const override { return info_; }
  Result<void> load(const Artifact&, const KvConfig&, const LoadOptions&) override { return {}; }

  Result<LogitsView> eval(std::span<const EvalItem> items) override {
    if (on_eval) KIPP_TRY(on_eval(items));
    KIPP_TRY(planner_.plan(items));
    for (const EvalItem& item : items) {
      for (std::size_t i = 0; i < item.tokens.size(); ++i) {
        cell(item, static_cast<std::size_t>(item.pos) + i) = item.tokens[i];
      }
    }
    for (const std::size_t at : set_) logits_[at] = 0;
    set_.clear();
    int rows = 0;
    for (const EvalItem& item : items) {
      const auto begin = static_cast<std::size_t>(item.pos);
      std::uint64_t hash = 0;
      for (std::size_t pos = 0; pos < begin + item.tokens.size(); ++pos) {
        hash = extend(hash, cell(item, pos));
        const bool last = pos + 1 == begin + item.tokens.size();
        if (item.want == LogitRows::all ? pos >= begin : item.want == LogitRows::last && last) {
          set_row(rows++, hash);
        }
      }
    }
    return LogitsView{.data = logits_.data(), .rows = rows, .vocab = kVocabRows};
  }

  void copy_blocks(std::span<const BlockCopy> copies) override {
    for (const BlockCopy& copy : copies) {
      const auto block = [this](BlockId id) {
        return std::span(cells_).subspan(static_cast<std::size_t>(id) * kBlockPositions,
                                         kBlockPositions);
      };
      std::ranges::copy(block(copy.from), block(copy.to).begin());
    }
  }
  std::size_t block_bytes() const override { return kBlockPositions * sizeof(Token); }
  Result<void> read_block(BlockId, std::span<std::byte>) override { return unsupported(); }
  Result<void> write_block(BlockId, std::span<const std::byte>) override { return unsupported(); }

 private:
  static Result<void> unsupported() {
    return fail(ErrorCode::invalid, "history backend: blocks are not read or written");
  }
  static std::uint64_t extend(std::uint64_t hash, Token token) {
    return mix64(hash * 31 + static_cast<std::uint64_t>(token) + 1);
  }
  // The tokens that stand out, the best last, so that it wins where two are the same.
  static std::array<std::pair<Token, float>, 3> choices(std::uint64_t hash) {
    std::array<std::pair<Token, float>, 3> out;
    float logit = 15;
    for (std::size_t i = 0; i < out.size(); ++i, logit += 0.5f) {
      out[i] = {kFirstDrawn + static_cast<Token>(draw_bits(hash, i) % kDrawn), logit};
    }
    return out;
  }
  Token& cell(const EvalItem& item, std::size_t pos) {
    const auto block = static_cast<std::size_t>(item.blocks[pos / kBlockPositions]);
    return cells_[block * kBlockPositions + pos % kBlockPositions];
  }
  void set_row(int row, std::uint64_t hash) {
    for (const auto& [token, logit] : choices(hash)) {
      set_.push_back(static_cast<std::size_t>(row) * kVocabRows + static_cast<std::size_t>(token));
      logits_[set_.back()] = logit;
    }
  }

  const BackendInfo info_;
  StepPlanner planner_;
  std::vector<Token> cells_;  // [blocks * kBlockPositions]
  std::vector<float> logits_;
  std::vector<std::size_t> set_;  // what is not zero in logits_
};

}  // namespace kipp::test
