#include "tokenizer/python_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

namespace kipp {
namespace {

using Json = nlohmann::ordered_json;

void append_string(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void append(const Json& value, std::string& out) {
  const char* separator = "";
  switch (value.type()) {
    case Json::value_t::object:
      out += '{';
      for (const auto& [key, member] : value.items()) {
        out += separator;
        separator = ", ";
        append_string(key, out);
        out += ": ";
        append(member, out);
      }
      out += '}';
      return;
    case Json::value_t::array:
      out += '[';
      for (const Json& element : value) {
        out += separator;
        separator = ", ";
        append(element, out);
      }
      out += ']';
      return;
    case Json::value_t::string:
      return append_string(value.get_ref<const std::string&>(), out);
    case Json::value_t::boolean:
      out += value.get<bool>() ? "true" : "false";
      return;
    case Json::value_t::number_integer:
      out += fmt::format("{}", value.get<std::int64_t>());
      return;
    case Json::value_t::number_unsigned:
      out += fmt::format("{}", value.get<std::uint64_t>());
      return;
    case Json::value_t::number_float:
      out += python_float(value.get<double>());
      return;
    case Json::value_t::null:
    case Json::value_t::binary:  // neither can come from JSON text
    case Json::value_t::discarded:
      break;
  }
  out += "null";
}

}  // namespace

std::string python_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  // Python writes an exponent outside [1e-4, 1e16); to_chars spells both forms as Python does.
  const double magnitude = std::fabs(value);
  const bool fixed = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  std::array<char, 40> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(digits.data(), end.ptr);
  if (fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

bool nested_deeper_than(const Json& value, int levels) {
  if (!value.is_structured()) return false;
  if (levels == 0) return true;
  return std::any_of(value.begin(), value.end(),
                     [&](const Json& child) { return nested_deeper_than(child, levels - 1); });
}

Result<void> append_python_json(const Json& value, std::string& out) {
  if (nested_deeper_than(value, kMaxJsonDepth)) {
    return fail(ErrorCode::invalid, "expected JSON nested at most {} levels deep, found more",
                kMaxJsonDepth);
  }
  append(value, out);
  return {};
}

}  // namespace kipp
