// Log-probabilities in the API's two shapes, as JSON text that grows token by token: a stream sends
// what a token adds, the whole answer the same text joined.
//
//     chat:         {"content": [{"token", "logprob", "bytes", "top_logprobs": [...]}, ...]}
//     completions:  {"tokens", "token_logprobs", "top_logprobs", "text_offset"}: lists side by side
//
// JSON has no infinity: what is -inf, or no number at all, is -9999.0, as OpenAI writes it.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "engine/request.h"
#include "tokenizer/tokenizer.h"

namespace kipp {

class LogprobsJson {
 public:
  // Of a token drawn in a chat. Token texts are UTF-8 with U+FFFD for what is none; `bytes` are the
  // token's own.
  void add_chat(const Tokenizer& tokenizer, const Logprobs& logprobs);
  // Of a token in a completion, whose text begins `text_offset` characters into the choice's.
  // Tokens that are not UTF-8 are spelled "bytes:\xf0\x9f", as OpenAI did, for as keys they must
  // differ. The best ones always include the token itself.
  void add_text(const Tokenizer& tokenizer, const Logprobs& logprobs, std::size_t text_offset);
  // The same of a token that nothing is known about: the first of a prompt.
  void add_unknown(const Tokenizer& tokenizer, Token token, std::size_t text_offset);

  bool empty() const { return columns_[0].empty(); }
  void append(const LogprobsJson& later);

  void write_chat(std::string& out) const;
  void write_text(std::string& out) const;

 private:
  // The entries of each list, with commas between them. Chat uses the first alone.
  std::array<std::string, 4> columns_;
};

}  // namespace kipp
