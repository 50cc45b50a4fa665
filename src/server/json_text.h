// JSON as clients get it: UTF-8 as it is, but every control character escaped, U+007F to U+009F and
// the separators U+2028 and U+2029 too. Some clients cut a stream into lines at those, and half a
// line is no JSON.
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/chat_template.h"

namespace kipp {

// `text`, which is UTF-8, as a JSON string with its quotes.
void append_json_string(std::string_view text, std::string& out);

// On one line. Bytes that are not UTF-8 become U+FFFD.
std::string json_text(const Json& json);

}  // namespace kipp
