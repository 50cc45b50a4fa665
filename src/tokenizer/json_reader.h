// JSON text into a tree, for files of a checkpoint and for requests alike. Refuses what two readers
// could understand differently (a key twice, a NUL, bytes left over, half a surrogate pair), what
// is not UTF-8, numbers no double can hold, and nesting beyond a bound. Never recurses; n log n in
// the length of the text, whatever is in it (the library's own way to read an ordered object is
// quadratic in its keys).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace kipp {

struct JsonProblem {
  std::string path;     // what was being read: "messages[0].content"; empty: the whole text
  std::string message;  // "expected ..., found ..."
};

// For nlohmann::json and nlohmann::ordered_json. A value inside max_depth objects and lists is
// read, one inside more is refused.
template <class AnyJson>
tl::expected<AnyJson, JsonProblem> read_json(std::string_view text, int max_depth);

extern template tl::expected<nlohmann::json, JsonProblem> read_json(std::string_view, int);
extern template tl::expected<nlohmann::ordered_json, JsonProblem> read_json(std::string_view, int);

// Somebody's string in a message: as JSON, cut between characters where it is long.
std::string in_quotes(std::string_view text);

// 1 to 64 letters, digits, _ or -.
bool is_plain_name(std::string_view text);

// A field's name as part of a path: as it is where it is plain, quoted otherwise.
std::string path_name(std::string_view key);

}  // namespace kipp
