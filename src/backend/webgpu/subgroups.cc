#include "backend/webgpu/subgroups.h"

#include <array>

#include "backend/webgpu/gpu_error.h"
#include "backend/webgpu/shaders.h"

namespace kipp::webgpu {

Result<bool> neighbours_shuffle(gpu::Device& device) {
  if (!device.adapter().features.subgroups) return false;
  constexpr std::uint32_t kThreads = 256;
  std::array<std::uint32_t, 2 * kThreads> found = {};
  KIPP_TRY_ASSIGN(memory, engine_result(device.create_buffer(sizeof found, "a probe")));
  KIPP_TRY_ASSIGN(kernel,
                  engine_result(device.create_kernel({.name = "lanes_probe",
                                                      .wgsl = std::string(shader("lanes_probe")),
                                                      .bindings = {gpu::Access::read_write}})));
  const gpu::Binding binding = {&memory};
  KIPP_TRY_ASSIGN(arguments, engine_result(device.bind(kernel, {&binding, 1})));
  gpu::Recorder recorder = device.record();
  recorder.dispatch(kernel, arguments, 1);
  KIPP_TRY(engine_result(device.submit_and_read(std::move(recorder), memory, 0,
                                                std::as_writable_bytes(std::span(found)))));
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    if (found[2 * t] != (t ^ 1u) || found[2 * t + 1] != (t ^ 2u)) return false;
  }
  return true;
}

}  // namespace kipp::webgpu
