// The text of wgsl/backend.wgsl. Private to the backend.
#pragma once

#include <string_view>

namespace kvquant {

std::string_view wgpu_backend_shader();

}  // namespace kvquant
