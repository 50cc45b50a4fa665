// The GPUs that WebGPU finds on this machine and what each can do. Software adapters are listed
// like any other; nothing here prefers one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/error.h"

namespace gpu {

// What an adapter offers, of what kipp asks for. Bytes, or counts.
struct Limits {
  std::uint64_t max_buffer_bytes = 0;
  std::uint64_t max_binding_bytes = 0;      // of one storage buffer, as a shader sees it
  std::uint32_t max_workgroup_bytes = 0;    // var<workgroup> of one workgroup
  std::uint32_t max_workgroup_threads = 0;  // invocations of one workgroup
  std::uint32_t max_workgroups = 0;         // of a dispatch, in each dimension
  std::uint32_t max_storage_buffers = 0;    // of one shader
  std::uint32_t binding_alignment = 0;      // of a storage buffer's offset
};

struct Features {
  bool f16 = false;        // enable f16;
  bool subgroups = false;  // enable subgroups;
  bool timestamps = false;
  std::uint32_t subgroup_min = 0;  // threads; 0 where unknown
  std::uint32_t subgroup_max = 0;
};

struct AdapterInfo {
  int index = 0;       // its place in the list
  std::string name;    // "NVIDIA H200", "llvmpipe (LLVM 15.0.6, 256 bits)"
  std::string api;     // "Vulkan", "Metal", "D3D12", "OpenGL"
  std::string type;    // "discrete GPU", "integrated GPU", "CPU", "unknown"
  std::string driver;  // name and version as the driver says them; may be empty
  Limits limits;
  Features features;
};

// All of them, in the driver's order. None is no error.
Expected<std::vector<AdapterInfo>> list_adapters();

// The one meant by `wanted`: empty takes the first discrete GPU, else the first integrated one,
// else the first of the list; a number is an index; anything else a part of exactly one name,
// whatever the case. An error lists what there is.
Expected<AdapterInfo> choose_adapter(const std::vector<AdapterInfo>& adapters,
                                     std::string_view wanted);

}  // namespace gpu
