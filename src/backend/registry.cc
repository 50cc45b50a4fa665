#include "backend/registry.h"

#include <array>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"

namespace kipp {

namespace {

constexpr std::array<std::string_view, 2> kNames = {"cpu", "reference"};

}  // namespace

std::span<const std::string_view> backend_names() { return kNames; }

Result<std::unique_ptr<Backend>> make_backend(std::string_view name) {
  if (name == "cpu") return std::make_unique<cpu::CpuBackend>();
  if (name == "reference") return std::make_unique<reference::ReferenceBackend>();
  return fail(ErrorCode::invalid, "backend: expected one of {}; found \"{}\"",
              fmt::join(kNames, ", "), name);
}

}  // namespace kipp
