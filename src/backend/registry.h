// Backends by name. Selection is explicit: an unknown name is refused with the names that exist,
// and nothing falls back to another backend. The only file that names concrete backends is
// registry.cc.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "base/types.h"

namespace kipp {

// The names this build knows.
std::span<const std::string_view> backend_names();

// A backend that has loaded nothing yet.
Result<std::unique_ptr<Backend>> make_backend(std::string_view name);

}  // namespace kipp
