// One HTTP GET at a time over libcurl, for downloads that must not be fooled. Follows redirects
// itself, so that the bearer token goes to its own origin only and never from https to http; tells
// a body that arrived whole from one that broke off; gives up on a transfer that crawls. Says
// nothing about files or retries: hub.h does.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/types.h"

namespace kipp {

struct HttpQuery {
  std::string url;
  std::uint64_t offset = 0;  // above 0: asks for the bytes from there on
  std::string ca_file;       // certificates to trust instead of the system's; empty: the system's
  std::string token;         // bearer; sent to the origin of `url` and nowhere else
  std::chrono::milliseconds connect_timeout{20000};
  // A transfer that moves fewer than min_bytes within this time has stalled.
  std::chrono::milliseconds stall_timeout{30000};
  std::uint64_t min_bytes = 1 << 15;
  const std::atomic<bool>* cancel = nullptr;
};

struct ContentRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::optional<std::uint64_t> total;
};

// The head of the answer after all redirects.
struct HttpHead {
  long status = 0;
  std::optional<std::uint64_t> content_length;
  std::optional<ContentRange> content_range;
  std::optional<std::chrono::seconds> retry_after;  // given in seconds; dates are not read
  bool self_delimiting = false;  // chunked or HTTP/2: the end of the body can be told from a cut
};

// Takes the body of the final answer.
class BodySink {
 public:
  virtual ~BodySink() = default;
  // Called once, before any byte, also when the body is empty. false: the body is not wanted.
  virtual bool begin(const HttpHead& head) = 0;
  // false: stop here.
  virtual bool write(std::span<const std::byte> bytes) = 0;
};

enum class HttpEnd : std::uint8_t {
  whole,        // the body ended where the server said it would
  declined,     // the sink did not want it, or not all of it
  lost,         // the connection failed, broke off or stalled: trying again may help
  impossible,   // trying again can not help: malformed URL, certificate, redirect loop
  interrupted,  // cancel was set
};

struct HttpReply {
  HttpEnd end = HttpEnd::whole;
  HttpHead head;
  std::string problem;  // for lost and impossible: what happened, in words
};

class HttpClient {
 public:
  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  HttpReply get(const HttpQuery& request, BodySink& sink);

 private:
  struct Handles;
  std::unique_ptr<Handles> handles_;
};

inline constexpr int kMaxRedirects = 10;

}  // namespace kipp
