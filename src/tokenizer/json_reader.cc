#include "tokenizer/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace kipp {
namespace {

// Takes the parser's events and builds the tree bottom-up: a list or an object is made when it ends
// and its size is known, because the library's ordered object copies its values when it grows.
template <class AnyJson>
class Builder {
 public:
  explicit Builder(int max_depth) : max_depth_(static_cast<std::size_t>(max_depth)) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string& /*text*/) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(typename AnyJson::binary_t& /*value*/) { return false; }  // not in JSON text

  bool start_object(std::size_t /*size*/) { return open(true); }
  bool start_array(std::size_t /*size*/) { return open(false); }
  bool key(std::string& name) {
    open_.back().key = std::move(name);
    open_.back().has_key = true;
    return true;
  }

  bool end_object() {
    if (const std::string* twice = repeated_key(open_.back().members)) {
      return refuse(fmt::format("{}: expected once, found twice", in_quotes(*twice)));
    }
    AnyJson json = AnyJson::object();
    auto& object = json.template get_ref<typename AnyJson::object_t&>();
    auto& members = open_.back().members;
    if constexpr (requires { object.reserve(members.size()); }) {
      object.reserve(members.size());
      for (auto& [name, value] : members) object.emplace_back(std::move(name), std::move(value));
    } else {
      for (auto& [name, value] : members) object.emplace(std::move(name), std::move(value));
    }
    open_.pop_back();
    return add(std::move(json));
  }
  bool end_array() {
    AnyJson json = AnyJson::array();
    json.template get_ref<typename AnyJson::array_t&>() = std::move(open_.back().elements);
    open_.pop_back();
    return add(std::move(json));
  }

  bool parse_error(std::size_t at, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) {
    const std::string_view what = error.what();
    const auto says = [&](std::string_view words) { return what.find(words) != what.npos; };
    std::string_view why;
    if (error.id == 406) {
      why = ": a number beyond the range of a double";
    } else if (says("invalid string: surrogate")) {
      why = ": half a surrogate pair";
    } else if (says("ill-formed UTF-8")) {
      why = ": bytes that are not UTF-8";
    }
    return refuse(fmt::format("expected JSON, found an error at byte {}{}", at, why));
  }

  AnyJson& root() { return root_; }
  JsonProblem& problem() { return problem_; }

 private:
  struct Open {
    bool is_object = false;
    bool has_key = false;  // and not yet its value
    std::string key;
    std::vector<std::pair<std::string, AnyJson>> members;
    std::vector<AnyJson> elements;
  };

  static const std::string* repeated_key(
      const std::vector<std::pair<std::string, AnyJson>>& members) {
    std::vector<const std::string*> keys;
    keys.reserve(members.size());
    for (const auto& member : members) keys.push_back(&member.first);
    std::ranges::sort(keys, {}, [](const std::string* key) { return std::string_view(*key); });
    const auto twice = std::ranges::adjacent_find(
        keys, [](const std::string* a, const std::string* b) { return *a == *b; });
    return twice == keys.end() ? nullptr : *twice;
  }

  bool open(bool is_object) {
    if (open_.size() == max_depth_) {
      problem_ = {{}, fmt::format("nesting: expected at most {} levels, found more", max_depth_)};
      return false;
    }
    open_.push_back(
        {.is_object = is_object, .has_key = false, .key = {}, .members = {}, .elements = {}});
    return true;
  }

  template <class Value>
  bool add(Value&& value) {
    if (open_.empty()) {
      root_ = AnyJson(std::forward<Value>(value));
    } else if (Open& top = open_.back(); top.is_object) {
      top.members.emplace_back(std::move(top.key), AnyJson(std::forward<Value>(value)));
      top.has_key = false;
    } else {
      top.elements.push_back(AnyJson(std::forward<Value>(value)));
    }
    return true;
  }

  bool refuse(std::string message) {
    std::string path;
    for (const Open& level : open_) {
      if (!level.is_object) {
        path += fmt::format("[{}]", level.elements.size());
      } else if (level.has_key) {
        if (!path.empty()) path += '.';
        path += path_name(level.key);
      }
    }
    problem_ = {std::move(path), std::move(message)};
    return false;
  }

  const std::size_t max_depth_;
  std::vector<Open> open_;
  AnyJson root_;
  JsonProblem problem_;
};

}  // namespace

template <class AnyJson>
tl::expected<AnyJson, JsonProblem> read_json(std::string_view text, int max_depth) {
  // The parser would take a NUL for the end of the text.
  if (const auto at = text.find('\0'); at != std::string_view::npos) {
    return tl::unexpected(
        JsonProblem{{}, fmt::format("expected JSON, found a NUL at byte {}", at)});
  }
  Builder<AnyJson> builder(max_depth);
  if (!AnyJson::sax_parse(text.begin(), text.end(), &builder)) {
    return tl::unexpected(std::move(builder.problem()));
  }
  return std::move(builder.root());
}

template tl::expected<nlohmann::json, JsonProblem> read_json(std::string_view, int);
template tl::expected<nlohmann::ordered_json, JsonProblem> read_json(std::string_view, int);

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 40;
  std::size_t end = text.size();
  if (end > kLongest) {
    end = kLongest;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;
  }
  std::string shown = nlohmann::json(text.substr(0, end))
                          .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (end < text.size()) shown.insert(shown.size() - 1, "...");
  return shown;
}

bool is_plain_name(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  return !text.empty() && text.size() <= kLongest && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

std::string path_name(std::string_view key) {
  return is_plain_name(key) ? std::string(key) : in_quotes(key);
}

}  // namespace kipp
