#include "server/http_answer.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

namespace kipp {
namespace {

std::string_view reason(int status) {
  static constexpr std::array<std::pair<int, std::string_view>, 21> kReasons = {{
      {200, "OK"},
      {201, "Created"},
      {204, "No Content"},
      {304, "Not Modified"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {406, "Not Acceptable"},
      {408, "Request Timeout"},
      {409, "Conflict"},
      {413, "Content Too Large"},
      {415, "Unsupported Media Type"},
      {417, "Expectation Failed"},
      {422, "Unprocessable Content"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
  }};
  for (const auto& [code, text] : kReasons) {
    if (code == status) return text;
  }
  return "Status";
}

// As HTTP wants it, whatever the locale.
void append_date(std::string& out, std::time_t now) {
  static constexpr std::array<std::string_view, 7> kDays = {"Sun", "Mon", "Tue", "Wed",
                                                            "Thu", "Fri", "Sat"};
  static constexpr std::array<std::string_view, 12> kMonths = {
      "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc{};
  gmtime_r(&now, &utc);
  fmt::format_to(std::back_inserter(out), "{}, {:02} {} {} {:02}:{:02}:{:02} GMT",
                 kDays[static_cast<std::size_t>(utc.tm_wday)], utc.tm_mday,
                 kMonths[static_cast<std::size_t>(utc.tm_mon)], utc.tm_year + 1900, utc.tm_hour,
                 utc.tm_min, utc.tm_sec);
}

void append_plain(std::string& out, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += (byte < 0x20 && c != '\t') || byte == 0x7f ? ' ' : c;
  }
}

void append_header(std::string& out, std::string_view name, std::string_view value) {
  append_plain(out, name);
  out += ": ";
  append_plain(out, value);
  out += "\r\n";
}

}  // namespace

bool http_has_body(int status) { return status >= 200 && status != 204 && status != 304; }

std::string http_head(const HttpAnswerHead& head, std::time_t now) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nDate: ", head.status, reason(head.status));
  append_date(out, now);
  out += "\r\n";
  if (!head.content_type.empty()) append_header(out, "Content-Type", head.content_type);
  if (head.content_length) {
    fmt::format_to(std::back_inserter(out), "Content-Length: {}\r\n", *head.content_length);
  }
  if (head.chunked) out += "Transfer-Encoding: chunked\r\n";
  if (!head.connection.empty()) append_header(out, "Connection", head.connection);
  for (const auto& [name, value] : head.headers) append_header(out, name, value);
  out += "\r\n";
  return out;
}

void append_chunk(std::string& out, std::string_view bytes) {
  if (bytes.empty()) return;  // an empty chunk would end the stream
  fmt::format_to(std::back_inserter(out), "{:x}\r\n", bytes.size());
  out += bytes;
  out += "\r\n";
}

std::string http_error_body(int status, std::string_view message) {
  return fmt::format(R"({{"error":{{"message":"{}","type":"{}","param":null,"code":null}}}})",
                     message, status >= 500 ? "server_error" : "invalid_request_error");
}

}  // namespace kipp
