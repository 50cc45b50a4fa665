#include "tokenizer/detokenizer.h"

#include <utility>

namespace kipp {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

unsigned char byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

struct Prefix {
  std::size_t size;  // bytes of the longest beginning of a well-formed sequence; 0 if the first
                     // byte begins none
  bool complete;
};

// How far text[at..] agrees with one well-formed UTF-8 sequence.
Prefix well_formed_prefix(std::string_view text, std::size_t at) {
  const unsigned char lead = byte_at(text, at);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {0, false};
  const std::size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (std::size_t i = 1; i < size; ++i) {
    if (at + i == text.size()) return {i, false};
    // The second byte excludes overlong forms, surrogates and what lies above U+10FFFF.
    const unsigned low = i > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = i > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    const unsigned byte = byte_at(text, at + i);
    if (byte < low || byte > high) return {i, false};
  }
  return {size, true};
}

// Appends text with U+FFFD for each maximal invalid prefix. Returns where an incomplete character
// at the very end begins; text.size() if there is none.
std::size_t append_valid(std::string_view text, std::string& out) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Prefix prefix = well_formed_prefix(text, at);
    if (prefix.complete) {
      out.append(text, at, prefix.size);
      at += prefix.size;
      continue;
    }
    if (prefix.size != 0 && at + prefix.size == text.size()) break;
    out += kReplacement;
    at += prefix.size == 0 ? 1 : prefix.size;
  }
  return at;
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer), skip_special_(skip_special) {}

std::string Detokenizer::push(Token token) {
  if (skip_special_ && tokenizer_.is_special(token)) return {};
  pending_ += tokenizer_.token_bytes(token);
  std::string out;
  pending_.erase(0, append_valid(pending_, out));
  return out;
}

std::string Detokenizer::finish() { return to_valid_utf8(std::exchange(pending_, {})); }

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  if (append_valid(bytes, out) < bytes.size()) out += kReplacement;
  return out;
}

}  // namespace kipp
