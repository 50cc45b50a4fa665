// Whether kernels may let four neighbouring threads add up by subgroup shuffles.
#pragma once

#include "base/types.h"
#include "gpu/device.h"

namespace kipp::webgpu {

// WebGPU promises no order of threads in a subgroup, so a device that has subgroups is asked once:
// true when thread t's neighbours by shuffles are t ^ 1 and t ^ 2. False without subgroups.
Result<bool> neighbours_shuffle(gpu::Device& device);

}  // namespace kipp::webgpu
