// The text of an answer: its head, the chunks of a stream, the body of an error.
#pragma once

#include <cstddef>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kipp {

struct HttpAnswerHead {
  int status = 200;
  std::string content_type;  // empty: none
  std::vector<std::pair<std::string, std::string>> headers;
  std::optional<std::size_t> content_length;  // none in a stream
  bool chunked = false;
  std::string connection;  // "close", "keep-alive" or nothing
};

// The status line to the empty line. Line ends in names and values become spaces: what a client
// chose (a request id) must not begin a header of its own.
std::string http_head(const HttpAnswerHead& head, std::time_t now);

// 204 and 304 have neither a body nor its length.
bool http_has_body(int status);

void append_chunk(std::string& out, std::string_view bytes);  // nothing for nothing
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// {"error": {...}} of the OpenAI shape. `message` needs no escaping: it quotes no client.
std::string http_error_body(int status, std::string_view message);

}  // namespace kipp
