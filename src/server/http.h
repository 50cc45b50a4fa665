// What the HTTP layer and the layers above it say to each other: a request, and the answer under
// way. Nothing here knows a socket, so that everything above can be tested without one.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kipp {

struct HttpRequest {
  std::string method;                                        // as sent: GET, POST ...
  std::string path;                                          // without the query; not decoded
  std::string query;                                         // what follows the question mark
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case, as they came
  std::string body;
  std::string peer;  // the client's address, for the log

  // Of the first header of that name, given in lower case; empty when there is none.
  std::string_view header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return {};
  }
};

// One request and its answer: either respond(), or start_stream(), send() any number of times, and
// end_stream(). Used on the I/O thread alone; whoever holds it keeps it alive, and letting go of it
// unanswered is answered with 500. After the client has vanished everything is accepted and
// dropped.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const HttpRequest& request() const = 0;
  // The request's body, given away where the implementation can: a stream is not to hold the
  // megabytes that asked for it. request().body is empty afterwards, or not.
  virtual std::string take_body() { return request().body; }
  // For the answer; before respond() or start_stream(). The HTTP layer writes Content-Type,
  // Content-Length, Connection and Date itself.
  virtual void set_header(std::string name, std::string value) = 0;
  virtual void respond(int status, std::string content_type, std::string body) = 0;
  // Status 200 and a body in pieces. Where nothing was sent for `idle`, `idle_bytes` are, so that
  // neither side's time-out strikes while a long prompt is read; zero: never.
  virtual void start_stream(std::string content_type, std::string idle_bytes,
                            std::chrono::milliseconds idle) = 0;
  // Sent as soon as the socket takes it. A client that lets more than the limit pile up is dropped.
  virtual void send(std::string bytes) = 0;
  virtual void end_stream() = 0;

  // Called once if the client vanishes or is dropped before the answer was handed over, by
  // respond() or end_stream(), never after; at once if it has gone already. Not from within another
  // function of this class.
  virtual void on_gone(std::function<void()> gone) = 0;
  virtual bool gone() const = 0;
};

using HttpHandler = std::function<void(std::shared_ptr<Exchange>)>;

}  // namespace kipp
