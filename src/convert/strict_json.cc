#include "convert/strict_json.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <unordered_set>
#include <vector>

namespace kipp {
namespace {

using Json = nlohmann::json;

// Watches the parser build its tree: keeps it shallow and notices keys that stand twice.
class Watch {
 public:
  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth > kMaxJsonDepth) {
      problem = fmt::format("nesting: expected at most {} levels, found more", kMaxJsonDepth);
      return false;
    }
    const auto level = static_cast<std::size_t>(depth);
    if (event == Json::parse_event_t::object_start) {
      if (keys_.size() <= level) keys_.resize(level + 1);
      keys_[level].clear();
    } else if (event == Json::parse_event_t::key) {
      // A key stands one level below its object.
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_[level - 1].insert(key).second && problem.empty()) {
        problem = fmt::format("{}: expected once, found twice", shown(parsed));
      }
    }
    return true;
  }

  std::string problem;

 private:
  std::vector<std::unordered_set<std::string>> keys_;  // of the open object of each level
};

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
  // The parser would take a NUL for the end of the text.
  if (const auto at = text.find('\0'); at != std::string_view::npos) {
    return fail(ErrorCode::refused, "{}: expected JSON, found a NUL at byte {}", label, at);
  }
  Watch watch;
  const auto callback = [&](int depth, Json::parse_event_t event, Json& parsed) {
    return watch(depth, event, parsed);
  };
  try {
    Json value = Json::parse(text.begin(), text.end(), callback);
    if (!watch.problem.empty()) {
      return fail(ErrorCode::refused, "{}: {}", label, watch.problem);
    }
    return value;
  } catch (const Json::parse_error& error) {
    return fail(ErrorCode::refused, "{}: expected JSON, found an error at byte {}", label,
                error.byte);
  } catch (const Json::exception& error) {
    return fail(ErrorCode::refused, "{}: expected JSON, found another thing: {}", label,
                error.what());
  }
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
