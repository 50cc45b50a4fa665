// One writer's latest value for readers on other threads. The writer never waits and never notices
// a reader; a reader that is overtaken reads again.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kipp {

template <class T>
class Snapshot {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Snapshot() { write(T{}); }

  // From one thread at a time.
  void write(const T& value) {
    Words words = {};
    std::memcpy(words.data(), &value, sizeof(T));
    const std::uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    // A release each, so that none of them is seen before the odd version.
    for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }

  T read() const {
    for (;;) {
      const std::uint64_t before = version_.load(std::memory_order_acquire);
      Words words;
      for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
      if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before) {
        T value;
        std::memcpy(static_cast<void*>(&value), words.data(), sizeof(T));
        return value;
      }
    }
  }

 private:
  static constexpr std::size_t kWords =
      (sizeof(T) + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
  using Words = std::array<std::uint64_t, kWords>;

  std::atomic<std::uint64_t> version_ = 0;  // odd while a value is being written
  std::array<std::atomic<std::uint64_t>, kWords> words_ = {};
};

}  // namespace kipp
