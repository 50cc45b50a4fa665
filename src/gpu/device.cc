#include "gpu/device.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <utility>

#include "gpu/instance.h"
#include "gpu/native.h"
#include "gpu/objects.h"

namespace gpu {

using detail::handle;
using detail::Object;
using detail::own;
using detail::text;
using detail::view;

namespace {

constexpr WGPUBufferUsage kStorage =
    WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst;
constexpr WGPUBufferUsage kUniform = WGPUBufferUsage_Uniform | WGPUBufferUsage_CopyDst;
constexpr WGPUBufferUsage kReadBack = WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst;

// How long results are looked for before the thread goes to sleep: most steps with few rows.
constexpr std::chrono::milliseconds kSpin{10};

// Messages of wgpu are several lines, each naming a cause deeper down.
std::string one_line(std::string_view message) {
  constexpr std::string_view kCause = "Caused by:";
  if (const auto at = message.find(kCause); at != std::string_view::npos) {
    message.remove_prefix(at + kCause.size());
  }
  std::string result;
  for (const char c : message) {
    const bool space = c == '\n' || c == '\t' || c == ' ';
    if (space && (result.empty() || result.back() == ' ')) continue;
    result += space ? ' ' : c;
  }
  while (!result.empty() && (result.back() == ' ' || result.back() == '.')) result.pop_back();
  return result;
}

// What callbacks report, from whatever thread they come.
class Reports {
 public:
  void add(WGPUErrorType type, std::string message) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = {type, std::move(message)};
  }
  void lose(std::string message) {
    const std::lock_guard lock(mutex_);
    if (!lost_) lost_ = std::move(message);
  }
  std::optional<std::string> lost() {
    const std::lock_guard lock(mutex_);
    return lost_;
  }
  std::optional<std::pair<WGPUErrorType, std::string>> take_error() {
    const std::lock_guard lock(mutex_);
    return std::exchange(error_, std::nullopt);
  }

 private:
  std::mutex mutex_;
  std::optional<std::pair<WGPUErrorType, std::string>> error_;
  std::optional<std::string> lost_;
};

void on_lost(const WGPUDevice*, WGPUDeviceLostReason, WGPUStringView message, void* reports,
             void*) {
  static_cast<Reports*>(reports)->lose(one_line(text(message)));
}

void on_error(const WGPUDevice*, WGPUErrorType type, WGPUStringView message, void* reports, void*) {
  static_cast<Reports*>(reports)->add(type, one_line(text(message)));
}

ErrorKind kind_of(WGPUErrorType type) {
  return type == WGPUErrorType_OutOfMemory ? ErrorKind::out_of_memory : ErrorKind::invalid;
}

struct RequestedDevice {
  WGPUDevice device = nullptr;
  std::string message;
};

void on_device(WGPURequestDeviceStatus, WGPUDevice device, WGPUStringView message, void* request,
               void*) {
  auto& result = *static_cast<RequestedDevice*>(request);
  result.device = device;
  result.message = one_line(text(message));
}

struct Mapped {
  bool called = false;
  WGPUMapAsyncStatus status = WGPUMapAsyncStatus_Error;
  std::string message;
};

void on_mapped(WGPUMapAsyncStatus status, WGPUStringView message, void* mapped, void*) {
  auto& result = *static_cast<Mapped*>(mapped);
  result = {true, status, one_line(text(message))};
}

struct Scope {
  bool called = false;
  WGPUErrorType type = WGPUErrorType_NoError;
  std::string message;
};

void on_scope(WGPUPopErrorScopeStatus, WGPUErrorType type, WGPUStringView message, void* scope,
              void*) {
  auto& result = *static_cast<Scope*>(scope);
  result = {true, type, one_line(text(message))};
}

}  // namespace

// Destroyed from the last member to the first: the device before what its callbacks write to.
struct Device::State {
  Reports reports;
  AdapterInfo adapter;
  Object instance, adapter_object, device, queue;
  Object read_back;  // grows to the largest read
  std::uint64_t read_back_bytes = 0;

  WGPUDevice get() const { return handle<WGPUDevice>(device); }
  WGPUQueue get_queue() const { return handle<WGPUQueue>(queue); }

