// The adapters that WebGPU finds, as `kipp devices` lists them.
#pragma once

#include <vector>

#include "backend/devices.h"
#include "base/types.h"

namespace kipp::webgpu {

// At least one; none at all is an error that says so.
Result<std::vector<DeviceFacts>> list_devices();

}  // namespace kipp::webgpu
