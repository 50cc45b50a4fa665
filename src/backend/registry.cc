#include "backend/registry.h"

#include <array>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#if KIPP_HAS_CUDA
#include "backend/cuda/cuda_backend.h"
#endif

namespace kipp {

namespace {

constexpr std::array<std::string_view, 3> kNames = {"cpu", "reference", "cuda"};

}  // namespace

std::span<const std::string_view> backend_names() { return kNames; }

Result<std::unique_ptr<Backend>> make_backend(std::string_view name) {
  if (name == "cpu") return std::make_unique<cpu::CpuBackend>();
  if (name == "reference") return std::make_unique<reference::ReferenceBackend>();
  if (name == "cuda") {
#if KIPP_HAS_CUDA
    return std::make_unique<cuda::CudaBackend>();
#else
    return fail(ErrorCode::invalid,
                "backend: expected one that this build has, found \"cuda\", which was left out: it "
                "needs nvcc when kipp is built (KIPP_CUDA=ON says why it was not found)");
#endif
  }
  return fail(ErrorCode::invalid, "backend: expected one of {}; found \"{}\"",
              fmt::join(kNames, ", "), name);
}

}  // namespace kipp
