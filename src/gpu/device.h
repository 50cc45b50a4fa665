// One GPU through webgpu.h: buffers, compute kernels, recorded work. Nothing of webgpu.h is seen
// outside this folder's .cc files, so that another implementation of it can take the place of
// wgpu-native. Includes nothing of kipp or kvquant; throws nothing.
//
// Work is recorded into a Recorder, submitted as one command buffer, and runs in the order of
// recording: a dispatch sees all that came before it. write() takes effect before the next
// submission and after all earlier ones. One thread uses a device at a time.
//
// Errors. Whatever WebGPU reports (also late, from a callback) becomes an Error of the call that
// provoked it or of the next submit(), read() or wait(). A lost device stays lost.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/adapter.h"
#include "gpu/error.h"

namespace gpu {

namespace detail {
// An owned object of webgpu.h: released when the last holder goes. Opaque here.
using Object = std::shared_ptr<void>;
}  // namespace detail

// Device memory, zero when created. Readable and writable by kernels and copies; uniform buffers
// are read by kernels only.
class Buffer {
 public:
  Buffer() = default;
  std::uint64_t bytes() const { return bytes_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  friend class Device;
  friend class Recorder;
  detail::Object object_;
  std::uint64_t bytes_ = 0;
};

// What a kernel sees at one @binding: a range of a buffer. bytes 0 is the rest of it.
struct Binding {
  const Buffer* buffer = nullptr;
  std::uint64_t offset = 0;  // a multiple of binding_alignment
  std::uint64_t bytes = 0;
};

enum class Access : std::uint8_t { uniform, read, read_write };

// A compute shader ready to run. `bindings` says how each @binding 0, 1, ... of @group(0) is used.
struct KernelSource {
  std::string name;  // in errors
  std::string wgsl;
  std::string entry = "main";
  std::vector<Access> bindings;
  struct Constant {
    std::string name;  // of a pipeline-overridable constant
    double value = 0;
  };
  std::vector<Constant> constants = {};
};

class Kernel {
 public:
  Kernel() = default;
  explicit operator bool() const { return pipeline_ != nullptr; }
  const std::string& name() const { return name_; }

 private:
  friend class Device;
  friend class Recorder;
  detail::Object pipeline_, layout_;
  std::string name_;
};

// A kernel's arguments. Made once and used in any number of dispatches; keeps its buffers alive.
class Arguments {
 public:
  Arguments() = default;
  explicit operator bool() const { return object_ != nullptr; }

 private:
  friend class Device;
  friend class Recorder;
  detail::Object object_;
};

class Device;

// Records one command buffer. Errors of recording appear in submit().
class Recorder {
 public:
  Recorder(Recorder&&) noexcept;
  Recorder& operator=(Recorder&&) noexcept;
  ~Recorder();

  // Nothing happens where one of the counts is zero.
  void dispatch(const Kernel& kernel, const Arguments& arguments, std::uint32_t x,
                std::uint32_t y = 1, std::uint32_t z = 1);
  // Offsets and bytes are multiples of 4; the ranges lie in different buffers.
  void copy(const Buffer& to, std::uint64_t to_offset, const Buffer& from,
            std::uint64_t from_offset, std::uint64_t bytes);
  void clear(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes);

 private:
  friend class Device;
  struct State;
  explicit Recorder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct DeviceOptions {
  std::string adapter;    // see choose_adapter()
  bool subgroups = true;  // used where the adapter has them; false: the plain path
  bool f16 = true;        // likewise
};

class Device {
 public:
  // With all limits that the adapter offers.
  static Expected<std::unique_ptr<Device>> open(const DeviceOptions& options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const AdapterInfo& adapter() const;  // features: those switched on

  // `what` names the memory in errors: "keys and values". More than the adapter can bind at once is
  // refused with both numbers.
  Expected<Buffer> create_buffer(std::uint64_t bytes, std::string_view what);
  Expected<Buffer> create_uniform(std::uint64_t bytes, std::string_view what);
  Expected<Kernel> create_kernel(const KernelSource& source);
  Expected<Arguments> bind(const Kernel& kernel, std::span<const Binding> bindings);

  // Offsets and sizes are multiples of 4.
  void write(const Buffer& buffer, std::uint64_t offset, std::span<const std::byte> data);
  Recorder record();
  Expected<void> submit(Recorder recorder);
  // Submits, waits for it, and copies a range of a buffer out, all in one command buffer.
  Expected<void> submit_and_read(Recorder recorder, const Buffer& buffer, std::uint64_t offset,
                                 std::span<std::byte> out);
  // Waits for everything submitted.
  Expected<void> read(const Buffer& buffer, std::uint64_t offset, std::span<std::byte> out);
  Expected<void> wait();

  // Makes the device lost, as a driver that resets it does. For tests of what follows.
  void destroy();

 private:
  struct State;
  explicit Device(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace gpu
