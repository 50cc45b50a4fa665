#include "backend/webgpu/webgpu_devices.h"

#include "gpu/adapter.h"

namespace kipp::webgpu {

Result<std::vector<DeviceFacts>> list_devices() {
  auto adapters = gpu::list_adapters();
  if (!adapters) return fail(ErrorCode::io, "{}", adapters.error().message);
  // None chosen is the best there is, so that only an empty list is refused.
  if (const auto best = gpu::choose_adapter(*adapters, ""); !best) {
    return fail(ErrorCode::io, "{}", best.error().message);
  }
  std::vector<DeviceFacts> devices;
  for (gpu::AdapterInfo& adapter : *adapters) {
    devices.push_back({.name = std::move(adapter.name),
                       .type = std::move(adapter.type),
                       .api = std::move(adapter.api),
                       .driver = std::move(adapter.driver),
                       .max_buffer_bytes = adapter.limits.max_buffer_bytes,
                       .max_binding_bytes = adapter.limits.max_binding_bytes,
                       .f16 = adapter.features.f16,
                       .subgroups = adapter.features.subgroups});
  }
  return devices;
}

}  // namespace kipp::webgpu
