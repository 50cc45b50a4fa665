// Text for whoever reads: flushed at once, and on a terminal without the control characters that
// could move the cursor, change colours or worse, since a model may write anything.
#pragma once

#include <string>
#include <string_view>

namespace kipp {

bool stdin_is_terminal();
bool stdout_is_terminal();

// Control characters but newline and tab become U+FFFD; everything else stays.
std::string without_controls(std::string_view utf8);

// Writes to standard output and flushes. False when it can not be written.
bool write_out(std::string_view text);

inline constexpr std::string_view kDim = "\x1b[2m";
inline constexpr std::string_view kPlain = "\x1b[0m";

}  // namespace kipp