  Error error(ErrorKind kind, const std::string& message) const {
    return {kind, message + " (" + adapter.name + ", " + adapter.api + ")"};
  }
  // wgpu-native refuses calls of a lost device, or does nothing, without a word to on_lost(), until
  // something is to be made.
  void ask_whether_lost() {
    own(wgpuDeviceCreateCommandEncoder(get(), nullptr), wgpuCommandEncoderRelease);
  }
  // What was reported since the last call, a lost device first.
  Expected<void> check(std::string_view doing) {
    native::poll(get(), false);
    const auto found = reports.take_error();
    if (found) ask_whether_lost();
    if (const auto lost = reports.lost()) {
      return tl::unexpected(error(ErrorKind::lost, "device: lost (" +
                                                       (lost->empty() ? "no reason given" : *lost) +
                                                       "), noticed at: " + std::string(doing)));
    }
    if (found) {
      return tl::unexpected(
          error(kind_of(found->first), "device: " + std::string(doing) + ": " + found->second));
    }
    return {};
  }

  // Runs `make` and returns what webgpu.h says against it, if anything.
  template <class Make>
  Expected<Object> create(std::string_view doing, ErrorKind kind, const Make& make) {
    if (auto ready = check(doing); !ready) return tl::unexpected(std::move(ready).error());
    // wgpu-native takes no filter for internal errors; those come to on_error().
    constexpr WGPUErrorFilter kFilters[] = {WGPUErrorFilter_Validation,
                                            WGPUErrorFilter_OutOfMemory};
    for (const WGPUErrorFilter filter : kFilters) wgpuDevicePushErrorScope(get(), filter);
    Object object = make();
    std::optional<Error> refused;
    for (std::size_t i = 0; i < std::size(kFilters); ++i) {
      Scope scope;
      WGPUPopErrorScopeCallbackInfo callback = {};
      callback.mode = WGPUCallbackMode_AllowSpontaneous;
      callback.callback = on_scope;
      callback.userdata1 = &scope;
      wgpuDevicePopErrorScope(get(), callback);
      if (!scope.called) native::poll(get(), true);
      if (scope.type == WGPUErrorType_NoError || refused) continue;
      refused = error(scope.type == WGPUErrorType_OutOfMemory ? ErrorKind::out_of_memory : kind,
                      std::string(doing) + ": " + scope.message);
    }
    if (auto still = check(doing); !still) return tl::unexpected(std::move(still).error());
    if (refused) return tl::unexpected(*std::move(refused));
    if (object == nullptr) {
      return tl::unexpected(error(kind, std::string(doing) + ": the driver gave no reason"));
    }
    return object;
  }

  Expected<Object> create_memory(std::uint64_t bytes, WGPUBufferUsage usage,
                                 std::string_view what) {
    return create("memory for " + std::string(what), ErrorKind::out_of_memory, [&] {
      WGPUBufferDescriptor descriptor = {};
      descriptor.label = view(what);
      descriptor.usage = usage;
      descriptor.size = bytes;
      return own(wgpuDeviceCreateBuffer(get(), &descriptor), wgpuBufferRelease);
    });
  }

  // Waits until `mapped` was called; a device that is lost calls it too.
  Expected<void> copy_read_back(std::span<std::byte> out) {
    Mapped mapped;
    WGPUBufferMapCallbackInfo callback = {};
    callback.mode = WGPUCallbackMode_AllowSpontaneous;
    callback.callback = on_mapped;
    callback.userdata1 = &mapped;
    const auto buffer = handle<WGPUBuffer>(read_back);
    wgpuBufferMapAsync(buffer, WGPUMapMode_Read, 0, out.size(), callback);
    // A thread that sleeps until a fence is signalled wakes some 0.3 ms later: longer than a layer.
    const auto until = std::chrono::steady_clock::now() + kSpin;
    while (!mapped.called && std::chrono::steady_clock::now() < until) native::poll(get(), false);
    if (!mapped.called) native::poll(get(), true);
    if (auto alive = check("reading results"); !alive) {
      if (mapped.called && mapped.status == WGPUMapAsyncStatus_Success) wgpuBufferUnmap(buffer);
      return alive;
    }
    if (!mapped.called || mapped.status != WGPUMapAsyncStatus_Success) {
      return tl::unexpected(
          error(ErrorKind::invalid,
                "device: reading results: " + (mapped.called ? mapped.message : "no answer came")));
    }
    std::memcpy(out.data(), wgpuBufferGetConstMappedRange(buffer, 0, out.size()), out.size());
    wgpuBufferUnmap(buffer);
    return {};
  }

