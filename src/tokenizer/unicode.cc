#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

namespace kipp {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// The three tables below are printed by tools/unicode_differences.py (tokenizers 0.23.3,
// utf8proc 2.8); tests/python/test_tokenizer_equality.py notices when they no longer hold.

// `tokenizers` splits by Oniguruma's Unicode 16, utf8proc 2.8 knows Unicode 15: the letters and
// numbers in between.
constexpr Range kNewLetters[] = {
    {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3},
    {0x10D4A, 0x10D65}, {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x11380, 0x11389},
    {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x113B5}, {0x113B7, 0x113B7},
    {0x113D1, 0x113D1}, {0x113D3, 0x113D3}, {0x11BC0, 0x11BE0}, {0x13460, 0x143FA},
    {0x16100, 0x1611D}, {0x16D40, 0x16D6C}, {0x18CFF, 0x18CFF}, {0x1E5D0, 0x1E5ED},
    {0x1E5F0, 0x1E5F0}, {0x2EBF0, 0x2EE5D}};
constexpr Range kNewNumbers[] = {{0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9},
                                 {0x16130, 0x16139}, {0x16D70, 0x16D79}, {0x1CCF0, 0x1CCF9},
                                 {0x1E5F1, 0x1E5FA}};

// `tokenizers` normalizes by Unicode 9: to it, these later characters have combining class 0 and
// neither decompose nor result from composition.
constexpr Range kNotNormalized[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10D27},
    {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
    {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42},
    {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1},
    {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}};

template <std::size_t n>
bool contains(const Range (&ranges)[n], char32_t c) {
  const Range* after = std::upper_bound(std::begin(ranges), std::end(ranges), c,
                                        [](char32_t x, const Range& r) { return x < r.first; });
  return after != std::begin(ranges) && c <= (after - 1)->last;
}

// Raw bytes pass through normalization as these, beyond all code points.
constexpr char32_t kFirstRawByte = 0x110000;
constexpr char32_t kCodePoints = 0x110000;

const utf8proc_property_t& property(char32_t c) {
  return *utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
}

CharClass compute_class(char32_t c) {
  if (c >= kCodePoints) return CharClass::other;
  switch (property(c).category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharClass::letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharClass::number;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return CharClass::space;
    default:
      break;
  }
  if (c == '\r' || c == '\n') return CharClass::newline;
  if ((c >= '\t' && c <= '\f') || c == 0x85) return CharClass::space;
  if (contains(kNewLetters, c)) return CharClass::letter;
  if (contains(kNewNumbers, c)) return CharClass::number;
  return CharClass::other;
}

int combining_class(char32_t c) {
  if (c >= kCodePoints || contains(kNotNormalized, c)) return 0;
  return property(c).combining_class;
}

void append_decomposed(char32_t c, std::u32string& out) {
  if (c >= kCodePoints || contains(kNotNormalized, c)) {
    out += c;
    return;
  }
  std::array<utf8proc_int32_t, 8> parts;  // four is the longest canonical decomposition
  int last_boundary = 0;
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(),
                                         parts.size(), UTF8PROC_DECOMPOSE, &last_boundary);
  for (int i = 0; i < n; ++i) out += static_cast<char32_t>(parts[static_cast<std::size_t>(i)]);
}

