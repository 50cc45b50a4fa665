// Numbers from the command line. CLI11 hands them over as text, so that every bad value gets kipp's
// own sentence: the flag, what was expected, what was found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/types.h"

namespace kipp {

Result<int> parse_int(std::string_view flag, std::string_view text);
Result<std::uint64_t> parse_uint64(std::string_view flag, std::string_view text);
// Accepts "inf" and "nan": what checks ranges names them.
Result<float> parse_float(std::string_view flag, std::string_view text);
// Bytes: a whole number, or one with KiB, MiB or GiB behind it ("512MiB", "1.5GiB").
Result<std::uint64_t> parse_bytes(std::string_view flag, std::string_view text);

}  // namespace kipp
