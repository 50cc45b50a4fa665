// The few words every layer shares: token, sequence and block numbers (ids.h), and how an operation
// fails.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "base/ids.h"

namespace kipp {

// Why an operation failed. The command line turns `invalid` into exit code 2, the rest into 1.
enum class ErrorCode : std::uint8_t {
  invalid,      // the caller's value is out of range or malformed
  refused,      // an input file or checkpoint is not what the registry pins
  io,           // the operating system said no: file, disk, permission
  network,      // a download failed; trying again may help
  exhausted,    // no room left: KV blocks, memory, queue
  interrupted,  // the user asked to stop
};

// `message` is one sentence for a person: the field, what was expected, what was found.
struct Error {
  ErrorCode code = ErrorCode::invalid;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;

template <class... Args>
[[nodiscard]] tl::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> format,
                                         Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace kipp

// Returns the error of a Result<void> or Result<T> expression whose value is not needed.
#define KIPP_TRY(expression)                                                 \
  do {                                                                       \
    if (auto kipp_try_result = (expression); !kipp_try_result.has_value()) { \
      return ::tl::unexpected(std::move(kipp_try_result).error());           \
    }                                                                        \
  } while (false)

// Declares `name` from a Result<T> expression, or returns its error.
#define KIPP_TRY_ASSIGN(name, expression)                      \
  auto name##_result = (expression);                           \
  if (!name##_result.has_value()) {                            \
    return ::tl::unexpected(std::move(name##_result).error()); \
  }                                                            \
  auto& name = *name##_result
