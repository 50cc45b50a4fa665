// The few words every layer shares: token, sequence and block numbers, and how an operation fails.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace kipp {

using Token =
    std::int32_t;  // an id of the Qwen vocabulary, 0 .. kNamedTokens - 1 where it names a token
using SeqId = std::int32_t;    // one sequence known to a backend
using BlockId = std::int32_t;  // one physical block of the KV cache

// Parts of a block's keys and values that can be in memory or not, one bit each. Without tiers a
// block has one part; what the bits of a tiered one stand for, backend/kv_policy.h says.
using PlaneBits = std::uint16_t;
inline constexpr int kMaxPlanes = 16;

// The parts that a block has from now on; the memory of others is given back.
struct PlaneChange {
  BlockId block = 0;
  PlaneBits planes = 0;
};

// The contents of one block to be made those of another.
struct BlockCopy {
  BlockId from = 0;
  BlockId to = 0;
};

// Positions per KV block. Block tables, prefix sharing and tier boundaries all count in it.
inline constexpr int kBlockPositions = 32;

// Blocks that cover positions [0, positions).
constexpr int blocks_for(int positions) {
  return positions / kBlockPositions + (positions % kBlockPositions != 0 ? 1 : 0);
}

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
