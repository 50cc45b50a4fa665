// The shaders of wgsl/, which are part of the program: CMake puts every file there into it and
// writes the table behind this function (cmake/webgpu.cmake).
#pragma once

#include <string_view>

namespace kipp::webgpu {

// The text of wgsl/NAME.wgsl; empty where there is no such file.
std::string_view shader(std::string_view name);

}  // namespace kipp::webgpu
