// How kvquant reports errors: a code and one sentence, held in place, so that neither success nor
// failure allocates and nothing throws.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>

namespace kvquant {

enum class Code : std::uint8_t {
  ok,
  invalid_argument,  // a size, scheme, policy or range that cannot be meant
  not_finite,        // NaN, infinity, or a value beyond what the scheme's scales can hold
  unavailable,       // a plane that was freed, or that a block still open does not have yet; a GPU
  out_of_memory,
  corrupt,  // bytes that are no KvBlock, or not this one
};

class [[nodiscard]] Status {
 public:
  Status() = default;  // success

  [[gnu::format(printf, 2, 3)]] static Status fail(Code code, const char* format, ...) {
    Status status;
    status.code_ = code;
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(status.message_, sizeof status.message_, format, arguments);
    va_end(arguments);
    return status;
  }

  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const char* message() const {
    return message_;
  }  // empty on success; lives as long as this object

 private:
  Code code_ = Code::ok;
  char message_[255] = {};
};

// A value or the reason there is none.
template <class T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : value_(std::move(value)) {}
  Expected(Status status) : status_(status) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }  // only when ok()
  const T& value() const { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace kvquant
