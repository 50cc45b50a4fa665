// What the processor calls itself: measurements belong to a machine and say which.
#pragma once

#include <string>

namespace kipp {

// "AMD EPYC 7763 64-Core Processor"; the architecture ("aarch64") where the system knows no name.
std::string cpu_name();

}  // namespace kipp
