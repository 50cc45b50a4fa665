// The endpoints: what each path answers, who may ask, and the calls under way. Between HTTP, which
// it knows only as an Exchange, and the engine, of which it knows submit, cancel and the
// statistics. The I/O thread's but where it says otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/access.h"
#include "server/event_inbox.h"
#include "server/http_server.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/openai_request.h"
#include "server/served_call.h"

namespace kipp {

struct ServiceOptions {
  AccessRules access = {};
  bool vllm_names = false;
  std::chrono::milliseconds keep_alive{10'000};       // between comments in a quiet stream
  std::chrono::milliseconds generation_timeout{0};    // of one call, queue included; 0: none
  std::chrono::milliseconds heartbeat_limit{60'000};  // an engine silent for longer is not healthy
  std::shared_ptr<Log> access_log = {};               // none: not logged
};

// What /v1/models says beside the id.
struct ServedFacts {
  std::string checkpoint;
  std::string scheme;
  std::string backend;
  bool chat = false;
  std::string thinking = {};  // of chat: optional, always or never
  SamplingDefaults sampling = {};
  int max_open_choices = 0;  // that the engine takes at once, waiting ones included
};

class Service {
 public:
  // `server` outlives it. `model_id`: known before the model is loaded.
  Service(ServiceOptions options, std::string model_id, HttpServer& server,
          const Clock& clock = steady_clock());
  ~Service();

  void handle(std::shared_ptr<Exchange> exchange);

  // From here on requests are served. Engine and model outlive the service's use of them, which
  // ends with forget_engine().
  void serve(Engine* engine, ServedModel model, ServedFacts facts);
  // Refuses new calls; those under way go on.
  void drain();
  // Ends every call under way with 503; afterwards the engine is not touched.
  void forget_engine();

  int open_calls() const { return static_cast<int>(calls_.size()); }

 private:
  struct Served {
    Engine* engine;
    ServedModel model;
    ServedFacts facts;
    std::int64_t since;  // Unix seconds
  };
  struct Call;
  using Handler = void (Service::*)(const std::shared_ptr<Call>&);
  struct Route;
  static const Route* find_route(std::string_view path);

  void answer(const std::shared_ptr<Call>& call, int status, std::string type, std::string body);
  void answer_json(const std::shared_ptr<Call>& call, const Json& json, int status = 200);
  void refuse(const std::shared_ptr<Call>& call, const ApiError& why);
  // The served model, or a refusal that says why there is none.
  bool is_served(const std::shared_ptr<Call>& call);
  void log(const Call& call, const CallRecord& record, std::string_view user);

  void health(const std::shared_ptr<Call>& call);
  void metrics(const std::shared_ptr<Call>& call);
  void models(const std::shared_ptr<Call>& call);
  void asset(const std::shared_ptr<Call>& call);
  void complete(const std::shared_ptr<Call>& call);
  void chat(const std::shared_ptr<Call>& call);
  void tokenize_text(const std::shared_ptr<Call>& call);
  void detokenize_tokens(const std::shared_ptr<Call>& call);
  void apply_template(const std::shared_ptr<Call>& call);

  template <class Function, class Then>
  void understand(const std::shared_ptr<Call>& call, Function function, Then then);
  using ParseCall = ApiResult<GenerateCall> (*)(const Json&, const ServedModel&, std::uint64_t);
  void generate(const std::shared_ptr<Call>& call, ParseCall parse, std::string_view id_prefix);
  void begin(const std::shared_ptr<Call>& call, GenerateCall parsed, std::string_view id_prefix);
  using Translate = ApiResult<Json> (*)(const Json&, const ServedModel&);
  void translate(const std::shared_ptr<Call>& call, Translate function);

  void take_events();
  void close_if_over(std::uint64_t number);
  double heartbeat_age() const;

  const ServiceOptions options_;
  const std::string model_id_;
  HttpServer& server_;
  const Clock& clock_;
  const Access access_;
  Metrics metrics_;
  EventInbox inbox_;
  std::vector<InboxEvent> events_;  // scratch of take_events()
  std::optional<Served> served_;
  bool draining_ = false;
  std::uint64_t next_call_ = 0;
  const std::uint64_t id_seed_;
  struct Open;
  std::unordered_map<std::uint64_t, std::unique_ptr<Open>> calls_;
};

}  // namespace kipp
