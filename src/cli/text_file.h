// Small files that the command line reads and writes whole.
#pragma once

#include <string>
#include <string_view>

#include "base/types.h"

namespace kipp {

Result<std::string> read_text_file(const std::string& path);

// Refuses a path that could not be written, before hours are spent on what should go there.
Result<void> check_writable(const std::string& path);
// Whole or not at all.
Result<void> write_text_file(const std::string& path, std::string_view text);

}  // namespace kipp
