// Eval items as flat arrays, made once per step and read by every op of every layer. This is where
// a step is validated: what passes here cannot fail later, which makes a backend's eval all or
// nothing.
//
// Refused: an empty step, an empty item, too many tokens or rows of logits, ids that name no token,
// positions past the context, tables that do not cover the positions, unknown blocks, one sequence
// twice, and a block that one item writes while another item (or the same one, elsewhere) holds it.
#pragma once

#include <span>
#include <vector>

#include "base/types.h"
#include "model/eval_item.h"

namespace kipp {

struct StepLimits {
  int max_step_tokens = 0;
  int max_logit_rows = 0;
  int kv_blocks = 0;
  int context_length = 0;
};

struct StepPlan {
  std::vector<Token> tokens;     // [rows]
  std::vector<int> positions;    // [rows]
  std::vector<int> item_of_row;  // [rows]
  std::vector<int> logit_rows;   // rows whose logits are asked for, ascending
  // Block tables, one after the other: item i's are blocks[block_begin[i] .. block_begin[i + 1]),
  // cut to what covers its last position.
  std::vector<BlockId> blocks;
  std::vector<int> block_begin;  // [items + 1]

  int rows() const { return static_cast<int>(tokens.size()); }
  std::span<const BlockId> table(int item) const {
    const auto begin = static_cast<std::size_t>(block_begin[static_cast<std::size_t>(item)]);
    const auto end = static_cast<std::size_t>(block_begin[static_cast<std::size_t>(item) + 1]);
    return std::span(blocks).subspan(begin, end - begin);
  }
};

// Every id must name a token. `what` begins the error: "tokens", "prompt".
Result<void> validate_tokens(std::span<const Token> tokens, const char* what);

class StepPlanner {
 public:
  explicit StepPlanner(const StepLimits& limits);

  // The plan of these items, or why they are refused; valid until the next call.
  Result<const StepPlan*> plan(std::span<const EvalItem> items);

 private:
  Result<void> validate(std::span<const EvalItem> items);
  Result<void> validate_sequences(std::span<const EvalItem> items);
  Result<void> validate_blocks(std::span<const EvalItem> items);

  StepLimits limits_;
  StepPlan plan_;
  std::vector<SeqId> sequences_;  // scratch of validate_sequences
  std::vector<int> writer_of_;    // [kv_blocks] the item that writes a block in this step, else -1
  std::vector<BlockId> written_;  // the blocks whose writer_of_ must be reset
};

}  // namespace kipp
