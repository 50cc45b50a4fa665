#include "convert/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string_view>
#include <utility>

namespace kipp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMaxRedirectBytes = 1 << 20;  // nobody reads a redirect's body
constexpr int kPollMs = 50;  // how late a cancelled or stalled transfer may be noticed

struct CurlUrlFree {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
struct CurlListFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "bytes 5-99/100" or "bytes 5-99/*".
std::optional<ContentRange> parse_content_range(std::string_view text) {
  if (!lower(text.substr(0, 6)).starts_with("bytes ")) return std::nullopt;
  text = trimmed(text.substr(6));
  const auto dash = text.find('-');
  const auto slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || dash > slash) {
    return std::nullopt;
  }
  const auto first = number(text.substr(0, dash));
  const auto last = number(text.substr(dash + 1, slash - dash - 1));
  const auto total = number(text.substr(slash + 1));
  if (!first || !last || *last < *first || (!total && text.substr(slash + 1) != "*")) {
    return std::nullopt;
  }
  return ContentRange{*first, *last, total};
}

struct Origin {
  std::string scheme, host, port;
  friend bool operator==(const Origin&, const Origin&) = default;
};

std::optional<Origin> origin_of(const std::string& url) {
  const std::unique_ptr<CURLU, CurlUrlFree> parsed(curl_url());
  if (parsed == nullptr || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) {
    return std::nullopt;
  }
  const auto part = [&](CURLUPart which) {
    char* text = nullptr;
    if (curl_url_get(parsed.get(), which, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) {
      return std::string();
    }
    std::string out = lower(text);
    curl_free(text);
    return out;
  };
  return Origin{part(CURLUPART_SCHEME), part(CURLUPART_HOST), part(CURLUPART_PORT)};
}

// What the callbacks of one hop share.
struct Hop {
  CURL* easy;
  BodySink& sink;
  HttpHead head;
  bool begun = false;
  bool declined = false;
  std::uint64_t moved = 0;  // bytes of headers and body, to tell a stall

  bool begin() {
    begun = true;
    long version = 0;
    curl_easy_getinfo(easy, CURLINFO_HTTP_VERSION, &version);
    if (version >= CURL_HTTP_VERSION_2_0) head.self_delimiting = true;
    declined = !sink.begin(head);
    return !declined;
  }
};

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

void read_header(HttpHead& head, std::string_view line) {
  const auto colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string name = lower(line.substr(0, colon));
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (name == "content-length") head.content_length = number(value);
  if (name == "content-range") head.content_range = parse_content_range(value);
  if (name == "transfer-encoding" && lower(value).ends_with("chunked")) head.self_delimiting = true;
  if (name == "retry-after") {
    // An hour bounds the arithmetic; hub.h bounds the wait.
    if (const auto wait = number(value)) {
      head.retry_after = std::chrono::seconds(std::min<std::uint64_t>(*wait, 3600));
    }
  }
}

std::size_t on_header(char* data, std::size_t, std::size_t size, void* user) {
  auto& hop = *static_cast<Hop*>(user);
  const std::string_view line(data, size);
  hop.moved += size;
  // Interim answers and proxies bring heads of their own: the last one counts.
  if (line.starts_with("HTTP/")) {
    hop.head = {};
    curl_easy_getinfo(hop.easy, CURLINFO_RESPONSE_CODE, &hop.head.status);
  } else {
    read_header(hop.head, line);
  }
  return size;
}

std::size_t on_body(char* data, std::size_t, std::size_t size, void* user) {
  auto& hop = *static_cast<Hop*>(user);
  hop.moved += size;
  if (is_redirect(hop.head.status)) return hop.moved <= kMaxRedirectBytes ? size : 0;
  if (!hop.begun && !hop.begin()) return 0;
  if (!hop.sink.write({reinterpret_cast<const std::byte*>(data), size})) {
    hop.declined = true;
    return 0;
  }
  return size;
}

HttpEnd end_of(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return HttpEnd::whole;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_OUT_OF_MEMORY:
    case CURLE_BAD_FUNCTION_ARGUMENT:
      return HttpEnd::impossible;
    default:
      return HttpEnd::lost;
  }
}

void global_init() {
  static const CURLcode once = curl_global_init(CURL_GLOBAL_DEFAULT);
  static_cast<void>(once);  // a failure shows as a null handle below
}

}  // namespace

struct HttpClient::Handles {
  // The order matters: curl wants the easy handle gone first.
  struct MultiFree {
    void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
  };
  struct EasyFree {
    void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  };
  std::unique_ptr<CURLM, MultiFree> multi;
  std::unique_ptr<CURL, EasyFree> easy;

  HttpReply hop(const HttpQuery& request, const std::string& url, bool with_token, BodySink& sink,
                std::string& next);
  std::optional<HttpReply> drive(const HttpQuery& request, const Hop& hop, CURLcode& code);
};

