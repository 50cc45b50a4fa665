#include "server/http_server.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "server/helper_thread.h"
#include "server/http_connection.h"

namespace kipp {
namespace {

constexpr std::chrono::milliseconds kAcceptRetry{50};  // without file descriptors left
constexpr std::size_t kRefusalRoom = 64;  // connections beyond the most, each only told so

std::string address_text(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

std::string peer_text(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  }
  return address.to_string();
}

// What comes to the I/O thread from others. Outlives the server, because exchanges do.
class IoTasks : public std::enable_shared_from_this<IoTasks> {
 public:
  explicit IoTasks(asio::io_context& io) : io_(io) {}

  void this_is_the_thread() { thread_ = std::this_thread::get_id(); }

  void post(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    tasks_.push_back(std::move(task));
    wake();
  }

  // Whoever lets go of an exchange may be any thread; what that means to its connection is decided
  // on one.
  void destroy(std::unique_ptr<Exchange> exchange) {
    if (thread_.load() == std::this_thread::get_id()) return;
    const std::lock_guard lock(mutex_);
    if (closed_) return;  // no connection knows it any more
    released_.push_back(std::move(exchange));
    wake();
  }

  // Afterwards nothing is taken and nothing runs.
  void close() {
    std::vector<std::function<void()>> tasks;  // destroyed without the lock
    std::vector<std::unique_ptr<Exchange>> released;
    const std::lock_guard lock(mutex_);
    closed_ = true;
    tasks.swap(tasks_);
    released.swap(released_);
  }

 private:
  void wake() {
    if (std::exchange(woken_, true)) return;
    asio::post(io_, [self = shared_from_this()] { self->run(); });
  }

  void run() {
    std::vector<std::unique_ptr<Exchange>> released;
    {
      const std::lock_guard lock(mutex_);
      woken_ = false;
      running_.swap(tasks_);
      released.swap(released_);
    }
    for (std::function<void()>& task : running_) task();
    running_.clear();
  }

  asio::io_context& io_;  // not touched once closed
  std::atomic<std::thread::id> thread_;

  std::mutex mutex_;  // guards what follows
  std::vector<std::function<void()>> tasks_;
  std::vector<std::unique_ptr<Exchange>> released_;
  bool woken_ = false;
  bool closed_ = false;

  std::vector<std::function<void()>> running_;  // the I/O thread's
};

struct Listener {
  explicit Listener(asio::io_context& io) : acceptor(io), retry(io) {}

  Acceptor acceptor;
  Timer retry;
};

class Server final : public HttpServer, private ConnectionHost {
 public:
  Server(const HttpLimits& its_limits, HttpHandler handler)
      : ConnectionHost(its_limits),
        handler_(std::move(handler)),
        tasks_(std::make_shared<IoTasks>(io)) {}
  ~Server() override { tasks_->close(); }

  Result<void> bind(const std::string& host, int port);

  int port() const override { return port_; }
  std::string address() const override { return address_; }
  void run() override;
  void post(std::function<void()> task) override { tasks_->post(std::move(task)); }
  void offload(std::function<void()> work, std::function<void()> done) override;
  void after(std::chrono::milliseconds delay, std::function<void()> task) override;
  void drain(std::function<void()> drained) override;
  void stop() override;
  HttpStats stats() const override;

 private:
  void flush_later(std::shared_ptr<Connection> connection) override;
  void handle(std::unique_ptr<Exchange> exchange) override;
  void forget(const std::shared_ptr<Connection>& connection) override;

  Coroutine accept(Listener& listener);
  void admit(Socket socket, const tcp::endpoint& peer);
  void close_listeners();
  void flush_all();
  void tell_if_drained();
  void stop_here();

  const HttpHandler handler_;
  const std::shared_ptr<IoTasks> tasks_;
  HelperThread helper_;

  std::vector<std::unique_ptr<Listener>> listeners_;
  int port_ = 0;
  std::string address_;

