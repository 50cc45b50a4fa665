#include "server/http_parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <cstdint>
#include <utility>

namespace kipp {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr std::size_t kMaxHeaders = 128;     // in one request
constexpr std::size_t kMaxChunkLine = 1024;  // a chunk's size with its extensions
constexpr int kMaxEmptyLines = 4;  // before a request; some clients send one behind a body
constexpr std::size_t kMaxReserve = std::size_t{256} << 10;  // of a body that was only announced

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool is_decimal(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Only that bodies arrive in pieces is left to the base class; what they and the headers may be is
// decided here.
class Parser final : public http::basic_parser<true> {
 public:
  explicit Parser(const HttpLimits& limits) {
    header_limit(static_cast<std::uint32_t>(limits.max_header_bytes));
    body_limit(limits.max_body_bytes);
  }

  HttpRequest request;
  std::optional<HttpRefusal> refusal;
  bool http_1_1 = false;
  bool expects_continue = false;
  bool has_body_bytes = false;

  // What comes next is a chunk's size; with the line end of the chunk before, if there was one.
  bool at_chunk_line() const { return chunked_ && chunk_left_ == 0; }
  bool first_chunk() const { return first_chunk_; }

  void refuse(int status, std::string message, beast::error_code& ec) {
    refusal = HttpRefusal{status, std::move(message)};
    ec = http::error::bad_field;
  }

 private:
  void on_request_impl(http::verb, beast::string_view method, beast::string_view target,
                       int version, beast::error_code& ec) override {
    request.method = view(method);
    http_1_1 = version >= 11;
    std::string_view rest = view(target);
    for (const std::string_view scheme : {"http://", "https://"}) {
      if (lower(rest.substr(0, scheme.size())) != scheme) continue;
      rest.remove_prefix(scheme.size());
      rest.remove_prefix(std::min(rest.size(), rest.find_first_of("/?")));
    }
    const std::size_t question = rest.find('?');
    request.path = rest.substr(0, question);
    if (question != std::string_view::npos) request.query = rest.substr(question + 1);
    if (request.path.empty() && rest.size() < target.size()) request.path = "/";
    if (!request.path.starts_with('/') && request.path != "*") {
      refuse(400, "request line: expected a path that begins with /, found something else", ec);
    }
  }

  void on_response_impl(int, beast::string_view, int, beast::error_code& ec) override {
    ec = http::error::bad_version;
  }

  void on_field_impl(http::field, beast::string_view name, beast::string_view value,
                     beast::error_code& ec) override {
    if (header_done_) return;  // a trailer: nobody reads those, and none may pass for a header
    if (request.headers.size() == kMaxHeaders) {
      return refuse(431, fmt::format("headers: expected at most {}, found more", kMaxHeaders), ec);
    }
    std::string key = lower(view(name));
    if ((key == "content-length" || key == "transfer-encoding" || key == "host") && has(key)) {
      return refuse(400, fmt::format("{}: expected one such header, found several", key), ec);
    }
    if (key == "content-length" && !is_decimal(view(value))) {
      return refuse(400, "content-length: expected a decimal number, found something else", ec);
    }
    if (key == "transfer-encoding") {
      if (lower(view(value)) != "chunked") {
        return refuse(400, "transfer-encoding: expected chunked, found something else", ec);
      }
      if (!http_1_1) {
        return refuse(400, "transfer-encoding: expected none in HTTP/1.0, found one", ec);
      }
      chunked_ = true;
    }
    request.headers.emplace_back(std::move(key), view(value));
  }

  void on_header_impl(beast::error_code& ec) override {
    header_done_ = true;
    if (chunked_ && has("content-length")) {
      return refuse(400, "content-length: expected none beside transfer-encoding, found one", ec);
    }
    if (http_1_1 && !has("host")) {
      return refuse(400, "host: expected this header in HTTP/1.1, found none", ec);
    }
    const std::string expect = lower(request.header("expect"));
    if (!expect.empty() && http_1_1) {
      if (expect != "100-continue") {
        return refuse(417, "expect: expected 100-continue, found something else", ec);
      }
      expects_continue = true;
    }
  }

  void on_body_init_impl(const boost::optional<std::uint64_t>& length,
                         beast::error_code& ec) override {
    if (length) request.body.reserve(std::min<std::size_t>(*length, kMaxReserve));
    ec = {};
  }

  std::size_t on_body_impl(beast::string_view bytes, beast::error_code& ec) override {
    has_body_bytes = true;
    request.body.append(bytes.data(), bytes.size());
    ec = {};
    return bytes.size();
  }

  void on_chunk_header_impl(std::uint64_t size, beast::string_view,
                            beast::error_code& ec) override {
    has_body_bytes = true;
    chunk_left_ = size;
    first_chunk_ = false;
    ec = {};
  }

  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view bytes,
                                 beast::error_code& ec) override {
    chunk_left_ -= bytes.size();
    return on_body_impl(bytes, ec);
  }

  void on_finish_impl(beast::error_code& ec) override { ec = {}; }

  bool has(std::string_view name) const {
    return std::any_of(request.headers.begin(), request.headers.end(),
                       [&](const auto& header) { return header.first == name; });
  }

  bool header_done_ = false;
  bool chunked_ = false;
  bool first_chunk_ = true;
  std::uint64_t chunk_left_ = 0;
};

HttpRefusal refusal_of(const beast::error_code& ec, const HttpLimits& limits) {
  if (ec == http::error::body_limit) {
    return {413, fmt::format("body: expected at most {} bytes, found more", limits.max_body_bytes)};
  }
  if (ec == http::error::bad_version) {
    return {400, "request line: expected HTTP/1.0 or HTTP/1.1, found something else"};
  }
  if (ec == http::error::bad_content_length || ec == http::error::multiple_content_length) {
    return {400, "content-length: expected one decimal number, found something else"};
  }
  if (ec == http::error::bad_transfer_encoding) {
    return {400, "transfer-encoding: expected chunked alone, found something else"};
  }
  if (ec == http::error::bad_chunk || ec == http::error::bad_chunk_extension) {
    return {400, "body: expected a chunk's size in hexadecimal, found something else"};
  }
  return {400, fmt::format("request: expected HTTP/1.1, found something else ({})", ec.message())};
}

}  // namespace

