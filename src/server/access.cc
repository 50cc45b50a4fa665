#include "server/access.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cctype>

namespace kipp {
namespace {

// "Example.org:8080" -> "example.org", "[::1]:8080" -> "[::1]".
std::string host_name(std::string_view header) {
  const auto bracket = header.rfind(']');
  const auto colon = header.rfind(':');
  if (colon != std::string_view::npos &&
      (bracket == std::string_view::npos ? header.find(':') == colon : colon > bracket)) {
    header = header.substr(0, colon);
  }
  std::string name(header);
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

// In a time that depends on the lengths alone.
bool same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

std::vector<std::string> loopback_hosts() { return {"localhost", "127.0.0.1", "[::1]"}; }

Access::Access(AccessRules rules) : rules_(std::move(rules)) {}

std::optional<ApiError> Access::refuse_host(const HttpRequest& request) const {
  const std::string name = host_name(request.header("host"));
  if (rules_.hosts.empty() || std::ranges::find(rules_.hosts, name) != rules_.hosts.end()) {
    return std::nullopt;
  }
  return ApiError{
      .status = 403,
      .message = fmt::format("Host: expected {}, found \"{}\" (--allowed-host adds one)",
                             fmt::join(rules_.hosts, ", "), name),
      .param = {},
      .code = "host_not_allowed"};
}

std::optional<ApiError> Access::refuse_key(const HttpRequest& request) const {
  if (rules_.api_keys.empty()) return std::nullopt;
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view header = request.header("authorization");
  if (header.empty()) {
    return ApiError{.status = 401,
                    .message = "Authorization: expected \"Bearer\" and an API key, found none",
                    .param = {},
                    .code = "missing_api_key"};
  }
  bool known = false;
  if (header.starts_with(kScheme)) {
    for (const std::string& key : rules_.api_keys)
      known |= same(header.substr(kScheme.size()), key);
  }
  if (known) return std::nullopt;
  return ApiError{.status = 401,
                  .message =
                      "Authorization: expected \"Bearer\" and a key of this server, found "
                      "something else",
                  .param = {},
                  .code = "invalid_api_key"};
}

const std::string* Access::allowed_origin(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin");
  for (const std::string& allowed : rules_.cors_origins) {
    if (allowed == "*" || (!origin.empty() && allowed == origin)) return &allowed;
  }
  return nullptr;
}

void Access::allow_origin(Exchange& exchange) const {
  if (rules_.cors_origins.empty()) return;
  exchange.set_header("Vary", "Origin");
  if (const std::string* origin = allowed_origin(exchange.request())) {
    exchange.set_header("Access-Control-Allow-Origin", *origin);
    exchange.set_header("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  }
}

void Access::answer_preflight(Exchange& exchange) const {
  if (allowed_origin(exchange.request())) {
    exchange.set_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    exchange.set_header("Access-Control-Allow-Headers",
                        "Authorization, Content-Type, X-Request-Id");
    exchange.set_header("Access-Control-Max-Age", "600");
  }
  exchange.respond(204, {}, {});
}

}  // namespace kipp
