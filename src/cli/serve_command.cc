// `kipp serve`: the OpenAI-compatible server over one model. It listens before the model is loaded,
// so that /health can say so, is ready after a warm-up, and on SIGTERM or Ctrl-C lets answers under
// way come to their end; a second signal does not wait for them.
#include <pthread.h>

#include <csignal>
#include <future>
#include <thread>

#include "base/progress.h"
#include "base/thread_name.h"
#include "cli/commands.h"
#include "cli/flag_values.h"
#include "cli/serve_flags.h"
#include "engine/conversation.h"
#include "model/memory.h"

namespace kipp {
namespace {

// SIGINT and SIGTERM, taken by a thread of their own: the others have them blocked.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  // Waits for the next one.
  void wait() const {
    int signal = 0;
    while (::sigwait(&set_, &signal) != 0) {
    }
  }

 private:
  sigset_t set_{};
};

// How the cache is cut, known before anything is allocated.
struct CachePlan {
  int blocks = 0;
  int context = 0;  // the most positions of one request
  std::uint64_t bytes = 0;
};

Result<CachePlan> plan_cache(const ServeSettings& settings, const Checkpoint& checkpoint) {
  const int most = checkpoint.config.context_length;
  if (settings.context && *settings.context > most) {
    return fail(ErrorCode::invalid, "--context: expected 1 to {} positions, found {}", most,
                *settings.context);
  }
  const int wanted = settings.context.value_or(most);
  const std::uint64_t block = far_block_bytes(settings.kv, checkpoint.config);
  constexpr int kContexts = 8;
  std::uint64_t enough = block * static_cast<std::uint64_t>(blocks_for(wanted)) * kContexts;
  if (!settings.kv.all_bf16()) enough += enough / 4;  // for what is near
  const std::uint64_t budget =
      settings.kv_bytes.value_or(std::min<std::uint64_t>(available_memory() / 4, enough));
  constexpr std::uint64_t kMostBlocks = 1 << 26;
  const auto blocks = static_cast<int>(std::min(budget / block, kMostBlocks));
  const int needed = settings.context ? blocks_for(*settings.context) : 1;
  if (blocks < needed) {
    return fail(ErrorCode::invalid,
                "--kv-memory: expected at least {} bytes for {} positions of {}, found {}",
                block * static_cast<std::uint64_t>(needed), needed * kBlockPositions, checkpoint.id,
                budget);
  }
  return CachePlan{
      .blocks = blocks,
      .context = std::min(wanted, blocks * kBlockPositions),
      .bytes = settings.kv.all_bf16() ? block * static_cast<std::uint64_t>(blocks) : budget};
}

struct LoadedModel {
  std::shared_ptr<Model> model;
  CachePlan cache;
};

Result<LoadedModel> load_model(const ServeFlags& flags, const ServeSettings& settings,
                               const std::string& path) {
  KIPP_TRY_ASSIGN(load, load_options(flags.model));
  CachePlan cache;
  {
    KIPP_TRY_ASSIGN(artifact, open_artifact(flags.model, path));
    KIPP_TRY_ASSIGN(planned, plan_cache(settings, artifact.checkpoint()));
    cache = planned;
  }
  ProgressBar packing("packing weights", ProgressUnit::bytes);
  load.progress = [&](std::uint64_t done, std::uint64_t total) { packing.update(done, total); };
  KIPP_TRY_ASSIGN(model, Model::open(path, {.backend = flags.model.backend,
                                            .allow_synthetic = flags.model.allow_synthetic,
                                            .kv_bytes = cache.bytes,
                                            .kv = settings.kv,
                                            .allow_unproven_kv = flags.model.kv_unproven,
                                            .load = load}));
  packing.finish();
  cache.blocks = model->kv_plan().cache.blocks;
  cache.bytes = model->kv_plan().bytes;
  const int most = model->pool().max_positions();
  if (settings.context && *settings.context > most) {
    return fail(ErrorCode::invalid,
                "--kv-memory: expected enough for the {} positions of --context, found enough for "
                "{}",
                *settings.context, most);
  }
  cache.context = std::min(cache.context, most);
  return LoadedModel{std::move(model), cache};
}

// The first step of a process faults in memory and wakes threads; nobody should wait for that.
Result<void> warm_up(Engine& engine) {
  std::promise<std::optional<Error>> ended;
  Request request;
  // With the first token drawn less than a block, so that nothing of it stays cached.
  request.prompt.assign(kBlockPositions - 2, 0);
  request.max_tokens = 2;
  request.ignore_eos = true;
  const auto id = engine.submit(std::move(request), [&](RequestId, Event event) {
    if (std::holds_alternative<Finished>(event)) ended.set_value(std::nullopt);
    if (auto* failed = std::get_if<Failed>(&event)) ended.set_value(std::move(failed->error));
  });
  if (!id) return tl::unexpected(id.error());
  if (auto error = ended.get_future().get()) return tl::unexpected(std::move(*error));
  return {};
}

// None where none is asked for.
Result<std::unique_ptr<SessionStore>> open_store(const ServeSettings& settings, Model& model) {
  if (!settings.session_dir) return nullptr;
  if (const std::size_t block = model.backend().block_bytes(model.pool().plan().far);
      settings.session_budget < block) {
    return fail(ErrorCode::invalid,
                "--session-budget: expected at least the {} bytes of one block, found {}", block,
                settings.session_budget);
  }
  const auto say = [](std::string_view line) { fmt::print(stderr, "session store: {}\n", line); };
  KIPP_TRY_ASSIGN(store, SessionStore::open(model.origin(), {.directory = *settings.session_dir,
                                                             .budget = settings.session_budget,
                                                             .log = say}));
  const SessionStoreStats stats = store->stats();
  say(fmt::format("{}: {} tokens in {} of {} bytes", *settings.session_dir,
                  stats.blocks * kBlockPositions, stats.bytes, stats.budget));
  return std::move(store);
}

std::string model_name(const ServeFlags& flags, const std::string& path) {
  if (flags.name) return *flags.name;
  const auto artifact = open_artifact(flags.model, path);
  return artifact ? std::string(artifact->checkpoint().id) : "kipp";
}

std::string_view thinking_of(Variant variant) {
  switch (variant) {
    case Variant::thinking_2507:
      return "always";
    case Variant::instruct:
      return "optional";
    default:
      return "never";
  }
}

void say_ready(const HttpServer& server, const LoadedModel& loaded, const std::string& name,
               bool chat, bool asks_for_key) {
  const CachePlan& cache = loaded.cache;
  fmt::print(stderr,
             "{} ({}, {}): {} of cache in {} blocks, {} tokens; a request may hold {}\n"
             "ready: http://{}\n"
             "  curl http://{}/v1/{} -H 'Content-Type: application/json'{} \\\n"
             "    -d '{{\"model\": \"{}\", {}, \"max_tokens\": 64}}'\n",
             name, to_string(loaded.model->artifact().scheme()),
             loaded.model->backend().info().name,
             fmt::format("{:.2f} GiB", static_cast<double>(cache.bytes) / (1 << 30)), cache.blocks,
             cache.blocks * kBlockPositions, cache.context, server.address(), server.address(),
             chat ? "chat/completions" : "completions",
             asks_for_key ? " -H 'Authorization: Bearer KEY'" : "", name,
             chat ? "\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]"
                  : "\"prompt\": \"Once upon a time\"");
}

// A server whose I/O thread runs while this lives.
class RunningServer {
 public:
  explicit RunningServer(HttpServer& server)
      : server_(server), io_([&server] {
          name_this_thread("kipp-io");
          server.run();
        }) {}
  ~RunningServer() {
    server_.stop();
    io_.join();
  }
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;

