#include "cli/terminal.h"

#include <unistd.h>

#include <cstdio>

namespace kipp {

bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }
bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }

std::string without_controls(std::string_view utf8) {
  constexpr std::string_view kReplacement = "\xef\xbf\xbd";
  std::string out;
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const auto byte = static_cast<unsigned char>(utf8[i]);
    // U+0080 to U+009F are C2 80 to C2 9F.
    const bool c1 =
        byte == 0xc2 && i + 1 < utf8.size() && static_cast<unsigned char>(utf8[i + 1]) < 0xa0;
    if (c1 || byte == 0x7f || (byte < 0x20 && byte != '\n' && byte != '\t')) {
      out += kReplacement;
      if (c1) ++i;
    } else {
      out += utf8[i];
    }
  }
  return out;
}

bool write_out(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

}  // namespace kipp
