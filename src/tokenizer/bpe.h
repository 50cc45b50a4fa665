// Byte-level BPE over one piece of pre-tokenized text: of all neighbours that some merge joins, the
// pair of the lowest rank is joined first, the leftmost of equals, until none is left.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/vocabulary.h"

namespace kipp {

class Bpe {
 public:
  // Keeps a reference to the vocabulary.
  explicit Bpe(const Vocabulary& vocabulary);

  // Appends the tokens of `piece`. n log n in its length. Thread-safe.
  void encode(std::string_view piece, std::vector<Token>& out) const;

  // What (left, right) merge into, or kNoToken. A lower token is a lower rank.
  Token merged(Token left, Token right) const;
  static constexpr Token kNoToken = INT32_MAX;

 private:
  void merge_short(std::string_view piece, std::vector<Token>& out) const;
  void merge_long(std::string_view piece, std::vector<Token>& out) const;

  const Vocabulary& vocabulary_;
  std::vector<std::uint64_t>
      slots_;  // open addressing: left, right and product in 18 bits each; or kEmpty
};

}  // namespace kipp