  std::unordered_set<std::shared_ptr<Connection>> connections_;
  std::vector<std::shared_ptr<Connection>> to_flush_;
  std::vector<std::shared_ptr<Connection>> flushing_;
  std::unordered_set<std::shared_ptr<Timer>> timers_;
  std::vector<std::function<void()>> drained_;
  bool stopped_ = false;
  std::optional<asio::executor_work_guard<Executor>> work_;
};

// "[::1]" is how an IPv6 address stands before a port.
std::string without_brackets(const std::string& host) {
  if (host.size() < 2 || host.front() != '[' || host.back() != ']') return host;
  return host.substr(1, host.size() - 2);
}

Result<void> Server::bind(const std::string& host, int port) {
  if (port < 0 || port > 65535) {
    return fail(ErrorCode::invalid, "port: expected 0 to 65535, found {}", port);
  }
  if (host.empty()) {
    return fail(ErrorCode::invalid, "host: expected an address or a name, found nothing (port {})",
                port);
  }
  error_code ec;
  asio::ip::basic_resolver<tcp, Executor> resolver(io);
  const auto found =
      resolver.resolve(host, std::to_string(port), asio::ip::resolver_base::numeric_service, ec);
  if (ec || found.empty()) {
    return fail(ErrorCode::invalid, "cannot listen on {}: the host is not known ({})",
                address_text(host, port), ec.message());
  }
  // A name may stand for an IPv4 and an IPv6 address, and clients try either.
  error_code why;
  for (const auto& entry : found) {
    tcp::endpoint endpoint = entry.endpoint();
    if (port_ != 0) endpoint.port(static_cast<asio::ip::port_type>(port_));
    const bool again = std::any_of(listeners_.begin(), listeners_.end(), [&](const auto& other) {
      error_code ignored;
      return other->acceptor.local_endpoint(ignored) == endpoint;
    });
    if (again) continue;  // /etc/hosts may name an address twice
    auto listener = std::make_unique<Listener>(io);
    Acceptor& acceptor = listener->acceptor;
    acceptor.open(endpoint.protocol(), ec);
    if (!ec) acceptor.set_option(asio::socket_base::reuse_address(true), ec);
    if (!ec) acceptor.bind(endpoint, ec);
    if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
    if (ec == asio::error::address_in_use) {
      return fail(ErrorCode::io, "cannot listen on {}: the address is already in use",
                  address_text(host, endpoint.port()));
    }
    if (ec) {
      why = ec;
      continue;
    }
    // Connections have these from the socket that listens. A client whose cable was pulled ends
    // like one that reads nothing, a second later, so that the two can be told apart; a silent one
    // is asked after half a minute. Beyond 64 KiB that were not sent, the kernel takes no more:
    // what a slow reader leaves is ours to count.
    const auto set = [&](int level, int option, int value) {
      ::setsockopt(acceptor.native_handle(), level, option, &value, sizeof value);
    };
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, 64 << 10);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(limits.write_timeout.count()) + 1000);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
    if (listeners_.empty()) {
      const tcp::endpoint bound = acceptor.local_endpoint(ec);
      port_ = bound.port();
      address_ = address_text(bound.address().to_string(), port_);
    }
    listeners_.push_back(std::move(listener));
  }
  if (listeners_.empty()) {
    return fail(ErrorCode::io, "cannot listen on {}: {}", address_text(host, port), why.message());
  }
  return {};
}

void Server::run() {
  tasks_->this_is_the_thread();
  work_.emplace(io.get_executor());
  for (const auto& listener : listeners_) {
    asio::co_spawn(io, accept(*listener), asio::detached);
  }
  io.run();
  helper_.stop();  // what it works on may go once this returns
}

Coroutine Server::accept(Listener& listener) {
  while (listener.acceptor.is_open()) {
    Socket socket(io);
    tcp::endpoint peer;
    error_code ec;
    co_await listener.acceptor.async_accept(socket, peer, resumes_with(ec));
    if (!listener.acceptor.is_open()) break;
    if (!ec) {
      admit(std::move(socket), peer);
    } else if (ec != asio::error::connection_aborted) {
      // Out of file descriptors or memory: trying again at once would spin, and those who wait in
      // the backlog lose nothing.
      listener.retry.expires_after(kAcceptRetry);
      co_await listener.retry.async_wait(resumes_with(ec));
    }
  }
}

