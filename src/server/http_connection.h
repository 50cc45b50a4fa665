// One client's connection: its requests in turn, and the answer under way. Private to the HTTP
// layer, with Asio in it; what others see stands in http.h and http_server.h.
//
// A connection reads at all times, also while its request is answered, because only that tells at
// once that the client has gone. What is sent within one turn of the loop leaves in one write at
// its end. All of it runs on the I/O thread.
#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http.h"
#include "server/http_parse.h"
#include "server/http_server.h"

namespace kipp {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;
// Concrete executors: the type-erased default costs an indirection per event, and compile time.
using Executor = asio::io_context::executor_type;
using Socket = asio::basic_stream_socket<tcp, Executor>;
using Acceptor = asio::basic_socket_acceptor<tcp, Executor>;
using Steady = std::chrono::steady_clock;
using Timer = asio::basic_waitable_timer<Steady, asio::wait_traits<Steady>, Executor>;
using Coroutine = asio::awaitable<void, Executor>;
using Headers = std::vector<std::pair<std::string, std::string>>;

inline auto resumes_with(error_code& ec) {
  return asio::redirect_error(asio::use_awaitable_t<Executor>(), ec);
}

class Connection;

// What all connections of a server share.
struct ConnectionHost {
  explicit ConnectionHost(const HttpLimits& its_limits) : limits(its_limits) {}
  virtual ~ConnectionHost() = default;

  // Connection::flush(), once the current turn of the loop is over.
  virtual void flush_later(std::shared_ptr<Connection> connection) = 0;
  virtual void handle(std::unique_ptr<Exchange> exchange) = 0;
  virtual void forget(const std::shared_ptr<Connection>& connection) = 0;

  const HttpLimits limits;
  asio::io_context io{1};
  HttpStats counters;
  bool draining = false;
  std::array<char, std::size_t{64} << 10> scratch;  // what one read brings, before it is taken
};

class HttpExchange;

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionHost& host, Socket socket, std::string peer);

  void start();
  void start_refused(int status, const std::string& why);
  void close_idle();  // unless a request has begun
  void close() { drop(Drop::closed); }
  void flush();

  // The exchange's side. The last call of an answer is `respond`, `end_stream` or `abandon`.
  void respond(int status, std::string content_type, const std::string& body, Headers headers);
  void start_stream(std::string content_type, std::string idle_bytes,
                    std::chrono::milliseconds idle, Headers headers);
  void send(std::string_view bytes);
  void end_stream();
  void abandon(bool streaming);

 private:
  enum class Phase {
    reading,    // a request, or waiting for one
    answering,  // one was handed on; ends when the last byte of its answer is with the kernel
    lingering,  // all was said and ours is shut; closing before the client does loses its answer
    closed,
  };
  enum class Drop { closed, vanished, slow, cut };

  Coroutine read(std::shared_ptr<Connection> self);
  void take(std::string_view bytes);
  void feed(std::string_view bytes);
  void discard(std::size_t bytes);
  void on_end_of_input();
  void dispatch();
  void refuse(int status, const std::string& why);

  void append(std::string_view bytes);
  void write_head(int status, std::string content_type, Headers headers,
                  std::optional<std::size_t> length);
  void wait_writable();
  void finish();
  void linger();
  void drop(Drop why);
  std::size_t pending() const { return unsent_.size() - sent_; }

  bool request_begun() const { return reader_ != nullptr && reader_->begun(); }
  Steady::time_point next_deadline() const;
  void rearm();
  void on_timer();

  ConnectionHost& host_;
  Socket socket_;
  const std::string peer_;
  Phase phase_ = Phase::reading;

  std::unique_ptr<HttpRequestReader> reader_;  // none between requests
  std::string pipelined_;                      // read behind the request that is being answered
  bool peer_closed_ = false;                   // its sending side
  bool first_request_ = true;
  std::size_t discarded_ = 0;

  HttpExchange* exchange_ = nullptr;  // while its answer is not complete
  bool keep_alive_ = true;
  bool http_1_1_ = true;
  bool head_only_ = false;
  bool streaming_ = false;
  bool handed_over_ = false;  // the answer is complete, but for `unsent_`

  std::string unsent_;
  std::size_t sent_ = 0;   // of `unsent_`
  bool blocked_ = false;   // the socket takes no more for now
  bool piled_up_ = false;  // and more than the limit waited when more came
  bool flush_due_ = false;

  std::string idle_bytes_;
  std::chrono::milliseconds idle_{0};

  Steady::time_point waiting_since_;  // for the request's first byte, or its last
  Steady::time_point last_sent_;      // a piece of the stream
  Steady::time_point last_taken_;     // by the socket, or when there was nothing
  Steady::time_point linger_until_;

  // One timer for all of them. It is only set to an earlier time, never to a later one: a stream
  // that moves its deadlines with each token would pay for that. It looks when it fires.
  Timer timer_;
  Steady::time_point armed_ = Steady::time_point::max();
  Timer pause_;  // of reading, while `pipelined_` is full
};

}  // namespace kipp
