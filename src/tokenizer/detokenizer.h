// Streaming decode: tokens in, text out, never half a character. What may still become a character
// waits.
#pragma once

#include <string>

#include "tokenizer/tokenizer.h"

namespace kipp {

class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special);

  // The text this token completes; empty while a character is incomplete. Bytes that can no longer
  // become UTF-8 come out as U+FFFD, one per maximal invalid prefix (as Unicode recommends, and as
  // decoding everything at once gives).
  std::string push(Token token);
  // What still waits, replaced by U+FFFD. The detokenizer is empty afterwards.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  std::string pending_;  // at most 3 bytes: the beginning of a character
};

// Replaces what is not UTF-8 by U+FFFD, by the same rule.
std::string to_valid_utf8(std::string_view bytes);

}  // namespace kipp