void Server::admit(Socket socket, const tcp::endpoint& peer) {
  error_code ec;
  socket.non_blocking(true, ec);
  const auto limit = static_cast<std::size_t>(limits.max_connections);
  const bool full = connections_.size() >= limit;
  if (ec || connections_.size() >= limit + kRefusalRoom) {
    ++counters.refused;
    return;
  }
  ConnectionHost& host = *this;
  const auto connection =
      std::make_shared<Connection>(host, std::move(socket), peer_text(peer.address()));
  connections_.insert(connection);
  if (full) {
    connection->start_refused(503, fmt::format("all {} connections are taken", limit));
  } else {
    connection->start();
  }
}

void Server::handle(std::unique_ptr<Exchange> exchange) {
  handler_(std::shared_ptr<Exchange>(exchange.release(), [tasks = tasks_](Exchange* released) {
    tasks->destroy(std::unique_ptr<Exchange>(released));
  }));
}

void Server::flush_later(std::shared_ptr<Connection> connection) {
  if (to_flush_.empty()) {
    asio::post(io, [this] { flush_all(); });
  }
  to_flush_.push_back(std::move(connection));
}

void Server::flush_all() {
  flushing_.swap(to_flush_);
  for (const auto& connection : flushing_) connection->flush();
  flushing_.clear();
}

void Server::forget(const std::shared_ptr<Connection>& connection) {
  connections_.erase(connection);
  tell_if_drained();
}

void Server::offload(std::function<void()> work, std::function<void()> done) {
  helper_.run([tasks = tasks_, work = std::move(work), done = std::move(done)]() mutable {
    work();
    tasks->post(std::move(done));
  });
}

void Server::after(std::chrono::milliseconds delay, std::function<void()> task) {
  if (stopped_) return;
  const auto timer = std::make_shared<Timer>(io, delay);
  timers_.insert(timer);
  timer->async_wait([this, timer, task = std::move(task)](const error_code& ec) {
    timers_.erase(timer);
    if (!ec && !stopped_) task();
  });
}

void Server::drain(std::function<void()> drained) {
  tasks_->post([this, drained = std::move(drained)] {
    draining = true;
    drained_.push_back(drained);
    close_listeners();
    const std::vector<std::shared_ptr<Connection>> open(connections_.begin(), connections_.end());
    for (const auto& connection : open) connection->close_idle();
    tell_if_drained();
  });
}

void Server::tell_if_drained() {
  if (!draining || !connections_.empty()) return;
  for (std::function<void()>& drained : std::exchange(drained_, {})) {
    asio::post(io, std::move(drained));
  }
}

void Server::stop() {
  asio::post(io, [this] { stop_here(); });
}

// Whatever is pending ends because of this, and run() with the last of it.
void Server::stop_here() {
  if (std::exchange(stopped_, true)) return;
  close_listeners();
  drained_.clear();
  for (const auto& timer : timers_) timer->cancel();
  const std::vector<std::shared_ptr<Connection>> open(connections_.begin(), connections_.end());
  for (const auto& connection : open) connection->close();
  tasks_->close();
  work_.reset();
}

void Server::close_listeners() {
  for (const auto& listener : listeners_) {
    error_code ignored;
    listener->acceptor.close(ignored);
    listener->retry.cancel();
  }
}

HttpStats Server::stats() const {
  HttpStats now = counters;
  now.connections = static_cast<int>(connections_.size());
  return now;
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const std::string& host, int port,
                                                       const HttpLimits& limits,
                                                       HttpHandler handler) {
  auto server = std::make_unique<Server>(limits, std::move(handler));
  KIPP_TRY(server->bind(without_brackets(host), port));
  return server;
}

}  // namespace kipp
