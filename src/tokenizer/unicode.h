// What the tokenizer asks of Unicode: UTF-8 decoding, the classes of Qwen's split pattern, and NFC.
// All three answer as Hugging Face `tokenizers` does, whose tables are of other Unicode versions
// than utf8proc's; unicode.cc lists the differences.
#pragma once

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
Utf8Char decode_utf8(std::string_view text, std::size_t at);
void append_utf8(std::string& out, char32_t code_point);

CharClass char_class(char32_t code_point);  // also of kInvalidByte

// `text` in normalization form C: `text` itself where it is normal already, else a view of
// `buffer`. n log n in the length of the longest run of combining marks, linear otherwise.
std::string_view to_nfc(std::string_view text, std::string& buffer);

}  // namespace kipp
