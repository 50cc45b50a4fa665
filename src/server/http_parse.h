// Bytes of a connection into requests, one at a time, however the network cuts them. Knows no
// socket, so that a fuzzer can throw anything at it.
//
// Where leniency lets two readers disagree about where a request ends, it refuses: a second
// Content-Length, Transfer-Encoding that is not exactly "chunked" or stands beside Content-Length,
// folded header lines, lines that end in a bare LF, spaces before a colon.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http.h"
#include "server/http_server.h"

namespace kipp {

// Why a request is not handed on, and with what status that is answered.
struct HttpRefusal {
  int status = 400;
  std::string message;  // holds nothing of what the client sent
};

class HttpRequestReader {
 public:
  explicit HttpRequestReader(const HttpLimits& limits);
  ~HttpRequestReader();
  HttpRequestReader(const HttpRequestReader&) = delete;
  HttpRequestReader& operator=(const HttpRequestReader&) = delete;

  // Takes bytes up to the end of the request and says how many; what is left is the next one's.
  std::size_t take(std::string_view bytes);

  bool begun() const;  // more than empty lines has come
  bool done() const;
  const std::optional<HttpRefusal>& refusal() const;
  // The client waits for "100 Continue" before it sends the body. True once.
  bool take_expectation();

  // Once done.
  bool keep_alive() const;
  bool http_1_1() const;
  HttpRequest take_request();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kipp
