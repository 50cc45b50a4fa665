#include "model/step_plan.h"

#include <algorithm>

#include "model/config.h"

namespace kipp {

namespace {

int end_of(const EvalItem& item) { return item.pos + static_cast<int>(item.tokens.size()); }

bool is_named(Token token) { return token >= 0 && token < kNamedTokens; }

}  // namespace

Result<void> validate_tokens(std::span<const Token> tokens, const char* what) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!is_named(tokens[i])) {
      return fail(ErrorCode::invalid, "{}[{}]: expected a token id from 0 to {}, found {}", what, i,
                  kNamedTokens - 1, tokens[i]);
    }
  }
  return {};
}

StepPlanner::StepPlanner(const StepLimits& limits)
    : limits_(limits), writer_of_(static_cast<std::size_t>(limits.kv_blocks), -1) {
  const auto rows = static_cast<std::size_t>(limits.max_step_tokens);
  plan_.tokens.reserve(rows);
  plan_.positions.reserve(rows);
  plan_.item_of_row.reserve(rows);
  plan_.logit_rows.reserve(rows);
  // Sequences share blocks, so their tables together may be longer than the pool.
  plan_.blocks.reserve(rows * static_cast<std::size_t>(
                                  std::min(limits.kv_blocks, blocks_for(limits.context_length))));
  plan_.block_begin.reserve(rows + 1);
  sequences_.reserve(rows);
  written_.reserve(rows);
}

Result<const StepPlan*> StepPlanner::plan(std::span<const EvalItem> items) {
  KIPP_TRY(validate(items));
  KIPP_TRY(validate_sequences(items));
  KIPP_TRY(validate_blocks(items));

  plan_.tokens.clear();
  plan_.positions.clear();
  plan_.item_of_row.clear();
  plan_.logit_rows.clear();
  plan_.blocks.clear();
  plan_.block_begin.assign(1, 0);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const EvalItem& item = items[i];
    for (std::size_t t = 0; t < item.tokens.size(); ++t) {
      const bool last = t + 1 == item.tokens.size();
      if (item.want == LogitRows::all || (item.want == LogitRows::last && last)) {
        plan_.logit_rows.push_back(plan_.rows());
      }
      plan_.tokens.push_back(item.tokens[t]);
      plan_.positions.push_back(item.pos + static_cast<int>(t));
      plan_.item_of_row.push_back(static_cast<int>(i));
    }
    const auto covering = item.blocks.first(static_cast<std::size_t>(blocks_for(end_of(item))));
    plan_.blocks.insert(plan_.blocks.end(), covering.begin(), covering.end());
    plan_.block_begin.push_back(static_cast<int>(plan_.blocks.size()));
  }
  return &plan_;
}

Result<void> StepPlanner::validate(std::span<const EvalItem> items) {
  if (items.empty())
    return fail(ErrorCode::invalid, "items: a step needs at least one, found none");
  std::size_t rows = 0;
  std::size_t logit_rows = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const EvalItem& item = items[i];
    if (item.tokens.empty()) {
      return fail(ErrorCode::invalid, "items[{}].tokens: expected at least one token, found none",
                  i);
    }
    rows += item.tokens.size();
    if (rows > static_cast<std::size_t>(limits_.max_step_tokens)) {
      return fail(ErrorCode::invalid, "items: expected at most {} tokens in one step, found {}",
                  limits_.max_step_tokens, rows);
    }
    logit_rows += item.want == LogitRows::all    ? item.tokens.size()
                  : item.want == LogitRows::last ? 1u
                                                 : 0u;
    if (logit_rows > static_cast<std::size_t>(limits_.max_logit_rows)) {
      return fail(ErrorCode::invalid,
                  "items: expected at most {} rows of logits in one step, found {}",
                  limits_.max_logit_rows, logit_rows);
    }
    if (!std::ranges::all_of(item.tokens, is_named)) {
      return validate_tokens(item.tokens, fmt::format("items[{}].tokens", i).c_str());
    }
    if (item.pos < 0 || item.pos > limits_.context_length - static_cast<int>(item.tokens.size())) {
      return fail(
          ErrorCode::invalid,
          "items[{}].pos: expected positions within the context of {}, found {} tokens at {}", i,
          limits_.context_length, item.tokens.size(), item.pos);
    }
    const int needed = blocks_for(end_of(item));
    if (item.blocks.size() < static_cast<std::size_t>(needed)) {
      return fail(ErrorCode::invalid,
                  "items[{}].blocks: expected {} blocks to cover {} positions, found {}", i, needed,
                  end_of(item), item.blocks.size());
    }
    for (int b = 0; b < needed; ++b) {
      const BlockId id = item.blocks[static_cast<std::size_t>(b)];
      if (id < 0 || id >= limits_.kv_blocks) {
        return fail(ErrorCode::invalid,
                    "items[{}].blocks[{}]: expected a block from 0 to {}, found {}", i, b,
                    limits_.kv_blocks - 1, id);
      }
    }
  }
  return {};
}

Result<void> StepPlanner::validate_sequences(std::span<const EvalItem> items) {
  sequences_.clear();
  for (const EvalItem& item : items) sequences_.push_back(item.seq);
  std::sort(sequences_.begin(), sequences_.end());
  const auto twice = std::adjacent_find(sequences_.begin(), sequences_.end());
  if (twice != sequences_.end()) {
    return fail(ErrorCode::invalid, "items: expected distinct sequences, found {} twice", *twice);
  }
  return {};
}

Result<void> StepPlanner::validate_blocks(std::span<const EvalItem> items) {
  for (const BlockId id : written_) writer_of_[static_cast<std::size_t>(id)] = -1;
  written_.clear();
  for (std::size_t i = 0; i < items.size(); ++i) {
    const EvalItem& item = items[i];
    for (int b = item.pos / kBlockPositions; b < blocks_for(end_of(item)); ++b) {
      const BlockId id = item.blocks[static_cast<std::size_t>(b)];
      int& writer = writer_of_[static_cast<std::size_t>(id)];
      if (writer != -1) {
        return fail(ErrorCode::invalid,
                    "items[{}].blocks[{}]: block {} is also written by items[{}] in this step", i,
                    b, id, writer);
      }
      writer = static_cast<int>(i);
      written_.push_back(id);
    }
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    const EvalItem& item = items[i];
    for (int b = 0; b < item.pos / kBlockPositions; ++b) {
      const BlockId id = item.blocks[static_cast<std::size_t>(b)];
      const int writer = writer_of_[static_cast<std::size_t>(id)];
      if (writer != -1) {
        return fail(
            ErrorCode::invalid,
            "items[{}].blocks[{}]: block {} is read here while items[{}] writes it in this step", i,
            b, id, writer);
      }
    }
  }
  return {};
}

}  // namespace kipp
