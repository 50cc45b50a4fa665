#include "capi/handles.h"

#include <atomic>
#include <cstdint>
#include <unordered_map>

namespace kipp::capi {
namespace {

// Counted for both kinds together, so that one is never taken for the other, in steps of 16, so
// that they look like pointers to whatever inspects them.
std::uintptr_t next_handle() {
  static std::atomic<std::uintptr_t> last = 0;
  return last.fetch_add(16) + 16;
}

template <class Handle, class T>
class Table {
 public:
  explicit Table(const char* kind) : kind_(kind) {}

  Handle* add(std::shared_ptr<T> value) {
    const std::uintptr_t handle = next_handle();
    const std::lock_guard lock(mutex_);
    open_.emplace(handle, std::move(value));
    return reinterpret_cast<Handle*>(handle);
  }
  // What was open; it is destroyed outside of the lock.
  std::shared_ptr<T> remove(const Handle* handle) {
    const std::lock_guard lock(mutex_);
    auto node = open_.extract(reinterpret_cast<std::uintptr_t>(handle));
    return node ? std::move(node.mapped()) : nullptr;
  }
  Result<std::shared_ptr<T>> find(const Handle* handle) {
    if (handle == nullptr) {
      return fail(ErrorCode::invalid, "{}: expected an open one, found NULL", kind_);
    }
    const std::lock_guard lock(mutex_);
    const auto at = open_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (at == open_.end()) return closed();
    return at->second;
  }
  tl::unexpected<Error> closed() const {
    return fail(ErrorCode::invalid, "{}: expected an open one, found one that is closed", kind_);
  }

 private:
  const char* kind_;
  std::mutex mutex_;
  std::unordered_map<std::uintptr_t, std::shared_ptr<T>> open_;
};

// Never destroyed: other threads may still call while the process ends.
auto& models() {
  static auto& table = *new Table<kipp_model, OpenModel>("model");
  return table;
}
auto& sessions() {
  static auto& table = *new Table<kipp_session, OpenSession>("session");
  return table;
}

// Whether this thread has a turn.
thread_local bool t_in_turn = false;

}  // namespace

Result<std::shared_ptr<OpenModel>> find(const kipp_model* handle) { return models().find(handle); }
Result<std::shared_ptr<OpenSession>> find(const kipp_session* handle) {
  return sessions().find(handle);
}
kipp_model* add(std::shared_ptr<OpenModel> model) { return models().add(std::move(model)); }
kipp_session* add(std::shared_ptr<OpenSession> session) {
  return sessions().add(std::move(session));
}

Result<Turn> Turn::take(std::shared_ptr<OpenModel> model) {
  if (t_in_turn) {
    return fail(ErrorCode::invalid,
                "model: expected a call from outside of callbacks, found one from within");
  }
  Turn turn(std::move(model));
  t_in_turn = true;
  if (turn.model().closed) return models().closed();
  return turn;
}

Turn::~Turn() {
  if (lock_.owns_lock()) t_in_turn = false;
}

Result<SessionTurn> SessionTurn::take(const kipp_session* handle) {
  KIPP_TRY_ASSIGN(open, sessions().find(handle));
  KIPP_TRY_ASSIGN(turn, Turn::take(open->of));
  if (!open->session) return sessions().closed();  // while this call waited
  return SessionTurn{std::move(open), std::move(turn)};
}

Result<void> close(const kipp_model* handle) {
  KIPP_TRY_ASSIGN(open, models().find(handle));
  KIPP_TRY_ASSIGN(turn, Turn::take(open));
  OpenModel& model = turn.model();
  if (model.open_sessions > 0) {
    return fail(ErrorCode::invalid, "model: expected all its sessions closed, found {} open",
                model.open_sessions);
  }
  model.closed = true;
  models().remove(handle);
  return {};
}

Result<void> close(const kipp_session* handle) {
  KIPP_TRY_ASSIGN(open, SessionTurn::take(handle));
  open.open->session.reset();
  --open.turn.model().open_sessions;
  sessions().remove(handle);
  return {};
}

}  // namespace kipp::capi