// Runs the transfer. A reply: it was stopped from this side.
std::optional<HttpReply> HttpClient::Handles::drive(const HttpQuery& request, const Hop& hop,
                                                    CURLcode& code) {
  auto window = Clock::now();
  std::uint64_t at_window = 0;
  int running = 1;
  while (true) {
    if (curl_multi_perform(multi.get(), &running) != CURLM_OK) {
      return HttpReply{HttpEnd::impossible, hop.head, "libcurl failed"};
    }
    if (running == 0) break;
    if (request.cancel != nullptr && request.cancel->load()) {
      return HttpReply{HttpEnd::interrupted, hop.head, {}};
    }
    const auto now = Clock::now();
    if (now - window >= request.stall_timeout) {
      if (hop.moved - at_window < request.min_bytes) {
        return HttpReply{HttpEnd::lost, hop.head,
                         fmt::format("only {} bytes came in {} ms", hop.moved - at_window,
                                     request.stall_timeout.count())};
      }
      window = now;
      at_window = hop.moved;
    }
    curl_multi_poll(multi.get(), nullptr, 0, kPollMs, nullptr);
  }
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi.get(), &left)) {
    if (message->msg == CURLMSG_DONE) code = message->data.result;
  }
  return std::nullopt;
}

HttpReply HttpClient::Handles::hop(const HttpQuery& request, const std::string& url,
                                   bool with_token, BodySink& sink, std::string& next) {
  CURL* const e = easy.get();
  Hop hop{.easy = e, .sink = sink, .head = {}};
  std::array<char, CURL_ERROR_SIZE> text{};
  std::unique_ptr<curl_slist, CurlListFree> headers;
  const auto add_header = [&](const std::string& line) {
    headers.reset(curl_slist_append(headers.release(), line.c_str()));
  };
  add_header("Accept-Encoding: identity");  // a range of a compressed body would be of no use
  if (with_token) add_header("Authorization: Bearer " + request.token);
  const std::string range = fmt::format("{}-", request.offset);

  curl_easy_reset(e);
  curl_easy_setopt(e, CURLOPT_URL, url.c_str());
  curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(e, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(e, CURLOPT_USERAGENT, "kipp");
  curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(request.connect_timeout.count()));
  curl_easy_setopt(e, CURLOPT_BUFFERSIZE, 512L * 1024);
  curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(e, CURLOPT_ERRORBUFFER, text.data());
  curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(e, CURLOPT_HEADERDATA, &hop);
  curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(e, CURLOPT_WRITEDATA, &hop);
  if (!request.ca_file.empty()) curl_easy_setopt(e, CURLOPT_CAINFO, request.ca_file.c_str());
  if (request.offset > 0) curl_easy_setopt(e, CURLOPT_RANGE, range.c_str());

  if (curl_multi_add_handle(multi.get(), e) != CURLM_OK) {
    return {HttpEnd::impossible, {}, "libcurl failed"};
  }
  CURLcode code = CURLE_OK;
  auto stopped = drive(request, hop, code);
  char* location = nullptr;
  curl_easy_getinfo(e, CURLINFO_REDIRECT_URL, &location);
  if (location != nullptr) next = location;
  curl_multi_remove_handle(multi.get(), e);
  // The options point at this frame's variables.
  curl_easy_setopt(e, CURLOPT_ERRORBUFFER, nullptr);
  if (stopped) return *std::move(stopped);
  if (hop.declined) return {HttpEnd::declined, hop.head, {}};
  if (code != CURLE_OK) {
    return {end_of(code), hop.head, text[0] != '\0' ? text.data() : curl_easy_strerror(code)};
  }
  if (!is_redirect(hop.head.status) && !hop.begun && !hop.begin()) {
    return {HttpEnd::declined, hop.head, {}};
  }
  return {HttpEnd::whole, hop.head, {}};
}

HttpClient::HttpClient() : handles_(std::make_unique<Handles>()) {
  global_init();
  handles_->multi.reset(curl_multi_init());
  handles_->easy.reset(curl_easy_init());
}

HttpClient::~HttpClient() = default;

HttpReply HttpClient::get(const HttpQuery& request, BodySink& sink) {
  if (handles_->multi == nullptr || handles_->easy == nullptr) {
    return {HttpEnd::impossible, {}, "libcurl can not be initialized"};
  }
  const auto home = origin_of(request.url);
  if (!home) return {HttpEnd::impossible, {}, fmt::format("malformed URL {}", request.url)};
  std::string url = request.url;
  bool encrypted = home->scheme == "https";
  for (int hops = 0; hops <= kMaxRedirects; ++hops) {
    const auto origin = origin_of(url);
    if (!origin || (origin->scheme != "http" && origin->scheme != "https")) {
      return {
          HttpEnd::impossible, {}, fmt::format("redirected to {}, which is no web address", url)};
    }
    if (encrypted && origin->scheme != "https") {
      return {HttpEnd::impossible, {}, fmt::format("redirected from https to {}", url)};
    }
    encrypted = origin->scheme == "https";
    std::string next;
    HttpReply reply =
        handles_->hop(request, url, !request.token.empty() && *origin == *home, sink, next);
    if (reply.end != HttpEnd::whole || !is_redirect(reply.head.status)) return reply;
    if (next.empty()) {
      return {HttpEnd::impossible, reply.head,
              fmt::format("status {} without a place to go", reply.head.status)};
    }
    url = std::move(next);
  }
  return {HttpEnd::impossible, {}, fmt::format("more than {} redirects", kMaxRedirects)};
}

}  // namespace kipp
