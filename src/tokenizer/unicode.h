// What the tokenizer asks of Unicode: UTF-8 decoding, the classes of Qwen's split pattern, and NFC.
// All three answer as Hugging Face `tokenizers` does, whose tables are of other Unicode versions
// than utf8proc's; unicode.cc lists the differences.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kipp {

// Every character is in exactly one class. `newline` is CR and LF only; `space` is the rest of \s.
enum class CharClass : std::uint8_t { other, letter, number, space, newline };

// Stands for a byte that begins no well-formed UTF-8 sequence. Such a byte is a character by
// itself, of class `other`, and normalization leaves it alone; so arbitrary bytes survive encoding
// and decoding.
inline constexpr char32_t kInvalidByte = 0xFFFFFFFF;

struct Utf8Char {
  char32_t code_point;  // or kInvalidByte
  std::size_t size;     // bytes taken, at least 1
};

// The character at text[at], at < text.size(). Surrogates, overlong forms and what lies above
// U+10FFFF are not well-formed.
inline Utf8Char decode_utf8(std::string_view text, std::size_t at) {
  const std::size_t left = text.size() - at;
  const auto byte = [&](std::size_t i) -> char32_t {
    return static_cast<unsigned char>(text[at + i]);
  };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead >= 0xC2 && lead < 0xE0) {
    if (left >= 2 && follows(1)) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  } else if (lead >= 0xE0 && lead < 0xF0) {
    if (left >= 3 && follows(1) && follows(2)) {
      const char32_t c = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
      if (c >= 0x800 && (c < 0xD800 || c > 0xDFFF)) return {c, 3};
    }
  } else if (lead >= 0xF0 && lead < 0xF5) {
    if (left >= 4 && follows(1) && follows(2) && follows(3)) {
      const char32_t c =
          (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
      if (c >= 0x10000 && c <= 0x10FFFF) return {c, 4};
    }
  }
  return {kInvalidByte, 1};
}

void append_utf8(std::string& out, char32_t code_point);

// One byte of facts for each character of the basic plane; utf8proc is asked about the others.
class CharTable {
 public:
  static const CharTable& instance();  // built on first use, 2 ms

  CharClass char_class(char32_t c) const {  // also of kInvalidByte
    return c < kSize ? static_cast<CharClass>(entries_[c] & kClassMask) : slow_char_class(c);
  }

  // Whether c may change under NFC or join what stands before it. False guarantees that text can be
  // cut before c and both sides normalized apart; true promises nothing.
  bool may_change(char32_t c) const {
    return c < kSize ? (entries_[c] & kMayChange) != 0 : slow_may_change(c);
  }

 private:
  CharTable();
  static CharClass slow_char_class(char32_t c);
  static bool slow_may_change(char32_t c);

  static constexpr char32_t kSize = 0x10000;
  static constexpr std::uint8_t kClassMask = 7;
  static constexpr std::uint8_t kMayChange = 8;
  std::array<std::uint8_t, kSize> entries_;
};

// `text` in normalization form C: `text` itself where it is normal already, else a view of
// `buffer`. n log n in the length of the longest run of combining marks, linear otherwise.
std::string_view to_nfc(std::string_view text, std::string& buffer);

}  // namespace kipp
