// Many requests over one model. One thread, the engine's, owns the model's memory from start to
// stop: it admits, evaluates, draws and calls the sinks. Everybody else talks to it through an
// inbox and never waits for a step.
//
// What a request is answered depends on the request alone: not on its neighbours, the chunks its
// prompt was read in, or what was cached; generate() gives the same. Every submitted request gets
// exactly one terminal event, also when the engine stops.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/snapshot.h"
#include "engine/engine_core.h"
#include "engine/request.h"
#include "engine/session.h"

namespace kipp {

class Engine {
 public:
  // Refused while sessions over the model exist, which are refused while the engine does: both
  // would write the same memory. A store outlives the engine, which alone uses it.
  static Result<std::unique_ptr<Engine>> start(std::shared_ptr<Model> model,
                                               const EngineOptions& options,
                                               const Clock& clock = steady_clock(),
                                               SessionStore* store = nullptr);
  // Over parts that outlive it.
  static Result<std::unique_ptr<Engine>> start(const EngineParts& parts,
                                               const EngineOptions& options);
  ~Engine();  // stop()
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // From any thread. Refused, without an event: values out of range, a prompt that does not fit, a
  // full queue (ErrorCode::exhausted), a stopped engine (ErrorCode::interrupted).
  Result<RequestId> submit(Request request, EventSink sink);
  // Ends the request before the next step; its last event is Finished with
  // FinishReason::interrupted unless it ends otherwise before. From any thread, at any time.
  void cancel(RequestId id);
  // Fails whatever is open and waits for the thread; afterwards no sink is called. From any thread
  // but the engine's.
  void stop();

  // As of the last step, or of the last look at an empty inbox, a fraction of a second ago. From
  // any thread; the engine does not notice.
  EngineStats stats() const { return stats_.read(); }

 private:
  struct Inbox {
    std::vector<std::unique_ptr<Sequence>> submitted;
    std::vector<RequestId> cancelled;
    bool woken = false;  // by the store
    bool stop = false;

    bool empty() const { return submitted.empty() && cancelled.empty() && !woken && !stop; }
  };

  Engine(std::shared_ptr<Model> model, std::unique_ptr<EngineCore> core, SessionStore* store);

  void run();
  void drain(bool wait);

  const std::shared_ptr<Model> model_;  // claimed; none when over parts
  const std::unique_ptr<EngineCore> core_;
  SessionStore* const store_;  // none: memory alone
  Snapshot<EngineStats> stats_;

  std::mutex mutex_;
  std::condition_variable wake_;
  Inbox inbox_;    // guarded by mutex_
  Inbox drained_;  // the engine thread's

  std::mutex join_;  // one caller of stop() joins
  std::thread thread_;
};

}  // namespace kipp
