// One CUDA device: its memory, its stream, and what goes wrong with it as a sentence. Everything is
// enqueued on one stream in order; wait() is where work that failed on the device is found out.
// Refused: a process without a driver or a device, and devices older than compute capability 8.0
// (kernels need BF16 tensor cores and asynchronous copies).
//
// A device that was lost (an illegal access, an uncorrectable memory error) stays lost for this
// process: every later call returns the error that said so first.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "backend/cuda/kernels.h"
#include "backend/cuda/runtime.h"
#include "base/types.h"

namespace kipp::cuda {

// Bytes that `release` gives back.
template <void (*release)(void*)>
class OwnedMemory {
 public:
  OwnedMemory() = default;
  OwnedMemory(void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  OwnedMemory(OwnedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  OwnedMemory& operator=(OwnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~OwnedMemory() {
    if (data_ != nullptr) release(data_);
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t size() const { return bytes_; }
  std::span<std::byte> bytes() const { return {data(), bytes_}; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

using DeviceMemory = OwnedMemory<runtime::release>;         // the host must not touch it
using PinnedMemory = OwnedMemory<runtime::release_pinned>;  // the host's, page-locked

class Device {
 public:
  static Result<std::unique_ptr<Device>> open();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  const runtime::Properties& properties() const { return properties_; }
  Stream stream() const { return stream_; }

  // What can still be allocated, others on the device counted.
  Result<std::size_t> free_bytes();
  // `what` names the bytes in an error: "weights". Never-written bytes hold anything.
  Result<DeviceMemory> allocate(std::size_t bytes, std::string_view what);
  Result<PinnedMemory> allocate_pinned(std::size_t bytes, std::string_view what);

  // Enqueued; the host's bytes must be pinned to run beside other work, and stay until then.
  Result<void> copy_to_device(void* to, std::span<const std::byte> from, std::string_view what);
  Result<void> copy_to_host(std::span<std::byte> to, const void* from, std::string_view what);
  Result<void> copy_within(void* to, const void* from, std::size_t bytes, std::string_view what);
  Result<void> zero(void* memory, std::size_t bytes, std::string_view what);

  // What a launch of kernels.h returned; also finds a launch before it that was not looked at.
  Result<void> launched(LaunchCode code, std::string_view what);
  // Until everything enqueued is done.
  Result<void> wait(std::string_view what);

  // A status as a Result; remembers a loss.
  Result<void> check(runtime::Status status, std::string_view what);

 private:
  Device() = default;
  tl::unexpected<Error> error_of(runtime::Status status, std::string_view what);
  tl::unexpected<Error> no_room(std::size_t bytes, std::string_view what, bool pinned);

  runtime::Properties properties_;
  Stream stream_ = nullptr;
  std::optional<Error> lost_;
};

// A mark in the device's stream.
class Event {
 public:
  static Result<Event> create(Device& device);
  Event(Event&& other) noexcept
      : device_(other.device_), event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event();

  Result<void> record(std::string_view what);
  Result<void> wait(std::string_view what);

 private:
  Event(Device& device, runtime::Event event) : device_(&device), event_(event) {}
  Device* device_;
  runtime::Event event_;
};

}  // namespace kipp::cuda
