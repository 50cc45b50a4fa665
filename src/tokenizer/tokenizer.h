// Text to tokens and back: byte-level BPE with Qwen's pre-tokenizer, NFC and added tokens. Equal,
// id for id, to Hugging Face `tokenizers` on the same tokenizer.json.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "tokenizer/vocabulary.h"

namespace kipp {

// Whether text such as "<|im_end|>" becomes the control token or stays ordinary text. Text that
// comes from users is always `as_text`; only what the engine itself wrote is `as_control`.
enum class AddedTokens : bool { as_text, as_control };

class Tokenizer {
 public:
  // Over the compiled-in vocabulary. Cheap to copy: the tables are shared and immutable.
  Tokenizer();
  ~Tokenizer();
  Tokenizer(const Tokenizer&);
  Tokenizer& operator=(const Tokenizer&);

  // Appends the tokens of `text`. Bytes that are not UTF-8 are kept: every byte has a token. Linear
  // time. Thread-safe.
  void encode(std::string_view text, AddedTokens added, std::vector<Token>& out) const;
  std::vector<Token> encode(std::string_view text, AddedTokens added) const;

  // The bytes of one token; empty for ids that name none. Added tokens give their text.
  std::string_view token_bytes(Token id) const;
  bool is_special(Token id) const;  // <|im_end|> and its like

  // Concatenated bytes, not necessarily UTF-8 at the ends. skip_special leaves special tokens out.
  std::string decode(std::span<const Token> tokens, bool skip_special) const;

 private:
  struct Tables;
  std::shared_ptr<const Tables> tables_;
};

}  // namespace kipp
