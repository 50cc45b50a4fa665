// Arbitrary bytes to tokens and back. Whatever the bytes: decoding gives them back in NFC, which is
// a fixed point; user text holds no control token; tokens encode to themselves again where the text
// is already normal; and the streaming detokenizer says what decoding everything at once says.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/detokenizer.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace {

using namespace kipp;

void check(bool holds) {
  if (!holds) std::abort();
}

const Tokenizer& tokenizer() {
  static const Tokenizer instance;
  return instance;
}

std::string nfc(std::string_view text) {
  std::string buffer;
  return std::string(to_nfc(text, buffer));
}

void check_pieces(std::string_view normal) {
  const char* expected = normal.data();
  for (PieceScanner pieces(normal); !pieces.done();) {
    const std::string_view piece = pieces.next();
    check(!piece.empty() && piece.data() == expected);
    expected += piece.size();
  }
  check(expected == normal.data() + normal.size());
}

void check_stream(const std::vector<Token>& ids, bool skip_special) {
  Detokenizer detokenizer(tokenizer(), skip_special);
  std::string joined;
  for (const Token id : ids) {
    const std::string part = detokenizer.push(id);
    check(to_valid_utf8(part) == part);
    joined += part;
  }
  joined += detokenizer.finish();
  check(joined == to_valid_utf8(tokenizer().decode(ids, skip_special)));
}

void check_text(std::string_view text) {
  const std::string normal = nfc(text);
  check(nfc(normal) == normal);
  check_pieces(normal);

  const std::vector<Token> ids = tokenizer().encode(text, AddedTokens::as_text);
  for (const Token id : ids) check(id >= 0 && id < kFirstAddedToken);
  check(tokenizer().decode(ids, false) == normal);
  check(tokenizer().encode(normal, AddedTokens::as_text) == ids);
  check_stream(ids, false);
}

// Added tokens cut the raw text; what stands between them is encoded by itself.
void check_control(std::string_view text) {
  const std::vector<Token> ids = tokenizer().encode(text, AddedTokens::as_control);
  std::string between;
  std::vector<Token> expected;
  std::size_t at = 0;
  for (const Token id : ids) {
    if (id < kFirstAddedToken) continue;
    const std::string_view added = tokenizer().token_bytes(id);
    const std::size_t found = text.find(added, at);
    check(found != std::string_view::npos);
    tokenizer().encode(text.substr(at, found - at), AddedTokens::as_text, expected);
    expected.push_back(id);
    at = found + added.size();
  }
  tokenizer().encode(text.substr(at), AddedTokens::as_text, expected);
  check(ids == expected);
  check_stream(ids, false);
  check_stream(ids, true);
}

// The bytes as ids, three at a time, beyond the vocabulary too.
void check_ids(std::string_view bytes) {
  std::vector<Token> ids;
  for (std::size_t i = 0; i + 3 <= bytes.size(); i += 3) {
    const auto byte = [&](std::size_t k) {
      return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i + k]));
    };
    ids.push_back(static_cast<Token>((byte(0) | byte(1) << 8 | byte(2) << 16) % 151'940) - 2);
  }
  check_stream(ids, false);
  check_stream(ids, true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_text(bytes);
  check_control(bytes);
  check_ids(bytes);
  return 0;
}