  Expected<void> reserve_read_back(std::uint64_t bytes) {
    if (read_back_bytes >= bytes) return {};
    read_back.reset();
    read_back_bytes = 0;
    auto memory = create_memory(bytes, kReadBack, "results");
    if (!memory) return tl::unexpected(std::move(memory).error());
    read_back = *std::move(memory);
    read_back_bytes = bytes;
    return {};
  }
};

struct Recorder::State {
  Object encoder, pass;

  WGPUCommandEncoder get() const { return handle<WGPUCommandEncoder>(encoder); }
  WGPUComputePassEncoder compute() {
    if (pass == nullptr) {
      pass = own(wgpuCommandEncoderBeginComputePass(get(), nullptr), wgpuComputePassEncoderRelease);
    }
    return handle<WGPUComputePassEncoder>(pass);
  }
  WGPUCommandEncoder outside_pass() {
    if (pass != nullptr) {
      wgpuComputePassEncoderEnd(handle<WGPUComputePassEncoder>(pass));
      pass.reset();
    }
    return get();
  }
};

Recorder::Recorder(std::unique_ptr<State> state) : state_(std::move(state)) {}
Recorder::Recorder(Recorder&&) noexcept = default;
Recorder& Recorder::operator=(Recorder&&) noexcept = default;
Recorder::~Recorder() {
  if (state_ != nullptr) state_->outside_pass();
}

void Recorder::dispatch(const Kernel& kernel, const Arguments& arguments, std::uint32_t x,
                        std::uint32_t y, std::uint32_t z) {
  if (x == 0 || y == 0 || z == 0) return;
  const auto pass = state_->compute();
  wgpuComputePassEncoderSetPipeline(pass, handle<WGPUComputePipeline>(kernel.pipeline_));
  wgpuComputePassEncoderSetBindGroup(pass, 0, handle<WGPUBindGroup>(arguments.object_), 0, nullptr);
  wgpuComputePassEncoderDispatchWorkgroups(pass, x, y, z);
}

void Recorder::copy(const Buffer& to, std::uint64_t to_offset, const Buffer& from,
                    std::uint64_t from_offset, std::uint64_t bytes) {
  wgpuCommandEncoderCopyBufferToBuffer(state_->outside_pass(), handle<WGPUBuffer>(from.object_),
                                       from_offset, handle<WGPUBuffer>(to.object_), to_offset,
                                       bytes);
}

void Recorder::clear(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) {
  wgpuCommandEncoderClearBuffer(state_->outside_pass(), handle<WGPUBuffer>(buffer.object_), offset,
                                bytes);
}

Device::Device(std::unique_ptr<State> state) : state_(std::move(state)) {}
Device::~Device() = default;

Expected<std::unique_ptr<Device>> Device::open(const DeviceOptions& options) {
  auto state = std::make_unique<State>();
  auto instance = create_instance();
  if (!instance) return tl::unexpected(std::move(instance).error());
  state->instance = *std::move(instance);
  auto found = find_adapters(handle<WGPUInstance>(state->instance));
  std::vector<AdapterInfo> infos;
  for (const FoundAdapter& adapter : found) infos.push_back(adapter.info);
  auto chosen = choose_adapter(infos, options.adapter);
  if (!chosen) return tl::unexpected(std::move(chosen).error());
  state->adapter = *std::move(chosen);
  Features& features = state->adapter.features;
  features.f16 = features.f16 && options.f16;
  features.subgroups = features.subgroups && options.subgroups;
  state->adapter_object = found[static_cast<std::size_t>(state->adapter.index)].adapter;
  const auto adapter = handle<WGPUAdapter>(state->adapter_object);

  std::vector<WGPUFeatureName> required;
  if (features.f16) required.push_back(WGPUFeatureName_ShaderF16);
  if (features.subgroups) required.push_back(native::subgroups_feature());
  if (features.timestamps) required.push_back(WGPUFeatureName_TimestampQuery);
  WGPULimits limits = {};
  wgpuAdapterGetLimits(adapter, &limits);
  WGPUDeviceDescriptor descriptor = {};
  descriptor.label = view("kipp");
  descriptor.requiredFeatureCount = required.size();
  descriptor.requiredFeatures = required.data();
  descriptor.requiredLimits = &limits;
  descriptor.deviceLostCallbackInfo.mode = WGPUCallbackMode_AllowSpontaneous;
  descriptor.deviceLostCallbackInfo.callback = on_lost;
  descriptor.deviceLostCallbackInfo.userdata1 = &state->reports;
  descriptor.uncapturedErrorCallbackInfo.callback = on_error;
  descriptor.uncapturedErrorCallbackInfo.userdata1 = &state->reports;
  RequestedDevice request;
  WGPURequestDeviceCallbackInfo callback = {};
  callback.mode = WGPUCallbackMode_AllowSpontaneous;
  callback.callback = on_device;
  callback.userdata1 = &request;
  wgpuAdapterRequestDevice(adapter, &descriptor, callback);
  if (request.device == nullptr) {
    return tl::unexpected(state->error(ErrorKind::unsupported,
                                       "adapter: expected a device, got none: " + request.message));
  }
  state->device = own(request.device, wgpuDeviceRelease);
  state->queue = own(wgpuDeviceGetQueue(request.device), wgpuQueueRelease);
  return std::unique_ptr<Device>(new Device(std::move(state)));
}

