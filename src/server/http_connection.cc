#include "server/http_connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <ctime>

#include "server/http_answer.h"

namespace kipp {
namespace {

constexpr std::chrono::seconds kLinger{2};             // for the client to read the last answer
constexpr std::chrono::milliseconds kHangUpPoll{100};  // where reading on is not possible
constexpr std::size_t kMaxPipelined = std::size_t{16} << 10;  // read ahead of an answer
constexpr std::size_t kKeptBuffer = std::size_t{4} << 10;     // with nothing to send

bool would_block(const error_code& ec) {
  return ec == asio::error::would_block || ec == asio::error::try_again;
}

// The other side has closed, though bytes it sent before may still wait.
bool hung_up(int socket) {
  pollfd poll{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return ::poll(&poll, 1, 0) > 0 && (poll.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace

class HttpExchange final : public Exchange {
 public:
  HttpExchange(Connection& connection, HttpRequest request)
      : connection_(&connection), request_(std::move(request)) {}
  ~HttpExchange() override;

  const HttpRequest& request() const override { return request_; }
  std::string take_body() override { return std::move(request_.body); }
  void set_header(std::string name, std::string value) override {
    headers_.emplace_back(std::move(name), std::move(value));
  }
  void respond(int status, std::string content_type, std::string body) override;
  void start_stream(std::string content_type, std::string idle_bytes,
                    std::chrono::milliseconds idle) override;
  void send(std::string bytes) override;
  void end_stream() override;
  void on_gone(std::function<void()> gone) override;
  bool gone() const override { return gone_; }

  // The connection is no more.
  void vanish();

 private:
  // Nothing more is expected of the connection, nor of the client.
  Connection& hand_over();

  Connection* connection_;  // null once the answer was handed over or the client has gone
  HttpRequest request_;
  Headers headers_;
  bool streaming_ = false;
  bool gone_ = false;
  std::function<void()> on_gone_;
};

HttpExchange::~HttpExchange() {
  if (connection_ != nullptr) connection_->abandon(streaming_);
}

Connection& HttpExchange::hand_over() { return *std::exchange(connection_, nullptr); }

void HttpExchange::respond(int status, std::string content_type, std::string body) {
  if (connection_ == nullptr || streaming_) return;
  const std::function<void()> released = std::move(on_gone_);  // last: it may hold this exchange
  hand_over().respond(status, std::move(content_type), body, std::move(headers_));
}

void HttpExchange::start_stream(std::string content_type, std::string idle_bytes,
                                std::chrono::milliseconds idle) {
  if (connection_ == nullptr || streaming_) return;
  streaming_ = true;
  connection_->start_stream(std::move(content_type), std::move(idle_bytes), idle,
                            std::move(headers_));
}

void HttpExchange::send(std::string bytes) {
  if (connection_ != nullptr && streaming_) connection_->send(bytes);
}

void HttpExchange::end_stream() {
  if (connection_ == nullptr || !streaming_) return;
  const std::function<void()> released = std::move(on_gone_);
  hand_over().end_stream();
}

void HttpExchange::on_gone(std::function<void()> gone) {
  if (gone_) {
    gone();
  } else if (connection_ != nullptr) {
    on_gone_ = std::move(gone);
  }
}

void HttpExchange::vanish() {
  connection_ = nullptr;
  gone_ = true;
  const std::function<void()> gone = std::move(on_gone_);
  if (gone) gone();
}

Connection::Connection(ConnectionHost& host, Socket socket, std::string peer)
    : host_(host),
      socket_(std::move(socket)),
      peer_(std::move(peer)),
      timer_(host.io),
      pause_(host.io) {}

void Connection::start() {
  waiting_since_ = Steady::now();
  rearm();
  asio::co_spawn(host_.io, read(shared_from_this()), asio::detached);
}

void Connection::start_refused(int status, const std::string& why) {
  start();
  refuse(status, why);
}

// Until the client closes or we do. The coroutine keeps its argument, and so the connection.
Coroutine Connection::read(std::shared_ptr<Connection> /*self*/) {
  error_code ec;
  while (phase_ != Phase::closed) {
    auto& scratch = host_.scratch;
    std::size_t room = scratch.size();
    if (phase_ == Phase::answering && keep_alive_) {
      room = kMaxPipelined - std::min(kMaxPipelined, pipelined_.size());
    }
    if (room == 0) {
      pause_.expires_after(kHangUpPoll);
      co_await pause_.async_wait(resumes_with(ec));
      if (exchange_ != nullptr && hung_up(socket_.native_handle())) drop(Drop::vanished);
      continue;
    }
    co_await socket_.async_wait(Socket::wait_read, resumes_with(ec));
    if (phase_ == Phase::closed) break;
    const std::size_t n = socket_.read_some(asio::buffer(scratch.data(), room), ec);
    if (would_block(ec)) continue;
    if (ec == asio::error::eof) {
      on_end_of_input();
      break;
    }
    if (ec) {
      drop(Drop::vanished);
      break;
    }
    take({scratch.data(), n});
  }
}

void Connection::take(std::string_view bytes) {
  if (phase_ == Phase::reading) {
    feed(bytes);
  } else if (phase_ == Phase::answering && keep_alive_) {
    pipelined_ += bytes;
  } else {
    discard(bytes.size());
  }
}

void Connection::feed(std::string_view bytes) {
  if (reader_ == nullptr) reader_ = std::make_unique<HttpRequestReader>(host_.limits);
  const bool began = reader_->begun();
  const std::size_t used = reader_->take(bytes);
  if (!began && reader_->begun()) waiting_since_ = Steady::now();
  if (const auto& refusal = reader_->refusal()) {
    const HttpRefusal why = *refusal;
    return refuse(why.status, why.message);
  }
  if (reader_->done()) {
    pipelined_ = bytes.substr(used);
    return dispatch();
  }
  if (reader_->take_expectation()) append("HTTP/1.1 100 Continue\r\n\r\n");
  rearm();
}

// Behind the last request of a connection, or one that was refused, anything may come; as much as a
// request may hold is thrown away, so that a client that sends first and reads then gets its
// answer.
void Connection::discard(std::size_t bytes) {
  discarded_ += bytes;
  if (discarded_ > host_.limits.max_body_bytes) drop(Drop::vanished);
}

// A client that only shuts its sending side looks the same as one that closed: it gets what is
// answered at once, and is held to have gone where that takes longer.
void Connection::on_end_of_input() {
  peer_closed_ = true;
  if (phase_ == Phase::answering && exchange_ == nullptr) return;
  drop(Drop::vanished);
}

void Connection::dispatch() {
  HttpRequest request = reader_->take_request();
  request.peer = peer_;
  keep_alive_ = reader_->keep_alive();
  http_1_1_ = reader_->http_1_1();
  head_only_ = request.method == "HEAD";
  reader_.reset();
  phase_ = Phase::answering;
  ++host_.counters.requests;
  auto exchange = std::make_unique<HttpExchange>(*this, std::move(request));
  exchange_ = exchange.get();
  host_.handle(std::move(exchange));
  if (exchange_ != nullptr && peer_closed_) drop(Drop::vanished);
}

void Connection::refuse(int status, const std::string& why) {
  ++host_.counters.refused;
  reader_.reset();
  phase_ = Phase::answering;
  keep_alive_ = false;
  head_only_ = false;
  respond(status, "application/json", http_error_body(status, why), {});
}

void Connection::respond(int status, std::string content_type, const std::string& body,
                         Headers headers) {
  write_head(status, std::move(content_type), std::move(headers), body.size());
  if (!head_only_ && http_has_body(status)) append(body);
  exchange_ = nullptr;
  handed_over_ = true;
}

void Connection::start_stream(std::string content_type, std::string idle_bytes,
                              std::chrono::milliseconds idle, Headers headers) {
  streaming_ = true;
  idle_bytes_ = std::move(idle_bytes);
  idle_ = idle_bytes_.empty() ? std::chrono::milliseconds(0) : idle;
  last_sent_ = Steady::now();
  if (!http_1_1_) keep_alive_ = false;
  write_head(200, std::move(content_type), std::move(headers), std::nullopt);
  rearm();
}

void Connection::send(std::string_view bytes) {
  last_sent_ = Steady::now();
  if (head_only_ || bytes.empty()) return;
  piled_up_ = blocked_ && pending() > host_.limits.max_unsent_bytes;
  if (!http_1_1_) return append(bytes);
  std::string chunk;
  chunk.reserve(bytes.size() + 16);
  append_chunk(chunk, bytes);
  append(chunk);
}

void Connection::end_stream() {
  if (http_1_1_ && !head_only_) append(kLastChunk);
  exchange_ = nullptr;
  handed_over_ = true;
  idle_ = std::chrono::milliseconds(0);
  append({});
}

void Connection::abandon(bool streaming) {
  exchange_ = nullptr;
  // A stream without its end must not look complete, also where only the end of the connection
  // would tell.
  if (streaming) return drop(Drop::cut);
  respond(500, "application/json", http_error_body(500, "the server gave no answer"), {});
}

void Connection::write_head(int status, std::string content_type, Headers headers,
                            std::optional<std::size_t> length) {
  if (host_.draining) keep_alive_ = false;
  HttpAnswerHead head;
  head.status = status;
  head.headers = std::move(headers);
  if (http_has_body(status)) {
    head.content_type = std::move(content_type);
    head.content_length = length;
    head.chunked = !length && http_1_1_;
  }
  if (!keep_alive_) {
    head.connection = "close";
  } else if (!http_1_1_) {
    head.connection = "keep-alive";
  }
  append(http_head(head, std::time(nullptr)));
}

void Connection::append(std::string_view bytes) {
  if (unsent_.empty()) last_taken_ = Steady::now();
  unsent_ += bytes;
  if (flush_due_ || (blocked_ && !piled_up_)) return;
  flush_due_ = true;
  host_.flush_later(shared_from_this());
}

void Connection::flush() {
  flush_due_ = false;
  if (phase_ == Phase::closed) return;
  while (!blocked_ && pending() > 0) {
    error_code ec;
    const std::size_t n = socket_.write_some(asio::buffer(unsent_.data() + sent_, pending()), ec);
    if (would_block(ec)) {
      wait_writable();
    } else if (ec) {
      return drop(Drop::vanished);
    } else {
      sent_ += n;
      last_taken_ = Steady::now();
    }
  }
  if (std::exchange(piled_up_, false) && pending() > host_.limits.max_unsent_bytes) {
    return drop(Drop::slow);
  }
  if (pending() > 0) return;
  sent_ = 0;
  unsent_.clear();
  if (unsent_.capacity() > kKeptBuffer) unsent_ = std::string();
  if (handed_over_) finish();
}

void Connection::wait_writable() {
  blocked_ = true;
  if (sent_ > pending()) unsent_.erase(0, std::exchange(sent_, 0));  // moves less than it frees
  rearm();
  socket_.async_wait(Socket::wait_write, [self = shared_from_this()](const error_code&) {
    self->blocked_ = false;
    self->flush();
  });
}

// The answer is with the kernel.
void Connection::finish() {
  handed_over_ = false;
  streaming_ = false;
  if (!keep_alive_ || host_.draining) return linger();
  phase_ = Phase::reading;
  first_request_ = false;
  waiting_since_ = Steady::now();
  pause_.cancel();
  if (!pipelined_.empty()) {
    const std::string bytes = std::exchange(pipelined_, {});
    feed(bytes);
  }
  if (phase_ == Phase::reading && peer_closed_) drop(Drop::closed);
  rearm();
}

void Connection::linger() {
  if (peer_closed_) return drop(Drop::closed);
  error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  phase_ = Phase::lingering;
  linger_until_ = Steady::now() + kLinger;
  pipelined_ = std::string();
  pause_.cancel();
  rearm();
}

void Connection::close_idle() {
  if (phase_ == Phase::reading && !request_begun()) drop(Drop::closed);
}

void Connection::drop(Drop why) {
  if (phase_ == Phase::closed) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  if (why == Drop::slow) ++host_.counters.dropped_slow;
  if (why == Drop::vanished && phase_ == Phase::answering) ++host_.counters.vanished;
  phase_ = Phase::closed;
  error_code ignored;
  if (why == Drop::slow || why == Drop::cut) {
    // A reset: the kernel shall not hold what nobody takes, and what was cut shall be seen to be.
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  }
  socket_.close(ignored);
  timer_.cancel();
  pause_.cancel();
  unsent_ = pipelined_ = std::string();
  sent_ = 0;
  reader_.reset();
  host_.forget(self);
  if (exchange_ != nullptr) std::exchange(exchange_, nullptr)->vanish();
}

Steady::time_point Connection::next_deadline() const {
  const HttpLimits& limits = host_.limits;
  Steady::time_point due = Steady::time_point::max();
  if (phase_ == Phase::closed) return due;
  if (phase_ == Phase::reading) {
    const bool hurry = first_request_ || request_begun();
    due = waiting_since_ + (hurry ? limits.request_timeout : limits.idle_timeout);
  } else if (phase_ == Phase::lingering) {
    due = linger_until_;
  } else if (streaming_ && idle_.count() > 0) {
    due = last_sent_ + idle_;
  }
  return blocked_ ? std::min(due, last_taken_ + limits.write_timeout) : due;
}

void Connection::rearm() {
  const Steady::time_point due = next_deadline();
  if (due >= armed_) return;
  armed_ = due;
  timer_.expires_at(due);
  timer_.async_wait([self = shared_from_this()](const error_code& ec) {
    if (!ec) self->on_timer();
  });
}

void Connection::on_timer() {
  armed_ = Steady::time_point::max();
  const Steady::time_point now = Steady::now();
  if (now >= next_deadline()) {
    if (blocked_ && now >= last_taken_ + host_.limits.write_timeout) return drop(Drop::slow);
    if (phase_ == Phase::answering) {
      // Where bytes wait already, the client has no need of these.
      if (blocked_) {
        last_sent_ = now;
      } else {
        send(idle_bytes_);
      }
    } else if (request_begun() && phase_ == Phase::reading) {
      refuse(408, fmt::format("request: expected all of it within {} ms, found less",
                              host_.limits.request_timeout.count()));
    } else {
      return drop(Drop::closed);
    }
  }
  rearm();
}

}  // namespace kipp
