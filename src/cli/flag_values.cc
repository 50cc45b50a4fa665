#include "cli/flag_values.h"

#include <charconv>
#include <limits>

namespace kipp {
namespace {

template <class T>
Result<T> parse_whole(std::string_view flag, std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return fail(ErrorCode::invalid, "{}: expected a whole number from {} to {}, found \"{}\"", flag,
                std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), text);
  }
  return value;
}

}  // namespace

Result<int> parse_int(std::string_view flag, std::string_view text) {
  return parse_whole<int>(flag, text);
}

Result<std::uint64_t> parse_uint64(std::string_view flag, std::string_view text) {
  return parse_whole<std::uint64_t>(flag, text);
}

Result<float> parse_float(std::string_view flag, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return fail(ErrorCode::invalid, "{}: expected a number, found \"{}\"", flag, text);
  }
  return static_cast<float>(value);
}

}  // namespace kipp
