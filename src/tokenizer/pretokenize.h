// Qwen's split pattern as a hand-written scanner: cuts normalized text into the pieces that merges
// never cross.
//
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|
//   ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// as Oniguruma, the regular expression engine of `tokenizers`, understands it. The pieces join to
// the text.
#pragma once

#include <cstddef>
#include <string_view>

#include "tokenizer/unicode.h"

namespace kipp {

class PieceScanner {
 public:
  // Keeps a view of the text.
  explicit PieceScanner(std::string_view text) : text_(text), table_(CharTable::instance()) {}

  bool done() const { return at_ == text_.size(); }
  // The next piece, never empty; not to be called when done. All pieces together take linear time.
  std::string_view next();

 private:
  struct Classified {
    CharClass kind;
    std::size_t size;
  };
  Classified classify(std::size_t at) const;
  std::size_t skip(std::size_t at, CharClass wanted) const;
  std::size_t piece_end() const;
  std::size_t contraction_size(std::size_t at) const;
  std::size_t space_end(std::size_t begin) const;

  std::string_view text_;
  std::size_t at_ = 0;
  const CharTable& table_;
};

}  // namespace kipp
