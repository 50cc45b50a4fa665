// Bytes as what a client sends: any number of requests behind one another. The invariants that
// matter: it makes no difference how the network cuts the bytes, nothing beyond the limits is
// handed on, and every refusal can be told to the client.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "server/http_parse.h"

namespace {

using namespace kipp;

constexpr HttpLimits kLimits{.max_body_bytes = 512, .max_header_bytes = 1024};

void check(bool holds) {
  if (!holds) std::abort();
}

// Every request in `bytes`, read in pieces of `size`; ends with the refusal's status, or 0.
struct Reading {
  std::vector<HttpRequest> requests;
  int refused = 0;
};

void check_request(const HttpRequest& request) {
  check(!request.method.empty());
  check(request.path.starts_with('/') || request.path == "*");
  check(request.body.size() <= kLimits.max_body_bytes);
  std::size_t head = 0;
  for (const auto& [name, value] : request.headers) {
    check(!name.empty());
    for (const std::string& text : {name, value}) {
      check(text.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
    }
    head += name.size() + value.size();
  }
  check(head <= kLimits.max_header_bytes);
}

Reading read(std::string_view bytes, std::size_t size) {
  Reading out;
  while (!bytes.empty()) {
    HttpRequestReader reader(kLimits);
    while (!bytes.empty() && !reader.done() && !reader.refusal()) {
      const std::size_t used = reader.take(bytes.substr(0, size));
      check(used <= std::min(size, bytes.size()));
      check(used > 0);
      bytes.remove_prefix(used);
      reader.take_expectation();
    }
    if (const auto& refusal = reader.refusal()) {
      check(refusal->status >= 400 && refusal->status < 500);
      check(!refusal->message.empty());
      check(refusal->message.find_first_of("\"\\") == std::string::npos);
      out.refused = refusal->status;
      return out;
    }
    if (!reader.done()) return out;
    reader.keep_alive();
    out.requests.push_back(reader.take_request());
    check_request(out.requests.back());
  }
  return out;
}

void check_same(const Reading& a, const Reading& b) {
  check(a.refused == b.refused);
  check(a.requests.size() == b.requests.size());
  for (std::size_t i = 0; i < a.requests.size(); ++i) {
    check(a.requests[i].method == b.requests[i].method);
    check(a.requests[i].path == b.requests[i].path);
    check(a.requests[i].query == b.requests[i].query);
    check(a.requests[i].headers == b.requests[i].headers);
    check(a.requests[i].body == b.requests[i].body);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Reading whole = read(bytes, std::string_view::npos);
  check_same(whole, read(bytes, 1));
  check_same(whole, read(bytes, size % 13 + 2));
  return 0;
}
