#include "tokenizer/pretokenize.h"

namespace kipp {

std::string_view PieceScanner::next() {
  const std::size_t begin = at_;
  at_ = piece_end();
  return text_.substr(begin, at_ - begin);
}

PieceScanner::Classified PieceScanner::classify(std::size_t at) const {
  const Utf8Char c = decode_utf8(text_, at);
  return {table_.char_class(c.code_point), c.size};
}

std::size_t PieceScanner::skip(std::size_t at, CharClass wanted) const {
  while (at < text_.size()) {
    const Classified c = classify(at);
    if (c.kind != wanted) break;
    at += c.size;
  }
  return at;
}

std::size_t PieceScanner::piece_end() const {
  if (const std::size_t n = contraction_size(at_); n != 0) return at_ + n;
  const Classified first = classify(at_);
  const std::size_t second_at = at_ + first.size;
  switch (first.kind) {
    case CharClass::letter:
      return skip(second_at, CharClass::letter);
    case CharClass::number:
      return second_at;
    case CharClass::newline:
      return space_end(at_);
    case CharClass::space:
    case CharClass::other:
      break;
  }
  const CharClass second = second_at < text_.size() ? classify(second_at).kind : CharClass::newline;
  if (second == CharClass::letter) return skip(second_at, CharClass::letter);
  if (first.kind == CharClass::other || (second == CharClass::other && text_[at_] == ' ')) {
    return skip(skip(second_at, CharClass::other), CharClass::newline);
  }
  return space_end(at_);
}

// Bytes of 's 't 're 've 'm 'll 'd at `at`, in any case, else 0. Case folding makes the long s
// (U+017F) an s; no other character folds to one of these letters.
std::size_t PieceScanner::contraction_size(std::size_t at) const {
  if (text_[at] != '\'') return 0;
  const auto lower = [&](std::size_t i) {
    return i < text_.size() ? static_cast<char>(text_[i] | 0x20) : '\0';
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
      return text_.substr(at + 1).starts_with("\u017F") ? 3 : 0;
  }
}

// The three alternatives for white space: \s*[\r\n]+ reaches to the last newline of the run;
// without a newline \s+(?!\S) leaves the last space to what follows, unless it is the only one.
std::size_t PieceScanner::space_end(std::size_t begin) const {
  std::size_t end = begin;
  std::size_t last = begin;
  std::size_t after_newline = 0;
  while (end < text_.size()) {
    const Classified c = classify(end);
    if (c.kind != CharClass::space && c.kind != CharClass::newline) break;
    last = end;
    end += c.size;
    if (c.kind == CharClass::newline) after_newline = end;
  }
  if (after_newline != 0) return after_newline;
  return end == text_.size() || last == begin ? end : last;
}

}  // namespace kipp
