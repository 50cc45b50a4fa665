#include "server/service.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <utility>

#include "base/rng.h"
#include "server/json_text.h"
#include "server/web_assets.h"

namespace kipp {
namespace {

constexpr const char* kJson = "application/json";
constexpr std::size_t kMaxRequestId = 128;

std::int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::uint64_t fresh_bits() {
  thread_local std::random_device device;
  return (std::uint64_t{device()} << 32) ^ device();
}

// 53 bits: a number that JSON readers keep exactly.
std::uint64_t fresh_seed() { return fresh_bits() >> 11; }

// The client's own, where it can stand in a header and a log.
std::string request_id(const HttpRequest& request) {
  const std::string_view given = request.header("x-request-id");
  const auto printable = [](unsigned char c) { return c > ' ' && c < 0x7f; };
  if (!given.empty() && given.size() <= kMaxRequestId && std::ranges::all_of(given, printable)) {
    return std::string(given);
  }
  return fmt::format("req-{:016x}", fresh_bits());
}

// 0.6f as 0.6, and not as the double next to it.
double shortest(float value) { return std::stod(fmt::format("{}", value)); }

ApiError unavailable(std::string message) {
  return {.status = 503, .message = std::move(message), .param = {}, .code = "unavailable"};
}

}  // namespace

struct Service::Route {
  std::string_view path;  // as the metrics name it
  std::string_view method;
  Handler handler;
  bool open = false;   // answered without a key
  bool logged = true;  // in the access log
};

struct Service::Call {
  std::shared_ptr<Exchange> exchange;
  const Route* route = nullptr;
  std::string id;  // of the request
  Clock::Time arrival{0};
};

struct Service::Open {
  std::shared_ptr<Call> call;
  ServedCall served;
};

const Service::Route* Service::find_route(std::string_view path) {
  static const auto kRoutes = std::to_array<Route>({
      {"/v1/chat/completions", "POST", &Service::chat},
      {"/v1/completions", "POST", &Service::complete},
      {"/tokenize", "POST", &Service::tokenize_text},
      {"/detokenize", "POST", &Service::detokenize_tokens},
      {"/apply-template", "POST", &Service::apply_template},
      {"/v1/models", "GET", &Service::models},
      {"/health", "GET", &Service::health, true, false},
      {"/healthz", "GET", &Service::health, true, false},
      {"/metrics", "GET", &Service::metrics, false, false},
  });
  static constexpr Route kAsset = {"asset", "GET", &Service::asset, true, false};
  const auto at = std::ranges::find(kRoutes, path, &Route::path);
  if (at != kRoutes.end()) return &*at;
  if (find_web_asset(path)) return &kAsset;
  // One model by its name.
  return path.starts_with("/v1/models/") ? find_route("/v1/models") : nullptr;
}

Service::Service(ServiceOptions options, std::string model_id, HttpServer& server,
                 const Clock& clock)
    : options_(std::move(options)),
      model_id_(std::move(model_id)),
      server_(server),
      clock_(clock),
      access_(options_.access),
      metrics_({.model = model_id_, .vllm_names = options_.vllm_names}),
      inbox_([this] { server_.post([this] { take_events(); }); }),
      id_seed_(fresh_bits()) {}

Service::~Service() = default;

void Service::serve(Engine* engine, ServedModel model, ServedFacts facts) {
  served_ = Served{engine, std::move(model), std::move(facts), unix_now()};
}

void Service::drain() { draining_ = true; }

void Service::forget_engine() {
  for (auto& [number, open] : calls_) {
    open->served.abort(unavailable("server: stopped before the request had ended"));
  }
  calls_.clear();
  served_.reset();
}

void Service::handle(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  auto call = std::make_shared<Call>(
      Call{.exchange = exchange, .id = request_id(request), .arrival = clock_.now()});
  call->route = find_route(request.path);
  exchange->set_header("X-Request-Id", call->id);
  if (const auto refused = access_.refuse_host(request)) return refuse(call, *refused);
  access_.allow_origin(*exchange);
  if (request.method == "OPTIONS" && !request.header("access-control-request-method").empty()) {
    return access_.answer_preflight(*exchange);
  }
  if (!call->route) {
    return refuse(call, {.status = 404,
                         .message = fmt::format("path: expected one that the server knows "
                                                "(GET /openapi.json lists them), found {}",
                                                request.path.substr(0, 200)),
                         .param = {},
                         .code = "not_found"});
  }
  const Route& route = *call->route;
  const bool head = request.method == "HEAD" && route.method == "GET";
  if (request.method != route.method && !head) {
    exchange->set_header("Allow", std::string(route.method));
    return refuse(call, {.status = 405,
                         .message = fmt::format("method: expected {}, found {}", route.method,
                                                request.method.substr(0, 20)),
                         .param = {},
                         .code = "method_not_allowed"});
  }
  if (!route.open) {
    if (const auto refused = access_.refuse_key(request)) {
      exchange->set_header("WWW-Authenticate", "Bearer");
      return refuse(call, *refused);
    }
  }
  // A form or plain text is what a page of another origin can send without asking beforehand.
  const std::string_view type = request.header("content-type");
  if (route.method == "POST" && !type.empty() && !type.starts_with(kJson)) {
    return refuse(call, {.status = 415,
                         .message = fmt::format("Content-Type: expected {}, found {}", kJson,
                                                type.substr(0, 100)),
                         .param = {},
                         .code = "unsupported_media_type"});
  }
  (this->*route.handler)(call);
}

void Service::answer(const std::shared_ptr<Call>& call, int status, std::string type,
                     std::string body) {
  call->exchange->respond(status, std::move(type), std::move(body));
  log(*call, {.status = status, .usage = {}}, {});
}

void Service::answer_json(const std::shared_ptr<Call>& call, const Json& json, int status) {
  answer(call, status, kJson, json_text(json));
}

void Service::refuse(const std::shared_ptr<Call>& call, const ApiError& why) {
  answer_json(call, error_object(why), why.status);
}

bool Service::is_served(const std::shared_ptr<Call>& call) {
  if (served_ && !draining_) return true;
  call->exchange->set_header("Retry-After", "5");
  refuse(call, unavailable(draining_ ? "server: expected a running one, found it shutting down"
                                     : "model: expected it loaded, found it still loading"));
  return false;
}

void Service::log(const Call& call, const CallRecord& record, std::string_view user) {
  metrics_.answered(call.route ? call.route->path : "other", record.status);
  if (!options_.access_log || (call.route && !call.route->logged && record.status < 400)) return;
  const HttpRequest& request = call.exchange->request();
  std::string line = fmt::format("request id={} peer={} method={} path={} status={} seconds={:.3f}",
                                 log_value(call.id), log_value(request.peer),
                                 log_value(request.method), log_value(request.path.substr(0, 200)),
                                 record.status, seconds(clock_.now() - call.arrival));
  if (record.usage.prompt_tokens > 0) {
    line += fmt::format(" prompt_tokens={} cached_tokens={} generated_tokens={} first_token={:.3f}",
                        record.usage.prompt_tokens, record.usage.cached_tokens,
                        record.usage.generated_tokens, record.first_token);
  }
  if (!user.empty()) line += " user=" + log_value(user.substr(0, 200));
  options_.access_log->line(line);
}

double Service::heartbeat_age() const {
  return served_ ? seconds(clock_.now() - served_->engine->stats().heartbeat) : 0;
}

void Service::health(const std::shared_ptr<Call>& call) {
  const double age = heartbeat_age();
  const bool stalled = age > std::chrono::duration<double>(options_.heartbeat_limit).count();
  const char* status = !served_ ? "loading" : draining_ ? "draining" : stalled ? "stalled" : "ok";
  Json json{{"status", status}, {"model", model_id_}};
  if (served_) json["heartbeat_age_seconds"] = age;
  call->exchange->set_header("Cache-Control", "no-store");
  answer_json(call, json, served_ && !draining_ && !stalled ? 200 : 503);
}

void Service::metrics(const std::shared_ptr<Call>& call) {
  ServerState state;
  if (served_) state.engine = served_->engine->stats();
  state.heartbeat_age = heartbeat_age();
  state.http = server_.stats();
  answer(call, 200, "text/plain; version=0.0.4; charset=utf-8", metrics_.text(state));
}

void Service::models(const std::shared_ptr<Call>& call) {
  if (!is_served(call)) return;
  const ServedFacts& facts = served_->facts;
  Json about{{"checkpoint", facts.checkpoint},
             {"scheme", facts.scheme},
             {"backend", facts.backend},
             {"chat", facts.chat}};
  if (facts.chat) about["thinking"] = facts.thinking;
  if (facts.sampling.sample) {
    about["sampling"] = {{"temperature", shortest(facts.sampling.temperature)},
                         {"top_p", shortest(facts.sampling.top_p)},
                         {"top_k", facts.sampling.top_k}};
  }
  const Json model{{"id", model_id_},
                   {"object", "model"},
                   {"created", served_->since},
                   {"owned_by", "kipp"},
                   {"max_model_len", served_->model.context_length},
                   {"kipp", std::move(about)}};
  const std::string& path = call->exchange->request().path;
  if (path == "/v1/models") {
    return answer_json(call, {{"object", "list"}, {"data", Json::array({model})}});
  }
  if (path.substr(std::string_view("/v1/models/").size()) == model_id_) {
    return answer_json(call, model);
  }
  refuse(call, {.status = 404,
                .message = fmt::format("model: expected {}, found {}", model_id_,
                                       path.substr(std::string_view("/v1/models/").size())),
                .param = "model",
                .code = "model_not_found"});
}

void Service::asset(const std::shared_ptr<Call>& call) {
  Exchange& exchange = *call->exchange;
  const WebAsset& found = *find_web_asset(exchange.request().path);
  for (const auto& [name, value] : web_headers(found)) exchange.set_header(name, value);
  if (exchange.request().header("if-none-match") == web_etag(found)) {
    return answer(call, 304, {}, {});
  }
  answer(call, 200, std::string(found.content_type), std::string(found.body));
}

void Service::complete(const std::shared_ptr<Call>& call) {
  generate(call, parse_completion, "cmpl-");
}

void Service::chat(const std::shared_ptr<Call>& call) { generate(call, parse_chat, "chatcmpl-"); }

// Parsing, rendering and tokenizing may take a while for megabytes: not on this thread.
template <class Function, class Then>
void Service::understand(const std::shared_ptr<Call>& call, Function function, Then then) {
  if (!is_served(call)) return;
  struct Work {
    std::string body;
    ServedModel model;
    std::invoke_result_t<Function, const Json&, const ServedModel&> result{};
  };
  const auto work = std::make_shared<Work>(Work{call->exchange->take_body(), served_->model});
  server_.offload(
      [work, function] {
        work->result = parse_body(work->body).and_then([&](const Json& json) {
          return function(json, work->model);
        });
      },
      [this, work, call, then] {
        if (!work->result) return refuse(call, work->result.error());
        then(std::move(*work->result));
      });
}

void Service::generate(const std::shared_ptr<Call>& call, ParseCall parse,
                       std::string_view id_prefix) {
  understand(
      call,
      [parse](const Json& json, const ServedModel& model) {
        return parse(json, model, fresh_seed());
      },
      [this, call, id_prefix](GenerateCall parsed) { begin(call, std::move(parsed), id_prefix); });
}

void Service::begin(const std::shared_ptr<Call>& call, GenerateCall parsed,
                    std::string_view id_prefix) {
  if (call->exchange->gone() || !is_served(call)) return;
  const std::size_t choices = parsed.prompts.size() * static_cast<std::size_t>(parsed.n);
  if (choices > static_cast<std::size_t>(served_->facts.max_open_choices)) {
    return refuse(call, {.status = 400,
                         .message = fmt::format("prompt, n: expected at most {} choices (the "
                                                "server's queue), found {}",
                                                served_->facts.max_open_choices, choices),
                         .param = "prompt",
                         .code = {}});
  }
  const std::uint64_t number = ++next_call_;
  const ServedCall::Setting setting{.engine = served_->engine,
                                    .inbox = &inbox_,
                                    .metrics = &metrics_,
                                    .tokenizer = served_->model.tokenizer,
                                    .clock = &clock_,
                                    .keep_alive = options_.keep_alive};
  AnswerHead head{.id = fmt::format("{}{:016x}", id_prefix, draw_bits(id_seed_, number)),
                  .created = unix_now(),
                  .model = model_id_};
  auto& open = calls_[number];
  open.reset(new Open{call, ServedCall(setting, number, call->exchange, std::move(parsed),
                                       std::move(head), call->arrival)});
  call->exchange->on_gone([this, number] {
    const auto at = calls_.find(number);
    if (at == calls_.end()) return;
    at->second->served.client_gone();
    close_if_over(number);
  });
  // Gone already: on_gone has ended it.
  const auto at = calls_.find(number);
  if (at == calls_.end()) return;
  at->second->served.start();
  if (options_.generation_timeout.count() > 0) {
    server_.after(options_.generation_timeout, [this, number] {
      const auto late = calls_.find(number);
      if (late == calls_.end()) return;
      late->second->served.abort(
          {.status = 504,
           .message = fmt::format("time: expected an answer within {} ms, found it not ended",
                                  options_.generation_timeout.count()),
           .param = {},
           .code = "timeout"});
    });
  }
  close_if_over(number);
}

void Service::take_events() {
  inbox_.take(events_);
  for (const InboxEvent& event : events_) {
    const auto at = calls_.find(event.call);
    if (at == calls_.end()) continue;
    at->second->served.on_event(event);
    close_if_over(event.call);
  }
}

void Service::close_if_over(std::uint64_t number) {
  const auto at = calls_.find(number);
  if (at == calls_.end() || !at->second->served.over()) return;
  log(*at->second->call, at->second->served.record(), at->second->served.user());
  calls_.erase(at);
}

void Service::translate(const std::shared_ptr<Call>& call, Translate function) {
  understand(call, function, [this, call](const Json& json) { answer_json(call, json); });
}

void Service::tokenize_text(const std::shared_ptr<Call>& call) { translate(call, tokenize); }

void Service::detokenize_tokens(const std::shared_ptr<Call>& call) { translate(call, detokenize); }

void Service::apply_template(const std::shared_ptr<Call>& call) {
  translate(call, [](const Json& body, const ServedModel& model) -> ApiResult<Json> {
    auto rendered = parse_apply_template(body, model);
    if (!rendered) return tl::unexpected(std::move(rendered).error());
    return Json{{"prompt", rendered->text}, {"tokens", rendered->tokens}};
  });
}

}  // namespace kipp
