// Errors of the device as errors of the engine.
#pragma once

#include <utility>

#include "base/types.h"
#include "gpu/error.h"

namespace kipp::webgpu {

inline Error engine_error(gpu::Error error) {
  switch (error.kind) {
    case gpu::ErrorKind::no_adapter:
    case gpu::ErrorKind::unsupported:
      return {ErrorCode::invalid, std::move(error.message)};
    case gpu::ErrorKind::out_of_memory:
      return {ErrorCode::exhausted, std::move(error.message)};
    case gpu::ErrorKind::shader:
    case gpu::ErrorKind::lost:
    case gpu::ErrorKind::invalid:
      break;
  }
  return {ErrorCode::io, std::move(error.message)};
}

template <class T>
Result<T> engine_result(gpu::Expected<T> result) {
  if (!result) return tl::unexpected(engine_error(std::move(result).error()));
  if constexpr (std::is_void_v<T>) {
    return {};
  } else {
    return *std::move(result);
  }
}

}  // namespace kipp::webgpu
