#include "tokenizer/pretokenize.h"

#include "tokenizer/unicode.h"

namespace kipp {
namespace {

struct ClassifiedChar {
  CharClass kind;
  std::size_t size;
};

ClassifiedChar classify(std::string_view text, std::size_t at) {
  const Utf8Char c = decode_utf8(text, at);
  return {char_class(c.code_point), c.size};
}

template <class Predicate>
std::size_t skip(std::string_view text, std::size_t at, Predicate wanted) {
  while (at < text.size()) {
    const ClassifiedChar c = classify(text, at);
    if (!wanted(c.kind)) break;
    at += c.size;
  }
  return at;
}

bool is_letter(CharClass kind) { return kind == CharClass::letter; }
bool is_other(CharClass kind) { return kind == CharClass::other; }
bool is_newline(CharClass kind) { return kind == CharClass::newline; }

// Bytes of 's 't 're 've 'm 'll 'd at `at`, in any case, else 0. Case folding makes the long s
// (U+017F) an s; no other character folds to these letters.
std::size_t contraction_size(std::string_view text, std::size_t at) {
  if (text[at] != '\'' || at + 1 == text.size()) return 0;
  const auto lower = [&](std::size_t i) {
    return i < text.size() ? static_cast<char>(text[i] | 0x20) : '\0';
  };
  const char second = lower(at + 2);
  switch (lower(at + 1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return second == 'e' ? 3 : 0;
    case 'l':
      return second == 'l' ? 3 : 0;
    default:
      return text.substr(at + 1, 2) == "\u017F" ? 3 : 0;
  }
}

// The three alternatives for white space. `begin` is at a space or newline.
std::size_t space_end(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  std::size_t last = begin;       // the last character of the run
  std::size_t after_newline = 0;  // end of the last newline in the run
  while (end < text.size()) {
    const ClassifiedChar c = classify(text, end);
    if (c.kind != CharClass::space && c.kind != CharClass::newline) break;
    last = end;
    end += c.size;
    if (c.kind == CharClass::newline) after_newline = end;
  }
  if (after_newline != 0) return after_newline;
  // Before other text the last space stays behind, to begin the next piece with it.
  return end == text.size() || last == begin ? end : last;
}

}  // namespace

std::size_t piece_end(std::string_view text, std::size_t begin) {
  if (const std::size_t n = contraction_size(text, begin); n != 0) return begin + n;
  const ClassifiedChar first = classify(text, begin);
  const std::size_t second_at = begin + first.size;
  if (first.kind == CharClass::letter) return skip(text, second_at, is_letter);
  if (first.kind == CharClass::number) return second_at;
  if (first.kind != CharClass::newline && second_at < text.size()) {
    const CharClass second = classify(text, second_at).kind;
    if (second == CharClass::letter) return skip(text, second_at, is_letter);
    if (second == CharClass::other && text[begin] == ' ') {
      return skip(text, skip(text, second_at, is_other), is_newline);
    }
  }
  if (first.kind == CharClass::other) {
    return skip(text, skip(text, second_at, is_other), is_newline);
  }
  return space_end(text, begin);
}

}  // namespace kipp
