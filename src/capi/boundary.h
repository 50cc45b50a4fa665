// What every function of the C interface does at its edge: errors become a status and a sentence,
// exceptions end here, structs of other sizes are read and written, pointers are checked.
#pragma once

#include <kipp/kipp.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>

#include "base/types.h"

namespace kipp::capi {

// Keeps the sentence for kipp_last_error().
kipp_status report(const Error& error) noexcept;
// Of the exception being handled.
kipp_status report_exception() noexcept;

// Runs `body`, a function that returns Result<void>.
template <class Body>
kipp_status guarded(Body&& body) noexcept {
  try {
    const Result<void> done = body();
    return done ? KIPP_OK : report(done.error());
  } catch (...) {
    return report_exception();
  }
}

inline Result<void> need(const void* pointer, const char* name) {
  if (pointer != nullptr) return {};
  return fail(ErrorCode::invalid, "{}: expected a pointer, found NULL", name);
}

template <class T>
Result<std::span<const T>> values(const T* pointer, std::size_t n, const char* name) {
  constexpr std::size_t kMost = std::numeric_limits<std::int32_t>::max();
  if (n > kMost) {
    return fail(ErrorCode::invalid, "{}: expected at most {} of them, found {}", name, kMost, n);
  }
  if (n > 0) KIPP_TRY(need(pointer, name));
  return std::span(pointer, n);
}

// Hands out a run of values as kipp.h says.
template <class T>
Result<void> give(std::span<const T> from, T* out, std::size_t capacity, std::size_t* count,
                  const char* name) {
  *count = from.size();
  if (out == nullptr && capacity == 0) return {};
  KIPP_TRY(need(out, name));
  if (from.size() > capacity) {
    return fail(ErrorCode::invalid, "{}: expected room for {}, found room for {}", name,
                from.size(), capacity);
  }
  std::ranges::copy(from, out);
  return {};
}

// What the first version of a struct measured: no caller's is smaller. A struct that grows keeps
// its number here.
template <class T>
inline constexpr std::size_t kFirstSize = sizeof(T);
template <>
inline constexpr std::size_t kFirstSize<kipp_model_options> = offsetof(kipp_model_options,
                                                                       kv_sequences);

template <class T>
Result<std::size_t> checked_size(const T* pointer, const char* name) {
  constexpr std::size_t kMost = 4096;
  KIPP_TRY(need(pointer, name));
  std::size_t size = 0;
  std::memcpy(&size, pointer, sizeof size);
  if (size < kFirstSize<T> || size > kMost) {
    return fail(ErrorCode::invalid, "{}.size: expected the struct's, {} or more, found {}", name,
                kFirstSize<T>, size);
  }
  return size;
}

// A caller's struct; what an older one lacks is zero.
template <class T>
Result<T> read_struct(const T* pointer, const char* name) {
  KIPP_TRY_ASSIGN(size, checked_size(pointer, name));
  const auto* bytes = reinterpret_cast<const unsigned char*>(pointer);
  const auto is_zero = [](unsigned char byte) { return byte == 0; };
  if (size > sizeof(T) && !std::all_of(bytes + sizeof(T), bytes + size, is_zero)) {
    return fail(ErrorCode::invalid,
                "{}: expected nothing in what kipp {} does not know, found a member of a newer "
                "version in use",
                name, kipp_version());
  }
  T out{};
  std::memcpy(&out, pointer, std::min(size, sizeof(T)));
  return out;
}

// The same where NULL means all zero.
template <class T>
Result<T> read_optional(const T* pointer, const char* name) {
  if (pointer == nullptr) return T{};
  return read_struct(pointer, name);
}

// Fills as much of a caller's struct, whose size was checked, as it has.
template <class T>
void write_struct(T* pointer, T value) {
  std::size_t size = 0;
  std::memcpy(&size, pointer, sizeof size);
  value.size = size;
  std::memset(pointer, 0, size);
  std::memcpy(pointer, &value, std::min(size, sizeof(T)));
}

}  // namespace kipp::capi
