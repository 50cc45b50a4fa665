#include "backend/cuda/device.h"

namespace kipp::cuda {

namespace {

// Of a CUDA version number.
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Error absent_error(runtime::Status status, int driver, int runtime_version) {
  if (driver != 0 && driver < runtime_version) {
    return {ErrorCode::io,
            fmt::format("device: expected a driver for CUDA {} or later, found one for CUDA {}; "
                        "update it or choose another backend",
                        version_text(runtime_version), version_text(driver))};
  }
  return {ErrorCode::io,
          fmt::format("device: expected an NVIDIA GPU with its driver, found none ({}: {}); choose "
                      "another backend",
                      runtime::name_of(status), runtime::text_of(status))};
}

}  // namespace

Result<std::unique_ptr<Device>> Device::open() {
  std::unique_ptr<Device> device(new Device());
  runtime::Properties& found = device->properties_;
  int driver = 0;
  int version = 0;
  if (const auto status = runtime::open(&found, &driver, &version); status != 0) {
    if (runtime::trouble_of(status) == runtime::Trouble::absent) {
      return tl::unexpected(absent_error(status, driver, version));
    }
    return device->error_of(status, "opening the device");
  }
  if (found.major < 8) {
    return fail(ErrorCode::refused,
                "device: expected compute capability 8.0 or later, found {}.{} ({})", found.major,
                found.minor, found.name);
  }
  KIPP_TRY(device->check(runtime::create_stream(&device->stream_), "making a stream"));
  return device;
}

Device::~Device() {
  if (stream_ != nullptr) runtime::destroy_stream(stream_);
}

tl::unexpected<Error> Device::error_of(runtime::Status status, std::string_view what) {
  if (lost_) return tl::unexpected(*lost_);
  const auto name = runtime::name_of(status);
  const auto text = runtime::text_of(status);
  switch (runtime::trouble_of(status)) {
    case runtime::Trouble::lost:
      lost_ = Error{ErrorCode::io, fmt::format("device: lost while {} ({}: {}); this process can "
                                               "use it no more, so start kipp again",
                                               what, name, text)};
      return tl::unexpected(*lost_);
    case runtime::Trouble::out_of_memory:
      return fail(ErrorCode::exhausted, "memory: the device had none left while {} ({}: {})", what,
                  name, text);
    case runtime::Trouble::unbuilt:
      return fail(ErrorCode::refused,
                  "device: expected one this build has code for, found compute capability {}.{} "
                  "({}) while {} ({}: {})",
                  properties_.major, properties_.minor, properties_.name, what, name, text);
    default:
      return fail(ErrorCode::io, "device: failed while {} ({}: {})", what, name, text);
  }
}

tl::unexpected<Error> Device::no_room(std::size_t bytes, std::string_view what, bool pinned) {
  std::size_t free = 0;
  if (!pinned && runtime::free_memory(&free) == 0) {
    return fail(ErrorCode::exhausted,
                "memory: the device has no room for {} bytes of {}; {} are free", bytes, what,
                free);
  }
  return fail(ErrorCode::exhausted, "memory: no room for {} {}bytes of {}", bytes,
              pinned ? "page-locked " : "", what);
}

Result<void> Device::check(runtime::Status status, std::string_view what) {
  if (status == 0) return {};
  return error_of(status, what);
}

Result<std::size_t> Device::free_bytes() {
  std::size_t bytes = 0;
  KIPP_TRY(check(runtime::free_memory(&bytes), "asking for free memory"));
  return bytes;
}

Result<DeviceMemory> Device::allocate(std::size_t bytes, std::string_view what) {
  void* memory = nullptr;
  if (const auto status = runtime::allocate(&memory, bytes); status != 0) {
    if (runtime::trouble_of(status) == runtime::Trouble::out_of_memory) {
      return no_room(bytes, what, false);
    }
    return error_of(status, fmt::format("allocating {}", what));
  }
  return DeviceMemory(memory, bytes);
}

Result<PinnedMemory> Device::allocate_pinned(std::size_t bytes, std::string_view what) {
  void* memory = nullptr;
  if (const auto status = runtime::allocate_pinned(&memory, bytes); status != 0) {
    if (runtime::trouble_of(status) == runtime::Trouble::out_of_memory) {
      return no_room(bytes, what, true);
    }
    return error_of(status, fmt::format("allocating {}", what));
  }
  return PinnedMemory(memory, bytes);
}

Result<void> Device::copy_to_device(void* to, std::span<const std::byte> from,
                                    std::string_view what) {
  return check(runtime::copy_to_device(to, from.data(), from.size(), stream_), what);
}

Result<void> Device::copy_to_host(std::span<std::byte> to, const void* from,
                                  std::string_view what) {
  return check(runtime::copy_to_host(to.data(), from, to.size(), stream_), what);
}

Result<void> Device::copy_within(void* to, const void* from, std::size_t bytes,
                                 std::string_view what) {
  return check(runtime::copy_within(to, from, bytes, stream_), what);
}

Result<void> Device::zero(void* memory, std::size_t bytes, std::string_view what) {
  return check(runtime::fill(memory, 0, bytes, stream_), what);
}

Result<void> Device::launched(LaunchCode code, std::string_view what) {
  const runtime::Status since = runtime::last_launch();
  return check(code != 0 ? code : since, what);
}

Result<void> Device::wait(std::string_view what) { return check(runtime::wait(stream_), what); }

Result<Event> Event::create(Device& device) {
  runtime::Event made = nullptr;
  KIPP_TRY(device.check(runtime::create_event(&made), "making an event"));
  return Event(device, made);
}

Event::~Event() {
  if (event_ != nullptr) runtime::destroy_event(event_);
}

Result<void> Event::record(std::string_view what) {
  return device_->check(runtime::record(event_, device_->stream()), what);
}

Result<void> Event::wait(std::string_view what) {
  return device_->check(runtime::wait_for(event_), what);
}

}  // namespace kipp::cuda
