#include "server/json_fields.h"

#include <cmath>
#include <limits>
#include <utility>

#include "tokenizer/json_reader.h"

namespace kipp {
namespace {

// An object's fields by place, which the object itself finds by name only.
const Json::object_t::Container& members_of(const Json& object) {
  return object.get_ref<const Json::object_t&>();
}

}  // namespace

void Problem::report(std::string_view param, std::string_view what, std::string code) {
  report(ApiError{.status = 400,
                  .message = fmt::format("{}: {}", param.empty() ? "body" : param, what),
                  .param = std::string(param),
                  .code = std::move(code)});
}

void Problem::report(ApiError error) {
  if (!first_) first_ = std::move(error);
}

void Problem::report(const Error& error) {
  const auto colon = error.message.find(": ");
  report(ApiError{.status = 400,
                  .message = error.message,
                  .param = colon == std::string::npos ? "" : error.message.substr(0, colon),
                  .code = {}});
}

Fields::Fields(const Json& json, Problem& problem) : Fields(json, {}, problem) {}

Fields::Fields(const Json& json, std::string path, Problem& problem)
    : object_(json.is_object() ? &json : nullptr), path_(std::move(path)), problem_(&problem) {
  if (object_ == nullptr) {
    problem.report(path_, fmt::format("expected an object, found {}", described(json)));
    return;
  }
  read_.resize(json.size());
}

std::string Fields::path_of(std::string_view name) const {
  return path_.empty() ? path_name(name) : path_ + "." + path_name(name);
}

void Fields::report(std::string_view name, std::string_view what) {
  problem_->report(path_of(name), what);
}

const Json* Fields::value(std::string_view name) {
  if (object_ == nullptr) return nullptr;
  const auto& members = members_of(*object_);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto& [key, value] = members[i];
    if (key != name) continue;
    read_[i] = true;
    return value.is_null() ? nullptr : &value;
  }
  return nullptr;
}

const Json* Fields::list(std::string_view name) {
  const Json* found = value(name);
  if (found == nullptr || found->is_array()) return found;
  report(name, fmt::format("expected a list, found {}", described(*found)));
  return nullptr;
}

const std::string* Fields::string(std::string_view name, std::size_t max_bytes) {
  const Json* found = value(name);
  if (found == nullptr) return nullptr;
  if (!found->is_string()) {
    report(name, fmt::format("expected a string, found {}", described(*found)));
    return nullptr;
  }
  const auto& text = found->get_ref<const std::string&>();
  if (text.size() > max_bytes) {
    report(name, fmt::format("expected at most {} bytes, found {}", max_bytes, text.size()));
    return nullptr;
  }
  return &text;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const Json* found = value(name);
  if (found == nullptr) return {};
  if (!found->is_boolean()) {
    report(name, fmt::format("expected true or false, found {}", described(*found)));
    return {};
  }
  return found->get<bool>();
}

std::optional<int> Fields::integer(std::string_view name, int lowest, int highest) {
  const Json* found = value(name);
  if (found == nullptr) return {};
  const auto number = integer_value(*found);
  if (!number || *number < lowest || *number > highest) {
    report(name, fmt::format("expected an integer from {} to {}, found {}", lowest, highest,
                             described(*found)));
    return {};
  }
  return static_cast<int>(*number);
}

std::optional<float> Fields::number(std::string_view name) {
  const Json* found = value(name);
  if (found == nullptr) return {};
  constexpr double kLargest = std::numeric_limits<float>::max();
  if (!found->is_number() || std::fabs(found->get<double>()) > kLargest) {
    report(name,
           fmt::format("expected a number{}, found {}",
                       found->is_number() ? " that a float can hold" : "", described(*found)));
    return {};
  }
  return static_cast<float>(found->get<double>());
}

std::optional<Fields> Fields::object(std::string_view name) {
  const Json* found = value(name);
  if (found == nullptr) return {};
  return Fields(*found, path_of(name), *problem_);
}

void Fields::refuse(std::string_view name, std::string_view why) {
  if (value(name) != nullptr) report(name, why);
}

void Fields::finish() {
  if (object_ == nullptr) return;
  const auto& members = members_of(*object_);
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (read_[i] || members[i].second.is_null()) continue;
    report(members[i].first, "unsupported field");
    return;
  }
}

std::optional<std::int64_t> integer_value(const Json& json) {
  constexpr auto kLast = std::numeric_limits<std::int64_t>::max();
  if (json.is_number_unsigned()) {
    const auto number = json.get<std::uint64_t>();
    return number > static_cast<std::uint64_t>(kLast) ? kLast : static_cast<std::int64_t>(number);
  }
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (!json.is_number_float()) return {};
  const double number = json.get<double>();
  if (number != std::trunc(number)) return {};
  if (number >= 0x1p63) return kLast;
  if (number < -0x1p63) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(number);
}

std::string described(const Json& json) {
  if (json.is_string()) return in_quotes(json.get_ref<const std::string&>());
  if (json.is_array()) return "a list";
  if (json.is_object()) return "an object";
  return json.dump();
}

}  // namespace kipp
