#include "cli/flag_values.h"

#include <array>
#include <charconv>
#include <limits>
#include <utility>

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

Result<std::uint64_t> parse_bytes(std::string_view flag, std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 4> kUnits = {
      {{"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"", 1.0}}};
  for (const auto& [unit, bytes] : kUnits) {
    if (!text.ends_with(unit)) continue;
    double value = 0;
    const char* number_end = text.data() + text.size() - unit.size();
    const auto [end, error] = std::from_chars(text.data(), number_end, value);
    constexpr double kMost = 1e18;
    if (error == std::errc() && end == number_end && value >= 0 && value * bytes <= kMost) {
      return static_cast<std::uint64_t>(value * bytes);
    }
    break;
  }
  return fail(ErrorCode::invalid,
              "{}: expected a number of bytes such as 1073741824, 512MiB or 1.5GiB, found \"{}\"",
              flag, text);
}

}  // namespace kipp
