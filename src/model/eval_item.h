// What a step computes: for each sequence a run of tokens, where they go and which logits are
// wanted. Prefill, decode, chunk, speculation and scoring are the same item with other numbers, so
// they mix in one step.
#pragma once

#include <cstdint>
#include <span>

#include "base/types.h"

namespace kipp {

enum class LogitRows : std::uint8_t { none, last, all };

// One sequence's share of a step.
struct EvalItem {
  SeqId seq = 0;
  int pos = 0;                      // tokens already cached; tokens[0] is written here
  std::span<const Token> tokens;    // 1 when decoding, a chunk when prefilling; never empty
  std::span<const BlockId> blocks;  // physical blocks covering positions [0, pos + tokens.size())
  LogitRows want = LogitRows::last;
};

}  // namespace kipp
