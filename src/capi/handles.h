// Handles of the C interface are numbers in the guise of pointers: never dereferenced, never given
// twice. So a closed handle, a foreign one and NULL are found out instead of followed.
//
// Calls on one model and its sessions take turns, since the engine below is for one thread at a
// time (engine/session.h).
#pragma once

#include <kipp/kipp.h>

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/types.h"
#include "engine/session.h"

namespace kipp::capi {

struct OpenModel {
  std::shared_ptr<Model> model;

  std::mutex mutex;       // held by whose turn it is
  int open_sessions = 0;  // this and what follows: guarded by mutex
  bool closed = false;
};

struct OpenSession {
  std::shared_ptr<OpenModel> of;
  std::optional<Session> session;  // guarded by of->mutex; none once it is closed
};

// Unknown, closed and NULL handles are refused.
Result<std::shared_ptr<OpenModel>> find(const kipp_model* handle);
Result<std::shared_ptr<OpenSession>> find(const kipp_session* handle);

// The new handle.
kipp_model* add(std::shared_ptr<OpenModel> model);
kipp_session* add(std::shared_ptr<OpenSession> session);

// A model with open sessions is refused.
Result<void> close(const kipp_model* handle);
Result<void> close(const kipp_session* handle);

// The model for this call alone, from take() until it is destroyed.
class Turn {
 public:
  // Waits for the running call. Refused: a closed model, and a call from within a callback, which
  // would wait for itself or, over another model, for a thread that waits for this one.
  static Result<Turn> take(std::shared_ptr<OpenModel> model);
  Turn(Turn&& other) noexcept = default;
  Turn& operator=(Turn&&) = delete;
  ~Turn();
  OpenModel& model() { return *model_; }

 private:
  explicit Turn(std::shared_ptr<OpenModel> model)
      : model_(std::move(model)), lock_(model_->mutex) {}

  std::shared_ptr<OpenModel> model_;  // before the lock on its mutex, which goes first
  std::unique_lock<std::mutex> lock_;
};

// An open session and its model's turn.
struct SessionTurn {
  std::shared_ptr<OpenSession> open;
  Turn turn;
  Session& session() { return *open->session; }

  static Result<SessionTurn> take(const kipp_session* handle);
};

}  // namespace kipp::capi
