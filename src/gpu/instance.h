// Adapters as webgpu.h holds them. Private to this folder.
#pragma once

#include <vector>

#include <webgpu.h>
#include "gpu/adapter.h"
#include "gpu/device.h"

namespace gpu {

struct FoundAdapter {
  detail::Object adapter;  // WGPUAdapter
  AdapterInfo info;
};

Expected<detail::Object> create_instance();  // WGPUInstance
std::vector<FoundAdapter> find_adapters(WGPUInstance instance);

}  // namespace gpu
