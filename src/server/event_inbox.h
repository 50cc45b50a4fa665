// Engine events on their way to the I/O thread. All that one step brings forth crosses in one
// hand-over, however many streams it belongs to: waking the I/O thread costs more than an event.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "engine/request.h"

namespace kipp {

struct InboxEvent {
  std::uint64_t call = 0;  // whose
  int choice = 0;
  Clock::Time time{0};  // when the engine said it
  Event event;
};

class EventInbox {
 public:
  // `wake` makes the I/O thread call take() soon; from any thread.
  explicit EventInbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  // On the engine's thread.
  void put(InboxEvent event) {
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      first = events_.empty();
      events_.push_back(std::move(event));
    }
    if (first) wake_();
  }

  // On the I/O thread: everything since the last call, in order. `events` is emptied; both sides
  // keep their memory.
  void take(std::vector<InboxEvent>& events) {
    events.clear();
    const std::lock_guard lock(mutex_);
    std::swap(events, events_);
  }

 private:
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<InboxEvent> events_;  // guarded by mutex_
};

}  // namespace kipp
