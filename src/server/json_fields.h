// Reading the fields of a request. Every refusal names the field by its path ("stream_options.
// include_usage", "messages[2].content"); null counts as absent; a field that nobody read is
// refused in the end, so that a parameter is done or named and never ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/generate_call.h"
#include "tokenizer/chat_template.h"

namespace kipp {

// The first thing that is wrong with a body. What is found after it is not kept, so that reading
// can go on without a check after every field.
class Problem {
 public:
  // The sentence is "<param>: <what>".
  void report(std::string_view param, std::string_view what, std::string code = {});
  void report(ApiError error);
  // Of the layers below, whose sentences begin with the field.
  void report(const Error& error);

  explicit operator bool() const { return first_.has_value(); }
  ApiError take() { return *std::move(first_); }

 private:
  std::optional<ApiError> first_;
};

class Fields {
 public:
  // Of the body; `json` and `problem` outlive it. Anything but an object is a problem, and has no
  // fields.
  Fields(const Json& json, Problem& problem);
  // Of something in it.
  Fields(const Json& json, std::string path, Problem& problem);

  // Where the field is absent, null, or a problem: nothing.
  const Json* value(std::string_view name);
  const Json* list(std::string_view name);
  const std::string* string(std::string_view name, std::size_t max_bytes = std::string::npos);
  std::optional<bool> boolean(std::string_view name);
  std::optional<int> integer(std::string_view name, int lowest, int highest);
  std::optional<float> number(std::string_view name);
  std::optional<Fields> object(std::string_view name);
  bool flag(std::string_view name) { return boolean(name).value_or(false); }

  // A field known for what it would mean, which is refused whatever its value.
  void refuse(std::string_view name, std::string_view why);
  void report(std::string_view name, std::string_view what);
  // Refuses what was not read.
  void finish();

  std::string path_of(std::string_view name) const;

 private:
  const Json* object_;  // null where there is none
  std::string path_;    // empty: the body
  Problem* problem_;
  std::vector<bool> read_;  // by place
};

// 7 and 7.0, not 7.5. Numbers beyond 64 bits become the last one there is.
std::optional<std::int64_t> integer_value(const Json& json);

// A value for a sentence: what it is and, where it is short, which.
std::string described(const Json& json);

}  // namespace kipp
