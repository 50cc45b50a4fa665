// Arbitrary bytes as what a model wrote. Whatever they are: the parts do not depend on where the
// text was cut into pieces; only an announced call has pieces, and they follow each other; what is
// not in the parts belongs to a tag or to a call. The first byte chooses the setting, the second
// where the pieces end.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "tokenizer/output_parser.h"

namespace {

using namespace kipp;

void check(bool holds) {
  if (!holds) std::abort();
}

struct Parts {
  std::string reasoning;
  std::string content;
  std::vector<std::string> names;
  std::vector<std::string> arguments;
  int complete = 0;
  friend bool operator==(const Parts&, const Parts&) = default;
};

void add(const ParsedDelta& delta, Parts& parts) {
  parts.reasoning += delta.reasoning;
  parts.content += delta.content;
  for (const ParsedDelta::ToolPiece& piece : delta.tools) {
    const auto index = static_cast<std::size_t>(piece.index);
    check(piece.begins == (index == parts.names.size()));
    if (piece.begins) {
      check(!piece.name.empty());
      parts.names.push_back(piece.name);
      parts.arguments.emplace_back();
    }
    check(index + 1 == parts.names.size());
    parts.arguments[index] += piece.arguments;
  }
}

Parts parse(const OutputParser::Setting& setting, std::string_view text, std::uint64_t seed) {
  OutputParser parser(setting);
  Parts parts;
  for (std::uint64_t i = 0; !text.empty(); ++i) {
    const std::size_t size = seed == 0 ? text.size() : 1 + draw_bits(seed, i) % 9;
    add(parser.push(text.substr(0, size)), parts);
    text.remove_prefix(std::min(size, text.size()));
  }
  add(parser.finish(), parts);
  parts.complete = parser.complete_calls();
  check(parser.announced_calls() == static_cast<int>(parts.names.size()));
  check(parts.complete <= parser.announced_calls());
  return parts;
}

bool is_subsequence(std::string_view part, std::string_view text) {
  std::size_t at = 0;
  for (const char c : text) {
    if (at < part.size() && part[at] == c) ++at;
  }
  return at == part.size();
}

void skip_newlines(std::string_view& text) {
  while (text.starts_with('\n')) text.remove_prefix(1);
}

void skip(std::string_view tag, std::string_view& text) {
  if (text.starts_with(tag)) text.remove_prefix(tag.size());
}

void check_whole(const OutputParser::Setting& setting, std::string_view text, const Parts& parts) {
  if (!setting.parses_tools) check(parts.names.empty());
  check(is_subsequence(parts.reasoning, text));
  check(is_subsequence(parts.content, text));
  if (!parts.names.empty()) return;
  if (setting.starts_in_thinking || (setting.splits_reasoning && text.starts_with("<think>"))) {
    skip("<think>", text);
    skip_newlines(text);
    check(text.starts_with(parts.reasoning));
    text.remove_prefix(parts.reasoning.size());
    skip_newlines(text);
    skip("</think>", text);
    skip_newlines(text);
  } else {
    check(parts.reasoning.empty());
  }
  check(text == parts.content);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const OutputParser::Setting setting{.starts_in_thinking = (data[0] & 1) != 0,
                                      .splits_reasoning = (data[0] & 2) != 0,
                                      .parses_tools = (data[0] & 4) != 0};
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Parts whole = parse(setting, text, 0);
  check(parse(setting, text, std::uint64_t{1} + data[1]) == whole);
  check_whole(setting, text, whole);
  return 0;
}
