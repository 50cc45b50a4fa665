// Who may ask, and from where: API keys, the Host header, origins of browsers. What is not allowed
// is refused before the body is looked at.
//
// The Host check keeps web pages that point a name of theirs at the loopback address (DNS
// rebinding) from talking to a server nobody meant to publish.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/generate_call.h"
#include "server/http.h"

namespace kipp {

struct AccessRules {
  std::vector<std::string> api_keys;      // any of them; empty: none is asked for
  std::vector<std::string> cors_origins;  // "https://example.org", or "*"; empty: none
  std::vector<std::string> hosts;         // lower case, without port; empty: any
};

// The names by which a server on a loopback address is called.
std::vector<std::string> loopback_hosts();

class Access {
 public:
  explicit Access(AccessRules rules);

  // What a request is refused with; nothing where it may go on.
  std::optional<ApiError> refuse_host(const HttpRequest& request) const;
  std::optional<ApiError> refuse_key(const HttpRequest& request) const;

  // The headers that let a page of an allowed origin read the answer.
  void allow_origin(Exchange& exchange) const;
  // The answer to a browser that asks beforehand. Needs no key: browsers send none with it.
  void answer_preflight(Exchange& exchange) const;

 private:
  const std::string* allowed_origin(const HttpRequest& request) const;

  const AccessRules rules_;
};

}  // namespace kipp
