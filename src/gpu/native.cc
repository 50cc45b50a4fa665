#include "gpu/native.h"

#include <wgpu.h>

namespace gpu::native {

WGPUInstance create_instance() {
  WGPUInstanceExtras extras = {};
  extras.chain.sType = static_cast<WGPUSType>(WGPUSType_InstanceExtras);
  // OpenGL has no storage buffers of the size and number that a checkpoint needs.
  extras.backends =
      WGPUInstanceBackend_Vulkan | WGPUInstanceBackend_Metal | WGPUInstanceBackend_DX12;
  WGPUInstanceDescriptor descriptor = {};
  descriptor.nextInChain = &extras.chain;
  return wgpuCreateInstance(&descriptor);
}

std::vector<WGPUAdapter> enumerate_adapters(WGPUInstance instance) {
  std::vector<WGPUAdapter> adapters(wgpuInstanceEnumerateAdapters(instance, nullptr, nullptr));
  if (!adapters.empty()) {
    adapters.resize(wgpuInstanceEnumerateAdapters(instance, nullptr, adapters.data()));
  }
  return adapters;
}

void poll(WGPUDevice device, bool wait) { wgpuDevicePoll(device, wait ? 1 : 0, nullptr); }

WGPUShaderModule create_shader(WGPUDevice device, const WGPUShaderModuleDescriptor& descriptor) {
  return wgpuDeviceCreateShaderModuleTrusted(device, &descriptor, WGPUShaderRuntimeChecks_None);
}

WGPUFeatureName subgroups_feature() {
  return static_cast<WGPUFeatureName>(WGPUNativeFeature_Subgroup);
}

}  // namespace gpu::native