  // On the I/O thread, and waits for it.
  template <class Task>
  void call(Task task) {
    std::promise<void> done;
    server_.post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

 private:
  HttpServer& server_;
  std::thread io_;
};

// Until answers under way have ended, the time is over, or a second signal comes.
void drain(RunningServer& running, HttpServer& server, Service& service, const Signals& signals,
           std::chrono::milliseconds timeout) {
  running.call([&] {
    fmt::print(stderr, "draining: {} calls under way\n", service.open_calls());
    service.drain();
  });
  auto over = std::make_shared<std::promise<void>>();
  auto once = std::make_shared<std::once_flag>();
  const auto end = [over, once] { std::call_once(*once, [&] { over->set_value(); }); };
  server.drain(end);
  std::thread([&signals, end] {
    signals.wait();
    end();
  }).detach();
  if (over->get_future().wait_for(timeout) == std::future_status::timeout) {
    fmt::print(stderr, "draining: time is over\n");
  }
}

Result<int> serve(const ServeFlags& flags) {
  static const Signals signals;  // before any thread
  KIPP_TRY_ASSIGN(settings, read_settings(flags));
  KIPP_TRY_ASSIGN(path, model_file(flags.model));
  KIPP_TRY(open_artifact(flags.model, path));
  const std::string name = model_name(flags, path);

  std::shared_ptr<Model> model;  // outlives the server, whose helper thread may be tokenizing
  // Bound late, since the service wants the server it answers through.
  Service* handler = nullptr;
  KIPP_TRY_ASSIGN(server, HttpServer::listen(flags.host, settings.port, settings.http,
                                             [&handler](std::shared_ptr<Exchange> exchange) {
                                               handler->handle(std::move(exchange));
                                             }));
  std::unique_ptr<SessionStore> store;  // which the engine uses
  std::unique_ptr<Engine> engine;
  Service service(settings.service, name, *server);
  handler = &service;
  RunningServer running(*server);
  fmt::print(stderr, "loading {}; /health at http://{}\n", name, server->address());

  // Nothing is worth keeping before the model is served. Static, because the thread may outlive a
  // load that failed.
  static std::atomic<bool> loading = true;
  static std::promise<void> asked_to_end;
  std::thread([] {
    signals.wait();
    if (loading.load()) std::_Exit(130);
    asked_to_end.set_value();
  }).detach();

  KIPP_TRY_ASSIGN(loaded, load_model(flags, settings, path));
  model = loaded.model;
  settings.engine.max_positions = loaded.cache.context;
  KIPP_TRY_ASSIGN(speculation,
                  open_speculation(flags.speculation, flags.model, *model, loaded.cache.context));
  settings.engine.speculation = speculation;
  KIPP_TRY_ASSIGN(opened_store, open_store(settings, *model));
  store = std::move(opened_store);
  KIPP_TRY_ASSIGN(started, Engine::start(model, settings.engine, steady_clock(), store.get()));
  engine = std::move(started);
  KIPP_TRY(warm_up(*engine));

  const bool chat = chat_template_for(model->checkpoint()).has_value();
  running.call([&] {
    service.serve(engine.get(),
                  {.id = name,
                   .tokenizer = &model->tokenizer(),
                   .checkpoint = &model->checkpoint(),
                   .context_length = loaded.cache.context},
                  {.checkpoint = std::string(model->checkpoint().id),
                   .scheme = std::string(to_string(model->artifact().scheme())),
                   .backend = std::string(model->backend().info().name),
                   .chat = chat,
                   .thinking = std::string(thinking_of(model->checkpoint().variant)),
                   .sampling = model->checkpoint().sampling,
                   .max_open_choices = settings.engine.max_sequences + settings.engine.max_queue});
  });
  loading = false;
  say_ready(*server, loaded, name, chat, !settings.service.access.api_keys.empty());

  asked_to_end.get_future().wait();
  drain(running, *server, service, signals, settings.drain_timeout);
  running.call([&] { service.forget_engine(); });
  engine->stop();
  // Whatever clients did, blocks and planes must add up; an operator should hear of it if not.
  KIPP_TRY(model->pool().check());
  fmt::print(stderr, "stopped\n");
  return 0;
}

}  // namespace

void add_serve_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("serve", "Answer OpenAI-compatible requests over HTTP.");
  static ServeFlags flags;
  add_serve_flags(*command, flags);
  command->callback([&exit_code] {
    const auto code = serve(flags);
    exit_code = code ? *code : report_error("serve", code.error());
  });
}

}  // namespace kipp
