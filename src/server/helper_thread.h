// One thread for work that would hold up the I/O thread: the tokens of a long text take
// milliseconds, in which no stream would move.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace kipp {

class HelperThread {
 public:
  HelperThread();
  ~HelperThread() { stop(); }
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  // From any thread; in order.
  void run(std::function<void()> work);
  // Waits for the work under way; what has not begun never does.
  void stop();

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> waiting_;  // guarded by mutex_
  bool stopped_ = false;                       // guarded by mutex_
  std::thread thread_;
};

}  // namespace kipp
