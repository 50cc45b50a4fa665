// Owned objects of webgpu.h, and its strings. Private to this folder.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <webgpu.h>

namespace gpu::detail {

// `object` may be null; `release` is webgpu.h's wgpu...Release.
template <class Handle>
std::shared_ptr<void> own(Handle object, void (*release)(Handle)) {
  return {static_cast<void*>(object), [release](void* held) {
            if (held != nullptr) release(static_cast<Handle>(held));
          }};
}

template <class Handle>
Handle handle(const std::shared_ptr<void>& object) {
  return static_cast<Handle>(object.get());
}

inline WGPUStringView view(std::string_view text) { return {text.data(), text.size()}; }

inline std::string text(WGPUStringView view) {
  if (view.data == nullptr) return {};
  return view.length == WGPU_STRLEN ? std::string(view.data) : std::string(view.data, view.length);
}

}  // namespace gpu::detail
