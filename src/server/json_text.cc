#include "server/json_text.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "tokenizer/unicode.h"

namespace kipp {
namespace {

// Bytes that stand for themselves in a JSON string, wherever they are. Of the lead bytes, two begin
// characters that are escaped: 0xC2 (U+0080 to U+00BF) and 0xE2 (U+2000 to U+2FFF).
constexpr auto kPlain = [] {
  std::array<bool, 256> plain{};
  for (unsigned b = 0x20; b < 256; ++b) {
    plain[b] = b != '"' && b != '\\' && b != 0x7F && b != 0xC2 && b != 0xE2;
  }
  return plain;
}();

bool is_plain(char c) { return kPlain[static_cast<unsigned char>(c)]; }

bool is_escaped(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029;
}

void append_escape(char32_t c, std::string& out) {
  fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
}

}  // namespace

void append_json_string(std::string_view text, std::string& out) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_plain(text[end])) ++end;
    out.append(text, at, end - at);
    at = end;
    if (at == text.size()) break;
    const Utf8Char c = decode_utf8(text, at);
    if (c.code_point == '"' || c.code_point == '\\') {
      out += '\\';
      out += text[at];
    } else if (c.code_point == '\n') {
      out += "\\n";
    } else if (is_escaped(c.code_point)) {
      append_escape(c.code_point, out);
    } else {
      out.append(text, at, c.size);
    }
    at += c.size;
  }
  out += '"';
}

std::string json_text(const Json& json) {
  const std::string dumped =
      json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  std::string out;
  out.reserve(dumped.size());
  // What the library leaves as it is can only stand in strings.
  for (std::size_t at = 0; at < dumped.size();) {
    const Utf8Char c = decode_utf8(dumped, at);
    if (is_escaped(c.code_point)) {
      append_escape(c.code_point, out);
    } else {
      out.append(dumped, at, c.size);
    }
    at += c.size;
  }
  return out;
}

}  // namespace kipp