const AdapterInfo& Device::adapter() const { return state_->adapter; }

Expected<Buffer> Device::create_buffer(std::uint64_t bytes, std::string_view what) {
  const Limits& limits = state_->adapter.limits;
  const std::uint64_t most = std::min(limits.max_buffer_bytes, limits.max_binding_bytes);
  if (bytes > most) {
    return tl::unexpected(state_->error(ErrorKind::unsupported,
                                        "memory: expected at most " + std::to_string(most) +
                                            " bytes, which is what a shader can see of one "
                                            "buffer, found " +
                                            std::to_string(bytes) + " for " + std::string(what)));
  }
  auto memory = state_->create_memory(bytes, kStorage, what);
  if (!memory) return tl::unexpected(std::move(memory).error());
  Buffer buffer;
  buffer.object_ = *std::move(memory);
  buffer.bytes_ = bytes;
  return buffer;
}

Expected<Buffer> Device::create_uniform(std::uint64_t bytes, std::string_view what) {
  auto memory = state_->create_memory(bytes, kUniform, what);
  if (!memory) return tl::unexpected(std::move(memory).error());
  Buffer buffer;
  buffer.object_ = *std::move(memory);
  buffer.bytes_ = bytes;
  return buffer;
}

Expected<Kernel> Device::create_kernel(const KernelSource& source) {
  const std::string doing = "shader " + source.name;
  auto module = state_->create(doing, ErrorKind::shader, [&] {
    WGPUShaderSourceWGSL code = {};
    code.chain.sType = WGPUSType_ShaderSourceWGSL;
    code.code = view(source.wgsl);
    WGPUShaderModuleDescriptor descriptor = {};
    descriptor.nextInChain = &code.chain;
    descriptor.label = view(source.name);
    return own(native::create_shader(state_->get(), descriptor), wgpuShaderModuleRelease);
  });
  if (!module) return tl::unexpected(std::move(module).error());

  std::vector<WGPUBindGroupLayoutEntry> entries(source.bindings.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i] = {};
    entries[i].binding = static_cast<std::uint32_t>(i);
    entries[i].visibility = WGPUShaderStage_Compute;
    entries[i].buffer.type = source.bindings[i] == Access::uniform ? WGPUBufferBindingType_Uniform
                             : source.bindings[i] == Access::read
                                 ? WGPUBufferBindingType_ReadOnlyStorage
                                 : WGPUBufferBindingType_Storage;
  }
  auto layout = state_->create(doing, ErrorKind::shader, [&] {
    WGPUBindGroupLayoutDescriptor descriptor = {};
    descriptor.entryCount = entries.size();
    descriptor.entries = entries.data();
    return own(wgpuDeviceCreateBindGroupLayout(state_->get(), &descriptor),
               wgpuBindGroupLayoutRelease);
  });
  if (!layout) return tl::unexpected(std::move(layout).error());
  auto pipeline = state_->create(doing, ErrorKind::shader, [&] {
    const auto group = handle<WGPUBindGroupLayout>(*layout);
    WGPUPipelineLayoutDescriptor groups = {};
    groups.bindGroupLayoutCount = 1;
    groups.bindGroupLayouts = &group;
    const Object pipeline_layout =
        own(wgpuDeviceCreatePipelineLayout(state_->get(), &groups), wgpuPipelineLayoutRelease);
    std::vector<WGPUConstantEntry> constants;
    for (const auto& constant : source.constants) {
      constants.push_back({nullptr, view(constant.name), constant.value});
    }
    WGPUComputePipelineDescriptor descriptor = {};
    descriptor.label = view(source.name);
    descriptor.layout = handle<WGPUPipelineLayout>(pipeline_layout);
    descriptor.compute.module = handle<WGPUShaderModule>(*module);
    descriptor.compute.entryPoint = view(source.entry);
    descriptor.compute.constantCount = constants.size();
    descriptor.compute.constants = constants.data();
    return own(wgpuDeviceCreateComputePipeline(state_->get(), &descriptor),
               wgpuComputePipelineRelease);
  });
  if (!pipeline) return tl::unexpected(std::move(pipeline).error());
  Kernel kernel;
  kernel.pipeline_ = *std::move(pipeline);
  kernel.layout_ = *std::move(layout);
  kernel.name_ = source.name;
  return kernel;
}

