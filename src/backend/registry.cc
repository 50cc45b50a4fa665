#include "backend/registry.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "base/cpu_name.h"
#if KIPP_HAS_CUDA
#include "backend/cuda/cuda_backend.h"
#endif
#if KIPP_HAS_WEBGPU
#include "backend/webgpu/webgpu_backend.h"
#include "backend/webgpu/webgpu_devices.h"
#endif

namespace kipp {

namespace {

constexpr std::array<std::string_view, 4> kNames = {"cpu", "reference", "cuda", "webgpu"};

// Not of a build that has them all.
[[maybe_unused]] tl::unexpected<Error> left_out(std::string_view name, std::string_view needs) {
  return fail(ErrorCode::invalid,
              "backend: expected one that this build has, found \"{}\", which was left out: it "
              "needs {}",
              name, needs);
}

#if !KIPP_HAS_CUDA
tl::unexpected<Error> no_cuda() {
  return left_out("cuda", "nvcc when kipp is built (KIPP_CUDA=ON says why it was not found)");
}
#endif

#if !KIPP_HAS_WEBGPU
tl::unexpected<Error> no_webgpu() {
  return left_out("webgpu",
                  "wgpu-native when kipp is built (`./dev build webgpu` fetches it and builds so)");
}
#endif

std::vector<DeviceFacts> processor() {
  const auto pages = static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES)));
  const auto page = static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PAGESIZE)));
  return {{.name = cpu_name(), .type = "CPU", .memory_bytes = pages * page}};
}

Result<std::vector<DeviceFacts>> cuda_devices() {
#if KIPP_HAS_CUDA
  return cuda::list_devices();
#else
  return no_cuda();
#endif
}

Result<std::vector<DeviceFacts>> webgpu_devices() {
#if KIPP_HAS_WEBGPU
  return webgpu::list_devices();
#else
  return no_webgpu();
#endif
}

}  // namespace

std::span<const std::string_view> backend_names() { return kNames; }

Result<std::unique_ptr<Backend>> make_backend(std::string_view name) {
  if (name == "cpu") return std::make_unique<cpu::CpuBackend>();
  if (name == "reference") return std::make_unique<reference::ReferenceBackend>();
  if (name == "cuda") {
#if KIPP_HAS_CUDA
    return std::make_unique<cuda::CudaBackend>();
#else
    return no_cuda();
#endif
  }
  if (name == "webgpu") {
#if KIPP_HAS_WEBGPU
    return std::make_unique<webgpu::WebgpuBackend>();
#else
    return no_webgpu();
#endif
  }
  return fail(ErrorCode::invalid, "backend: expected one of {}; found \"{}\"",
              fmt::join(kNames, ", "), name);
}

Result<void> check_adapter(std::string_view backend, std::string_view adapter) {
  if (adapter.empty() || backend == "webgpu") return {};
  return fail(ErrorCode::invalid,
              "adapter: expected one with backend webgpu only, found \"{}\" with backend {}",
              adapter, backend);
}

std::vector<BackendDevices> list_devices() {
  return {{"cpu", processor()}, {"cuda", cuda_devices()}, {"webgpu", webgpu_devices()}};
}

}  // namespace kipp
