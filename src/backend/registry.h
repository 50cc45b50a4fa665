// Backends by name. Selection is explicit: an unknown name is refused with the names that exist,
// and nothing falls back to another backend. The only file that names concrete backends is
// registry.cc.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/devices.h"
#include "base/types.h"

namespace kipp {

// The names this build knows.
std::span<const std::string_view> backend_names();

// A backend that has loaded nothing yet.
Result<std::unique_ptr<Backend>> make_backend(std::string_view name);

// Refuses LoadOptions::adapter where the backend has no choice of devices.
Result<void> check_adapter(std::string_view backend, std::string_view adapter);

// What each backend finds on this machine; those left out of this build say so. `reference` is not
// listed: it computes where `cpu` does.
std::vector<BackendDevices> list_devices();

}  // namespace kipp
