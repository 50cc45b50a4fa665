// What can go wrong on a GPU, as a value: one sentence that names the adapter and the cause.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>

namespace gpu {

enum class ErrorKind : std::uint8_t {
  no_adapter,     // none found, or none of the name asked for
  unsupported,    // the adapter lacks a limit or a feature
  out_of_memory,  // of the device
  shader,         // a shader that this driver does not take
  lost,           // the device is gone; every later call says so too
  invalid,        // a call that breaks WebGPU's rules: a fault of ours
};

struct Error {
  ErrorKind kind = ErrorKind::invalid;
  std::string message;
};

template <class T>
using Expected = tl::expected<T, Error>;

}  // namespace gpu
