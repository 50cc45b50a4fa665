// JSON files of a checkpoint, read as facts to compare: nesting beyond any such file is refused
// beside what read_json() refuses, and every field is either what the registry says or named in the
// refusal.
#pragma once

#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/types.h"

namespace kipp {

inline constexpr int kMaxFileDepth = 16;

// `label` is what refusals call the text.
Result<nlohmann::json> parse_strict_json(std::string_view text, std::string_view label);

// The whole file, refused when it is larger than max_bytes; its name is the label.
Result<nlohmann::json> read_strict_json(const std::filesystem::path& path, std::size_t max_bytes);

// `found` must be an object with exactly the fields of `expected` and equal values. Those named in
// `any_value` may have another value of the same type, those in `optional` may be absent.
Result<void> expect_fields(const nlohmann::json& found, const nlohmann::json& expected,
                           std::string_view label,
                           std::initializer_list<std::string_view> any_value = {},
                           std::initializer_list<std::string_view> optional = {});

// A value for a message: printable, and cut when it is long.
std::string shown(const nlohmann::json& value);

}  // namespace kipp
