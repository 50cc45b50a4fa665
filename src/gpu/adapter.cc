#include "gpu/adapter.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "gpu/instance.h"
#include "gpu/native.h"
#include "gpu/objects.h"

namespace gpu {

namespace {

std::string api_name(WGPUBackendType type) {
  switch (type) {
    case WGPUBackendType_Vulkan:
      return "Vulkan";
    case WGPUBackendType_Metal:
      return "Metal";
    case WGPUBackendType_D3D12:
      return "D3D12";
    case WGPUBackendType_D3D11:
      return "D3D11";
    case WGPUBackendType_OpenGL:
    case WGPUBackendType_OpenGLES:
      return "OpenGL";
    default:
      return "unknown";
  }
}

std::string type_name(WGPUAdapterType type) {
  switch (type) {
    case WGPUAdapterType_DiscreteGPU:
      return "discrete GPU";
    case WGPUAdapterType_IntegratedGPU:
      return "integrated GPU";
    case WGPUAdapterType_CPU:
      return "CPU";
    default:
      return "unknown";
  }
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string names_of(const std::vector<AdapterInfo>& adapters) {
  std::string names;
  for (const AdapterInfo& adapter : adapters) {
    names += names.empty() ? "" : ", ";
    names += std::to_string(adapter.index) + " \"" + adapter.name + "\" (" + adapter.api + ", " +
             adapter.type + ")";
  }
  return names;
}

AdapterInfo describe(WGPUAdapter adapter, int index) {
  AdapterInfo found;
  found.index = index;
  WGPUAdapterInfo info = {};
  if (wgpuAdapterGetInfo(adapter, &info) == WGPUStatus_Success) {
    found.name = detail::text(info.device);
    found.api = api_name(info.backendType);
    found.type = type_name(info.adapterType);
    found.driver = detail::text(info.architecture);
    const std::string description = detail::text(info.description);
    if (!description.empty()) {
      found.driver += found.driver.empty() ? "" : " ";
      found.driver += description;
    }
    found.features.subgroup_min = info.subgroupMinSize;
    found.features.subgroup_max = info.subgroupMaxSize;
    wgpuAdapterInfoFreeMembers(info);
  }
  WGPULimits limits = {};
  if (wgpuAdapterGetLimits(adapter, &limits) == WGPUStatus_Success) {
    found.limits = {.max_buffer_bytes = limits.maxBufferSize,
                    .max_binding_bytes = limits.maxStorageBufferBindingSize,
                    .max_workgroup_bytes = limits.maxComputeWorkgroupStorageSize,
                    .max_workgroup_threads = limits.maxComputeInvocationsPerWorkgroup,
                    .max_workgroups = limits.maxComputeWorkgroupsPerDimension,
                    .max_storage_buffers = limits.maxStorageBuffersPerShaderStage,
                    .binding_alignment = limits.minStorageBufferOffsetAlignment};
  }
  const auto has = [&](WGPUFeatureName name) { return wgpuAdapterHasFeature(adapter, name) != 0; };
  found.features.f16 = has(WGPUFeatureName_ShaderF16);
  found.features.subgroups = has(native::subgroups_feature());
  found.features.timestamps = has(WGPUFeatureName_TimestampQuery);
  return found;
}

}  // namespace

std::vector<FoundAdapter> find_adapters(WGPUInstance instance) {
  std::vector<FoundAdapter> found;
  for (WGPUAdapter adapter : native::enumerate_adapters(instance)) {
    found.push_back({detail::own(adapter, wgpuAdapterRelease),
                     describe(adapter, static_cast<int>(found.size()))});
  }
  return found;
}

Expected<detail::Object> create_instance() {
  detail::Object instance = detail::own(native::create_instance(), wgpuInstanceRelease);
  if (instance == nullptr) {
    return tl::unexpected(Error{ErrorKind::no_adapter, "webgpu: the library gave no instance"});
  }
  return instance;
}

Expected<std::vector<AdapterInfo>> list_adapters() {
  auto instance = create_instance();
  if (!instance) return tl::unexpected(std::move(instance).error());
  std::vector<AdapterInfo> adapters;
  for (FoundAdapter& found : find_adapters(detail::handle<WGPUInstance>(*instance))) {
    adapters.push_back(std::move(found.info));
  }
  return adapters;
}

Expected<AdapterInfo> choose_adapter(const std::vector<AdapterInfo>& adapters,
                                     std::string_view wanted) {
  const auto refuse = [](std::string message) {
    return tl::unexpected(Error{ErrorKind::no_adapter, std::move(message)});
  };
  if (adapters.empty()) {
    return refuse(
        "adapter: expected a GPU that Vulkan, Metal or Direct3D 12 shows, found none; a driver "
        "may be missing");
  }
  if (wanted.empty()) {
    for (const char* type : {"discrete GPU", "integrated GPU"}) {
      const auto found = std::ranges::find(adapters, type, &AdapterInfo::type);
      if (found != adapters.end()) return *found;
    }
    return adapters.front();
  }
  int index = -1;
  const char* end = wanted.data() + wanted.size();
  if (const auto parsed = std::from_chars(wanted.data(), end, index);
      parsed.ec == std::errc() && parsed.ptr == end) {
    const auto found = std::ranges::find(adapters, index, &AdapterInfo::index);
    if (found != adapters.end()) return *found;
  } else {
    std::vector<AdapterInfo> matches;
    for (const AdapterInfo& adapter : adapters) {
      if (lower(adapter.name).find(lower(wanted)) != std::string::npos) matches.push_back(adapter);
    }
    if (matches.size() == 1) return matches.front();
    if (matches.size() > 1) {
      return refuse("adapter: expected a name that one adapter has, found \"" +
                    std::string(wanted) + "\", which fits " + names_of(matches));
    }
  }
  return refuse("adapter: expected one of " + names_of(adapters) + ", found \"" +
                std::string(wanted) + "\"");
}

}  // namespace gpu