Expected<Arguments> Device::bind(const Kernel& kernel, std::span<const Binding> bindings) {
  auto group = state_->create("arguments of shader " + kernel.name_, ErrorKind::invalid, [&] {
    std::vector<WGPUBindGroupEntry> entries(bindings.size());
    for (std::size_t i = 0; i < bindings.size(); ++i) {
      const Binding& binding = bindings[i];
      entries[i] = {};
      entries[i].binding = static_cast<std::uint32_t>(i);
      entries[i].buffer = handle<WGPUBuffer>(binding.buffer->object_);
      entries[i].offset = binding.offset;
      entries[i].size =
          binding.bytes != 0 ? binding.bytes : binding.buffer->bytes() - binding.offset;
    }
    WGPUBindGroupDescriptor descriptor = {};
    descriptor.layout = handle<WGPUBindGroupLayout>(kernel.layout_);
    descriptor.entryCount = entries.size();
    descriptor.entries = entries.data();
    return own(wgpuDeviceCreateBindGroup(state_->get(), &descriptor), wgpuBindGroupRelease);
  });
  if (!group) return tl::unexpected(std::move(group).error());
  Arguments arguments;
  arguments.object_ = *std::move(group);
  return arguments;
}

void Device::write(const Buffer& buffer, std::uint64_t offset, std::span<const std::byte> data) {
  if (data.empty()) return;
  wgpuQueueWriteBuffer(state_->get_queue(), handle<WGPUBuffer>(buffer.object_), offset, data.data(),
                       data.size());
}

Recorder Device::record() {
  auto state = std::make_unique<Recorder::State>();
  state->encoder =
      own(wgpuDeviceCreateCommandEncoder(state_->get(), nullptr), wgpuCommandEncoderRelease);
  return Recorder(std::move(state));
}

Expected<void> Device::submit(Recorder recorder) {
  if (auto ready = state_->check("recording a step"); !ready) return ready;
  const Object commands = own(wgpuCommandEncoderFinish(recorder.state_->outside_pass(), nullptr),
                              wgpuCommandBufferRelease);
  if (auto recorded = state_->check("recording a step"); !recorded) return recorded;
  const auto buffer = handle<WGPUCommandBuffer>(commands);
  wgpuQueueSubmit(state_->get_queue(), 1, &buffer);
  return state_->check("submitting a step");
}

Expected<void> Device::submit_and_read(Recorder recorder, const Buffer& buffer,
                                       std::uint64_t offset, std::span<std::byte> out) {
  if (out.empty()) {
    if (auto submitted = submit(std::move(recorder)); !submitted) return submitted;
    return wait();
  }
  if (auto room = state_->reserve_read_back(out.size()); !room) return room;
  wgpuCommandEncoderCopyBufferToBuffer(recorder.state_->outside_pass(),
                                       handle<WGPUBuffer>(buffer.object_), offset,
                                       handle<WGPUBuffer>(state_->read_back), 0, out.size());
  if (auto submitted = submit(std::move(recorder)); !submitted) return submitted;
  return state_->copy_read_back(out);
}

Expected<void> Device::read(const Buffer& buffer, std::uint64_t offset, std::span<std::byte> out) {
  return submit_and_read(record(), buffer, offset, out);
}

Expected<void> Device::wait() {
  native::poll(state_->get(), true);
  state_->ask_whether_lost();
  return state_->check("waiting for a step");
}

void Device::destroy() { wgpuDeviceDestroy(state_->get()); }

}  // namespace gpu
