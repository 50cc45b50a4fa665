// What backends can compute on here, for `kipp devices`. Plain values, so that nobody but a backend
// sees its driver.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace kipp {

struct DeviceFacts {
  std::string name;         // as its driver says it
  std::string type;         // "CPU", "discrete GPU", "integrated GPU", "unknown"
  std::string api = {};     // "Vulkan"; empty where there is one way only
  std::string driver = {};  // name and version; may be empty
  // Bytes; 0 where the driver does not say.
  std::uint64_t memory_bytes = 0;
  std::uint64_t max_buffer_bytes = 0;
  std::uint64_t max_binding_bytes = 0;  // of a buffer, what one kernel sees of it
  bool f16 = false;
  bool subgroups = false;
};

struct BackendDevices {
  std::string_view backend;
  // In the order that --adapter numbers, from 0; an error says why there are none.
  Result<std::vector<DeviceFacts>> devices;
};

}  // namespace kipp
