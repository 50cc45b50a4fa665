#include "engine/engine.h"

#include <cassert>
#include <chrono>
#include <utility>

#include "base/thread_name.h"

namespace kipp {
namespace {

// How often an idle engine shows that it is alive.
constexpr std::chrono::milliseconds kIdleBeat{200};

}  // namespace

Result<std::unique_ptr<Engine>> Engine::start(std::shared_ptr<Model> model,
                                              const EngineOptions& options, const Clock& clock,
                                              SessionStore* store) {
  KIPP_TRY_ASSIGN(claimed, Model::claim(std::move(model)));
  const EngineParts parts{.backend = &claimed->backend(),
                          .pool = &claimed->pool(),
                          .tokenizer = &claimed->tokenizer(),
                          .stop_tokens = claimed->checkpoint().stop_tokens,
                          .context_length = claimed->artifact().config().context_length,
                          .clock = &clock,
                          .store = store};
  KIPP_TRY_ASSIGN(core, EngineCore::create(parts, options));
  return std::unique_ptr<Engine>(new Engine(std::move(claimed), std::move(core), store));
}

Result<std::unique_ptr<Engine>> Engine::start(const EngineParts& parts,
                                              const EngineOptions& options) {
  KIPP_TRY_ASSIGN(core, EngineCore::create(parts, options));
  return std::unique_ptr<Engine>(new Engine(nullptr, std::move(core), parts.store));
}

Engine::Engine(std::shared_ptr<Model> model, std::unique_ptr<EngineCore> core, SessionStore* store)
    : model_(std::move(model)), core_(std::move(core)), store_(store) {
  if (store_ != nullptr) {
    store_->on_progress([this] {
      {
        const std::lock_guard lock(mutex_);
        inbox_.woken = true;
      }
      wake_.notify_one();
    });
  }
  stats_.write(core_->stats());
  thread_ = std::thread([this] { run(); });
}

Engine::~Engine() { stop(); }

Result<RequestId> Engine::submit(Request request, EventSink sink) {
  KIPP_TRY_ASSIGN(sequence, core_->prepare(std::move(request), std::move(sink)));
  const RequestId id = sequence->id();
  {
    const std::lock_guard lock(mutex_);
    if (inbox_.stop) {
      return fail(ErrorCode::interrupted, "engine: expected a running one, found it stopped");
    }
    inbox_.submitted.push_back(std::move(sequence));
  }
  wake_.notify_one();
  return id;
}

void Engine::cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    if (inbox_.stop) return;
    inbox_.cancelled.push_back(id);
  }
  wake_.notify_one();
}

void Engine::stop() {
  {
    const std::lock_guard lock(mutex_);
    inbox_.stop = true;
  }
  wake_.notify_one();
  const std::lock_guard lock(join_);
  assert(std::this_thread::get_id() != thread_.get_id());
  if (!thread_.joinable()) return;
  thread_.join();
  if (store_ != nullptr) store_->on_progress({});
}

void Engine::run() {
  name_this_thread("kipp-engine");
  bool idle = true;
  while (!drained_.stop) {
    drain(/*wait=*/idle);
    for (auto& sequence : drained_.submitted) core_->submit(std::move(sequence));
    for (const RequestId id : drained_.cancelled) core_->cancel(id);
    if (!drained_.stop) idle = !core_->step() && !core_->save_one();
    stats_.write(core_->stats());
  }
  core_->fail_all({ErrorCode::interrupted, "engine: stopped before the request had ended"});
  core_->save_all();
  stats_.write(core_->stats());
}

// Swaps, so that both sides keep their memory.
void Engine::drain(bool wait) {
  drained_.submitted.clear();
  drained_.cancelled.clear();
  std::unique_lock lock(mutex_);
  if (wait) wake_.wait_for(lock, kIdleBeat, [this] { return !inbox_.empty(); });
  std::swap(drained_.submitted, inbox_.submitted);
  std::swap(drained_.cancelled, inbox_.cancelled);
  inbox_.woken = false;
  drained_.stop = inbox_.stop;
}

}  // namespace kipp