// The parser is handed whole units, the head, a chunk's line, the trailers, because what it says of
// a part of one depends on where the part ends.
struct HttpRequestReader::Impl {
  explicit Impl(const HttpLimits& its_limits) : limits(its_limits), parser(its_limits) {}

  const HttpLimits limits;
  Parser parser;
  std::string partial;      // a unit that has not ended yet
  std::size_t scanned = 0;  // of the head, and found to be text
  bool begun = false;
  int empty_lines = 0;

  bool over() const { return parser.refusal.has_value() || parser.is_done(); }
  std::size_t refuse(int status, std::string message) {
    parser.refusal = HttpRefusal{status, std::move(message)};
    return 0;
  }

  // Takes from the front of `rest` what can be understood.
  void parse(std::string_view& rest) {
    while (!rest.empty() && !over()) {
      if (!begun && !skip_empty_lines(rest)) return;
      const std::size_t size = unit(rest);
      if (size == 0) return;
      beast::error_code ec;
      rest.remove_prefix(parser.put(asio::const_buffer(rest.data(), size), ec));
      if (ec && !parser.refusal) parser.refusal = refusal_of(ec, limits);
    }
  }

  // Whether something else follows.
  bool skip_empty_lines(std::string_view& rest) {
    while (rest.starts_with("\r\n")) {
      rest.remove_prefix(2);
      if (++empty_lines > kMaxEmptyLines) {
        refuse(400, "request: expected a request line, found empty lines");
        return false;
      }
    }
    begun = !rest.empty() && rest != "\r";
    return begun;
  }

  // Bytes of what is parsed next; 0 where more of it must come, or it is refused.
  std::size_t unit(std::string_view rest) {
    if (!parser.is_header_done()) return head_size(rest);
    return parser.at_chunk_line() ? chunk_line_size(rest) : rest.size();
  }

