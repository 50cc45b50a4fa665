// A client of bytes: says exactly what it is told and shows exactly what comes, so that tests can
// be wrong in every way a client can.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace kipp::test {

struct HttpAnswer {
  int status = 0;
  std::string head;  // the status line and the headers
  std::string body;  // chunks joined
  bool complete = false;

  bool has(std::string_view header_line) const {
    return head.find("\r\n" + std::string(header_line) + "\r\n") != std::string::npos;
  }
};

class HttpClient {
 public:
  // What a test waits for something that must come, at most.
  static constexpr std::chrono::milliseconds kPatience{20'000};

  // Without a receive buffer's size the kernel takes megabytes for a client that reads nothing.
  explicit HttpClient(int port, int receive_buffer = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) {
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~HttpClient() { close(); }
  HttpClient(HttpClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)),
        connected_(other.connected_),
        buffer_(std::move(other.buffer_)) {}
  HttpClient& operator=(HttpClient&&) = delete;

  bool connected() const { return connected_; }

  // Whether all of it was taken.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  bool get(std::string_view path, std::string_view headers = "") {
    return send("GET " + std::string(path) + " HTTP/1.1\r\nHost: h\r\n" + std::string(headers) +
                "\r\n");
  }

  // One read; false at the end of the connection, or when nothing comes.
  bool receive(std::chrono::milliseconds patience = kPatience) {
    pollfd poll{.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&poll, 1, static_cast<int>(patience.count())) <= 0) return false;
    char bytes[65536];
    const ssize_t n = ::recv(socket_, bytes, sizeof bytes, 0);
    ended_ = n == 0;
    reset_ = n < 0;
    if (n > 0) buffer_.append(bytes, static_cast<std::size_t>(n));
    return n > 0;
  }
  bool receive_until(std::string_view text) {
    while (buffer_.find(text) == std::string::npos) {
      if (!receive()) return false;
    }
    return true;
  }
  // What has come and was not taken by an answer.
  const std::string& buffer() const { return buffer_; }

  HttpAnswer answer(bool head_only = false) {
    HttpAnswer out;
    if (!receive_until("\r\n\r\n")) return out;
    const std::size_t end = buffer_.find("\r\n\r\n") + 4;
    out.head = buffer_.substr(0, end);
    buffer_.erase(0, end);
    out.status = std::stoi(out.head.substr(9, 3));
    const std::size_t length = out.head.find("Content-Length: ");
    if (head_only) {
      out.complete = true;
    } else if (out.has("Transfer-Encoding: chunked")) {
      out.complete = read_chunks(out.body);
    } else if (length != std::string::npos) {
      const std::size_t size = std::stoul(out.head.substr(length + 16));
      while (buffer_.size() < size && receive()) {
      }
      out.complete = buffer_.size() >= size;
      out.body = buffer_.substr(0, size);
      buffer_.erase(0, out.body.size());
    } else {
      while (receive()) {
      }
      out.complete = ended_;
      out.body = std::exchange(buffer_, {});
    }
    return out;
  }

  // Nothing more comes, and the connection ends: in order, or also by a reset.
  bool closed() { return !receive() && ended_ && buffer_.empty(); }
  bool closed_or_reset() {
    while (receive()) {
    }
    return ended_ || reset_;
  }
  bool silent(std::chrono::milliseconds time) { return !receive(time) && !ended_ && !reset_; }

  void shut_sending() { ::shutdown(socket_, SHUT_WR); }
  void reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }

  // What is left of a stream, joined; whether its end came.
  bool read_chunks(std::string& body) {
    for (;;) {
      if (!receive_until("\r\n")) return false;
      const std::size_t line = buffer_.find("\r\n") + 2;
      const std::size_t size = std::stoul(buffer_, nullptr, 16);
      while (buffer_.size() < line + size + 2) {
        if (!receive()) return false;
      }
      body += buffer_.substr(line, size);
      buffer_.erase(0, line + size + 2);
      if (size == 0) return true;
    }
  }

 private:
  int socket_;
  bool connected_ = false;
  bool ended_ = false;
  bool reset_ = false;
  std::string buffer_;
};

}  // namespace kipp::test
