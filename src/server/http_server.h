// HTTP/1.1 over TCP: connections, limits and time-outs on one I/O thread, and one helper thread for
// work that would hold it up. Boost.Beast and Asio are known to its sources alone: http_parse.cc
// the one, http_connection.* and http_server.cc the other.
//
// Refused before the handler hears of it, with a JSON error of the OpenAI shape: a body beyond the
// limit (413), headers beyond theirs (431), what is not HTTP (400). Clients that are slow to send a
// request get 408; who is slow to read, or comes when all connections are taken, is dropped (503
// where it can still be said).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/types.h"
#include "server/http.h"

namespace kipp {

struct HttpLimits {
  std::size_t max_body_bytes = std::size_t{16} << 20;
  std::size_t max_header_bytes = std::size_t{16} << 10;
  int max_connections = 1024;
  std::size_t max_unsent_bytes = std::size_t{1} << 20;  // of one answer that streams
  std::chrono::milliseconds request_timeout{30'000};    // from the first byte to the last
  std::chrono::milliseconds idle_timeout{120'000};      // between two requests of a connection
  std::chrono::milliseconds write_timeout{30'000};      // without the client taking a byte
};

struct HttpStats {
  int connections = 0;             // open now
  std::uint64_t requests = 0;      // since the start, handed to the handler
  std::uint64_t refused = 0;       // since the start, answered or dropped before
  std::uint64_t dropped_slow = 0;  // since the start, for not reading
  std::uint64_t vanished = 0;      // since the start, in the middle of an answer
};

class HttpServer {
 public:
  // Binds and listens; port 0 takes a free one. `handler` is called on the I/O thread.
  static Result<std::unique_ptr<HttpServer>> listen(const std::string& host, int port,
                                                    const HttpLimits& limits, HttpHandler handler);
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  virtual std::string address() const = 0;  // "127.0.0.1:8080", "[::1]:8080"

  // Serves until stop(); the calling thread becomes the I/O thread. Once it returns nothing handed
  // in runs any more, on the helper thread neither.
  virtual void run() = 0;
  // From any thread: runs `task` on the I/O thread, in order.
  virtual void post(std::function<void()> task) = 0;
  // From any thread: runs `work` on the helper thread, then `done` on the I/O thread.
  virtual void offload(std::function<void()> work, std::function<void()> done) = 0;
  // On the I/O thread: runs `task` there after that time.
  virtual void after(std::chrono::milliseconds delay, std::function<void()> task) = 0;

  // From any thread. No new connections; answers under way go on and their connections close behind
  // them; idle ones close now. `drained` runs on the I/O thread when none is left.
  virtual void drain(std::function<void()> drained) = 0;
  // From any thread: drops what is open and makes run() return.
  virtual void stop() = 0;

  virtual HttpStats stats() const = 0;  // on the I/O thread
};

}  // namespace kipp
