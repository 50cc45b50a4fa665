#include "base/cpu_name.h"

#include <sys/utsname.h>

#include <fstream>

namespace kipp {

std::string cpu_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!line.starts_with("model name")) continue;
    const auto at = line.find_first_not_of(" \t", line.find(':') + 1);
    if (at != std::string::npos) return line.substr(at);
  }
  struct utsname system {};
  return ::uname(&system) == 0 ? system.machine : "unknown";
}

}  // namespace kipp
