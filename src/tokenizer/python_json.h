// JSON as Python's json.dumps(value, ensure_ascii=False) prints it: the official chat templates
// write tools and tool arguments with it, and a prompt that differs in one blank is another prompt.
// Not a general writer: it knows no indentation and no sorting, and it refuses values nested deeper
// than any real schema.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/types.h"

namespace kipp {

// Python's own writer gives up near 1,000 levels; recursion this deep is far from any stack's end.
inline constexpr int kMaxJsonDepth = 256;

// Whether objects and lists are nested in more than `levels` levels. To be asked before a value
// from outside is copied: the JSON library copies recursively, without a limit.
bool nested_deeper_than(const nlohmann::ordered_json& value, int levels);

// Appends `value` to `out`, keeping key order. Fails on a value nested deeper than kMaxJsonDepth.
// One thing Python would print differently cannot be known here: an integer beyond 64 bits, which
// the parser has already turned into a float.
Result<void> append_python_json(const nlohmann::ordered_json& value, std::string& out);

// Python's repr of a float: the shortest digits that read back as the same value.
std::string python_float(double value);

}  // namespace kipp
