// Which commit this executable was built from; cmake/commit.cmake writes the definition.
#pragma once

#include <string_view>

namespace kipp {

// "1c3658334cbf", "1c3658334cbf-changed" or "unknown".
std::string_view build_commit();

}  // namespace kipp
