// What wgpu-native adds to webgpu.h and kipp uses: the only place that another implementation of
// webgpu.h has to be ported at.
#pragma once

#include <vector>

#include <webgpu.h>

namespace gpu::native {

// Of a process: quiet, and only APIs that run compute shaders.
WGPUInstance create_instance();

// The caller releases them.
std::vector<WGPUAdapter> enumerate_adapters(WGPUInstance instance);

// Runs callbacks that are due; with `wait`, once all submitted work is done.
void poll(WGPUDevice device, bool wait);

// A shader whose indices are not checked again on the device: kipp's own are in bounds for every
// step that was validated. The checks cost a compare and a select per access.
WGPUShaderModule create_shader(WGPUDevice device, const WGPUShaderModuleDescriptor& descriptor);

// The name under which this implementation switches on `enable subgroups`.
WGPUFeatureName subgroups_feature();

}  // namespace gpu::native
