#include "convert/strict_json.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "tokenizer/json_reader.h"

namespace kipp {
namespace {

using Json = nlohmann::json;

bool names(std::initializer_list<std::string_view> list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

}  // namespace

std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 100;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

Result<Json> parse_strict_json(std::string_view text, std::string_view label) {
  auto json = read_json<Json>(text, kMaxFileDepth);
  if (json) return *std::move(json);
  const JsonProblem& problem = json.error();
  return fail(ErrorCode::refused, "{}: {}{}{}", label, problem.path,
              problem.path.empty() ? "" : ": ", problem.message);
}

Result<Json> read_strict_json(const std::filesystem::path& path, std::size_t max_bytes) {
  const std::string label = path.filename().string();
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in ? std::streamoff{in.tellg()} : -1;
  if (size < 0) {
    return fail(ErrorCode::io, "{}: cannot open: {}", path.string(), std::strerror(errno));
  }
  if (static_cast<std::size_t>(size) > max_bytes) {
    return fail(ErrorCode::refused, "{}: expected at most {} bytes, found {}", label, max_bytes,
                size);
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  in.seekg(0);
  if (!in.read(text.data(), size)) {
    return fail(ErrorCode::io, "{}: cannot read {} bytes", path.string(), size);
  }
  return parse_strict_json(text, label);
}

Result<void> expect_fields(const Json& found, const Json& expected, std::string_view label,
                           std::initializer_list<std::string_view> any_value,
                           std::initializer_list<std::string_view> optional) {
  if (!found.is_object()) {
    return fail(ErrorCode::refused, "{}: expected an object, found {}", label, shown(found));
  }
  for (const auto& [name, value] : expected.items()) {
    const auto place = found.find(name);
    if (place == found.end()) {
      if (names(optional, name)) continue;
      return fail(ErrorCode::refused, "{}: {}: expected {}, found nothing", label, name,
                  shown(value));
    }
    const bool same = names(any_value, name) ? place->type() == value.type() : *place == value;
    if (!same) {
      return fail(ErrorCode::refused, "{}: {}: expected {}, found {}", label, name, shown(value),
                  shown(*place));
    }
  }
  for (const auto& [name, value] : found.items()) {
    if (!expected.contains(name)) {
      return fail(ErrorCode::refused, "{}: {}: expected no such field, found {}", label,
                  shown(name), shown(value));
    }
  }
  return {};
}

}  // namespace kipp