// The primary composite of two characters, or 0.
char32_t composite(char32_t first, char32_t second) {
  if (first >= kCodePoints || second >= kCodePoints) return 0;
  std::array pair{static_cast<utf8proc_int32_t>(first), static_cast<utf8proc_int32_t>(second)};
  const auto n = utf8proc_normalize_utf32(
      pair.data(), 2, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  const auto result = static_cast<char32_t>(pair[0]);
  return n == 1 && !contains(kNotNormalized, result) ? result : 0;
}

bool has_decomposition(char32_t c) {
  const utf8proc_property_t& p = property(c);
  return p.decomp_type == 0 && p.decomp_seqindex != UINT16_MAX;
}

// Normalizes one segment: a starter and what follows it up to the next character that cannot
// interact with it.
class Normalizer {
 public:
  void append(std::string_view segment, std::string& out) {
    decompose(segment);
    order();
    compose();
    for (const Char& c : chars_) {
      if (c.value >= kFirstRawByte) {
        out += static_cast<char>(c.value - kFirstRawByte);
      } else {
        append_utf8(out, c.value);
      }
    }
  }

 private:
  struct Char {
    char32_t value;
    int combining_class;
  };

  void decompose(std::string_view segment) {
    chars_.clear();
    for (std::size_t at = 0; at < segment.size();) {
      const Utf8Char c = decode_utf8(segment, at);
      if (c.code_point == kInvalidByte) {
        chars_.push_back({kFirstRawByte + static_cast<unsigned char>(segment[at]), 0});
      } else {
        parts_.clear();
        append_decomposed(c.code_point, parts_);
        for (const char32_t part : parts_) chars_.push_back({part, combining_class(part)});
      }
      at += c.size;
    }
  }

  void order() {
    const auto by_class = [](const Char& a, const Char& b) {
      return a.combining_class < b.combining_class;
    };
    const auto is_mark = [](const Char& c) { return c.combining_class != 0; };
    for (auto first = chars_.begin(); first != chars_.end();) {
      first = std::find_if(first, chars_.end(), is_mark);
      const auto last = std::find_if_not(first, chars_.end(), is_mark);
      if (!std::is_sorted(first, last, by_class)) std::stable_sort(first, last, by_class);
      first = last;
    }
  }

  void compose() {
    std::size_t written = 0;
    std::size_t starter = chars_.size();  // none yet
    int last_class = -1;  // of what stands between the starter and here; -1: nothing
    for (const Char c : chars_) {
      if (starter < chars_.size() && last_class < c.combining_class) {
        if (const char32_t both = composite(chars_[starter].value, c.value); both != 0) {
          chars_[starter].value = both;
          continue;
        }
      }
      if (c.combining_class == 0) {
        starter = written;
        last_class = -1;
      } else {
        last_class = c.combining_class;
      }
      chars_[written++] = c;
    }
    chars_.resize(written);
  }

  std::u32string parts_;  // of one character
  std::vector<Char> chars_;
};

// Whether the next eight bytes are there and all ASCII.
bool is_ascii(std::string_view text, std::size_t at) {
  if (text.size() - at < 8) return false;
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, text.data() + at, 8);
  return (bytes & 0x8080808080808080U) == 0;
}

}  // namespace

CharTable::CharTable() {
  for (char32_t c = 0; c < kSize; ++c) {
    entries_[c] = static_cast<std::uint8_t>(compute_class(c));
    if (combining_class(c) != 0) entries_[c] |= kMayChange;
  }
  Normalizer normalizer;
  std::u32string parts;
  std::string before;
  std::string after;
  for (char32_t c = 0; c < kSize; ++c) {
    if (!has_decomposition(c)) continue;
    parts.clear();
    before.clear();
    after.clear();
    append_decomposed(c, parts);
    append_utf8(before, c);
    normalizer.append(before, after);
    if (before != after) entries_[c] |= kMayChange;
    // No composite ends in a character that is not the last of its decomposition.
    if (parts.size() > 1 && parts.back() < kSize) entries_[parts.back()] |= kMayChange;
  }
  for (char32_t c = 0x1161; c <= 0x1175; ++c) entries_[c] |= kMayChange;  // jamo vowels
  for (char32_t c = 0x11A8; c <= 0x11C2; ++c) entries_[c] |= kMayChange;  // and finals
}

const CharTable& CharTable::instance() {
  static const std::unique_ptr<const CharTable> table(new CharTable);
  return *table;
}

CharClass CharTable::slow_char_class(char32_t c) { return compute_class(c); }

bool CharTable::slow_may_change(char32_t c) {
  if (c >= kCodePoints) return false;
  const auto category = property(c).category;
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         has_decomposition(c);
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
    return;
  }
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xE0 | c >> 12);
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
    }
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

std::string_view to_nfc(std::string_view text, std::string& buffer) {
  const CharTable& table = CharTable::instance();
  std::optional<Normalizer> normalizer;
  std::size_t copied = 0;   // text before here is in the buffer
  std::size_t starter = 0;  // the last character that cannot change
  for (std::size_t at = 0; at < text.size();) {
    if (is_ascii(text, at)) {
      at += 8;
      starter = at - 1;
      continue;
    }
    // Characters that may change lie from U+0300 on, and so begin with 0xCC or more.
    if (const auto byte = static_cast<unsigned char>(text[at]); byte < 0xCC) {
      if ((byte & 0xC0) != 0x80) starter = at;
      ++at;
      continue;
    }
    const Utf8Char c = decode_utf8(text, at);
    if (!table.may_change(c.code_point)) {
      starter = at;
      at += c.size;
      continue;
    }
    while (at < text.size()) {
      const Utf8Char next = decode_utf8(text, at);
      if (!table.may_change(next.code_point)) break;
      at += next.size;
    }
    if (!normalizer) {
      normalizer.emplace();
      buffer.clear();
    }
    buffer.append(text, copied, starter - copied);
    normalizer->append(text.substr(starter, at - starter), buffer);
    copied = at;
    starter = at;
  }
  if (!normalizer) return text;
  buffer.append(text, copied);
  return buffer;
}

}  // namespace kipp