  std::size_t head_size(std::string_view rest) {
    const std::string_view head = rest.substr(0, limits.max_header_bytes);
    for (; scanned < head.size(); ++scanned) {
      const auto byte = static_cast<unsigned char>(head[scanned]);
      const char before = scanned > 0 ? head[scanned - 1] : '\0';
      if ((byte == '\n') != (before == '\r')) {
        return refuse(400, "request: expected lines that end in CR LF, found CR or LF alone");
      }
      if (byte == '\n' && scanned >= 3 && head.substr(scanned - 3, 3) == "\r\n\r") {
        return std::exchange(scanned, 0) + 1;
      }
      if (before == '\n' && (byte == ' ' || byte == '\t')) {
        return refuse(400, "headers: expected one line for each, found a folded one");
      }
      if ((byte < 0x20 && byte != '\r' && byte != '\n' && byte != '\t') || byte == 0x7f) {
        return refuse(400, "request: expected HTTP/1.1, found control characters");
      }
    }
    if (rest.size() < limits.max_header_bytes) return 0;
    return refuse(431, fmt::format("headers: expected at most {} bytes, found more",
                                   limits.max_header_bytes));
  }

  // With the line end of the chunk before; the last one's with the trailers behind it.
  std::size_t chunk_line_size(std::string_view rest) {
    const std::size_t begin = parser.first_chunk() ? 0 : 2;
    if (rest.size() < begin) return 0;
    if (begin > 0 && !rest.starts_with("\r\n")) {
      return refuse(400, "body: expected a chunk as long as its size says, found a longer one");
    }
    const std::size_t end = rest.substr(0, kMaxChunkLine).find('\n', begin);
    if (end == std::string_view::npos) {
      if (rest.size() < kMaxChunkLine) return 0;
      return refuse(400, fmt::format("body: expected a chunk's size within {} bytes, found more",
                                     kMaxChunkLine));
    }
    if (end == begin || rest[end - 1] != '\r') {
      return refuse(400, "body: expected lines that end in CR LF, found LF alone");
    }
    const std::string_view line = rest.substr(begin, end - begin);
    if (const std::size_t zeros = line.find_first_not_of('0'); zeros == 0 || is_hex(line[zeros])) {
      return end + 1;
    }
    const std::string_view trailers = rest.substr(end - 1, limits.max_header_bytes);
    const std::size_t size = trailers.find("\r\n\r\n");
    if (size != std::string_view::npos) return end - 1 + size + 4;
    if (trailers.size() < limits.max_header_bytes) return 0;
    return refuse(431, fmt::format("trailers: expected at most {} bytes, found more",
                                   limits.max_header_bytes));
  }
};

HttpRequestReader::HttpRequestReader(const HttpLimits& limits)
    : impl_(std::make_unique<Impl>(limits)) {}
HttpRequestReader::~HttpRequestReader() = default;

std::size_t HttpRequestReader::take(std::string_view bytes) {
  Impl& in = *impl_;
  if (in.over()) return 0;
  std::string_view rest = bytes;
  const bool joined = !in.partial.empty();
  if (joined) {
    in.partial.append(bytes);
    rest = in.partial;
  }
  in.parse(rest);
  const std::size_t left = rest.size();
  if (in.over()) {
    in.partial = std::string();
    // A unit in parts cannot have ended before these bytes, so what is left of it is theirs.
    return in.parser.refusal ? bytes.size() : bytes.size() - left;
  }
  if (joined) {
    in.partial.erase(0, in.partial.size() - left);
  } else {
    in.partial.assign(rest);
  }
  return bytes.size();
}

bool HttpRequestReader::begun() const { return impl_->begun; }

bool HttpRequestReader::done() const { return !impl_->parser.refusal && impl_->parser.is_done(); }

const std::optional<HttpRefusal>& HttpRequestReader::refusal() const {
  return impl_->parser.refusal;
}

bool HttpRequestReader::take_expectation() {
  Parser& parser = impl_->parser;
  const bool expects = parser.expects_continue && !impl_->over() && !parser.has_body_bytes;
  parser.expects_continue = false;
  return expects;
}

bool HttpRequestReader::keep_alive() const { return impl_->parser.keep_alive(); }
bool HttpRequestReader::http_1_1() const { return impl_->parser.http_1_1; }
HttpRequest HttpRequestReader::take_request() { return std::move(impl_->parser.request); }

}  // namespace kipp
