#include "tokenizer/tokenizer.h"

#include "tokenizer/bpe.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/unicode.h"

namespace kipp {
namespace {

constexpr Token kEndOfTokens = kFirstAddedToken + kAddedTokens;

// The added token that `text` begins with, or none; text begins with "<", as all added tokens do.
// None begins another, so there is no longest to choose.
const AddedToken* added_token_at(std::string_view text) {
  constexpr std::string_view kSecond = "|/t";  // their second characters: few other "<" have one
  if (text.size() < 2 || kSecond.find(text[1]) == std::string_view::npos) return nullptr;
  for (const AddedToken& added : added_tokens()) {
    if (text.starts_with(added.text)) return &added;
  }
  return nullptr;
}

}  // namespace

struct Tokenizer::Tables {
  Tables() : vocabulary(qwen_vocabulary()), bpe(vocabulary) {}

  void encode_ordinary(std::string_view text, std::vector<Token>& out) const {
    std::string buffer;
    const std::string_view normal = to_nfc(text, buffer);
    for (PieceScanner pieces(normal); !pieces.done();) bpe.encode(pieces.next(), out);
  }

  const Vocabulary& vocabulary;
  Bpe bpe;
};

Tokenizer::Tokenizer() {
  static const std::shared_ptr<const Tables> tables = std::make_shared<const Tables>();
  tables_ = tables;
}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(const Tokenizer&) = default;
Tokenizer& Tokenizer::operator=(const Tokenizer&) = default;

void Tokenizer::encode(std::string_view text, AddedTokens added, std::vector<Token>& out) const {
  if (added == AddedTokens::as_control) {
    // Added tokens are found in the raw text; only what stands between them is normalized, each
    // part by itself.
    for (std::size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at)) {
      const AddedToken* found = added_token_at(text.substr(at));
      if (found == nullptr) {
        ++at;
        continue;
      }
      tables_->encode_ordinary(text.substr(0, at), out);
      out.push_back(found->id);
      text.remove_prefix(at + found->text.size());
      at = 0;
    }
  }
  tables_->encode_ordinary(text, out);
}

std::vector<Token> Tokenizer::encode(std::string_view text, AddedTokens added) const {
  std::vector<Token> out;
  encode(text, added, out);
  return out;
}

std::string_view Tokenizer::token_bytes(Token id) const {
  if (id < 0 || id >= kEndOfTokens) return {};
  return tables_->vocabulary.token_bytes(id);
}

bool Tokenizer::is_special(Token id) const {
  if (id < kFirstAddedToken || id >= kEndOfTokens) return false;
  return added_tokens()[static_cast<std::size_t>(id - kFirstAddedToken)].special;
}

std::string Tokenizer::decode(std::span<const Token> tokens, bool skip_special) const {
  std::string out;
  for (const Token id : tokens) {
    if (!(skip_special && is_special(id))) out += token_bytes(id);
  }
  return out;
}

}  // namespace kipp
