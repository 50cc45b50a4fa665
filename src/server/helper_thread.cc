#include "server/helper_thread.h"

#include <utility>

namespace kipp {

HelperThread::HelperThread() : thread_([this] { loop(); }) {}

void HelperThread::stop() {
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(waiting_);
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void HelperThread::run(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    waiting_.push_back(std::move(work));
  }
  wake_.notify_one();
}

void HelperThread::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
    if (stopped_) return;
    std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    work();
    work = nullptr;  // what it holds may be large, or call back here as it goes
    lock.lock();
  }
}

}  // namespace kipp
