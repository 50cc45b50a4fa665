#include "backend/cuda/emulated/emulated_runtime.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

namespace kipp::cuda::runtime {

namespace {

// Every byte 0xff makes a NaN of a float and of a BF16, and -1 of an index.
constexpr int kPoison = 0xff;
constexpr std::size_t kAlignment = 256;  // of what cudaMalloc returns
// Of an allocation, from both ends. The backend's buffers are made for steps of thousands of rows
// and its tests have a few: the middle is never touched, and no time is spent on its pages.
constexpr std::size_t kPoisoned = std::size_t{4} << 20;

std::map<void*, std::size_t>& device_allocations() {
  static std::map<void*, std::size_t> all;
  return all;
}

Status next_of(Fault& fault) {
  if (fault.status == 0) return 0;
  if (fault.calls_before-- > 0) return 0;
  const Status status = fault.status;
  fault = {};
  return status;
}

void* poisoned(std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, rounded == 0 ? kAlignment : rounded);
  if (memory == nullptr) return nullptr;
  const std::size_t part = std::min(bytes, kPoisoned);
  std::memset(memory, kPoison, part);
  std::memset(static_cast<std::byte*>(memory) + (bytes - part), kPoison, part);
  return memory;
}

// Streams and events have nothing inside, but are objects of their own so that a leak shows.
Status make_token(void** token) {
  *token = std::malloc(1);
  ++emulated_machine().live_objects;
  return *token == nullptr ? kOutOfMemory : 0;
}

void drop_token(void* token) {
  std::free(token);
  --emulated_machine().live_objects;
}

Status copy(void* to, const void* from, std::size_t bytes) {
  if (const Status status = next_of(emulated_machine().copy); status != 0) return status;
  if (bytes != 0) std::memmove(to, from, bytes);
  return 0;
}

}  // namespace

EmulatedMachine& emulated_machine() {
  static EmulatedMachine machine;
  return machine;
}

Trouble trouble_of(Status status) {
  switch (status) {
    case 0:
      return Trouble::none;
    case kNoDevice:
    case kInsufficientDriver:
      return Trouble::absent;
    case kOutOfMemory:
      return Trouble::out_of_memory;
    case kNoKernelImage:
      return Trouble::unbuilt;
    case kIllegalAddress:
      return Trouble::lost;
    default:
      return Trouble::other;
  }
}

std::string_view name_of(Status status) {
  switch (status) {
    case kNoDevice:
      return "cudaErrorNoDevice";
    case kInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case kOutOfMemory:
      return "cudaErrorMemoryAllocation";
    case kNoKernelImage:
      return "cudaErrorNoKernelImageForDevice";
    case kIllegalAddress:
      return "cudaErrorIllegalAddress";
    case kLaunchOutOfResources:
      return "cudaErrorLaunchOutOfResources";
    default:
      return "an emulated error";
  }
}

std::string_view text_of(Status) { return "emulated"; }

Status open(Properties* properties, int* driver, int* runtime) {
  const EmulatedMachine& machine = emulated_machine();
  *driver = machine.driver;
  *runtime = machine.runtime;
  *properties = machine.properties;
  return machine.open_status;
}

Status free_memory(std::size_t* bytes) {
  const EmulatedMachine& machine = emulated_machine();
  *bytes = machine.properties.memory_bytes - machine.device_bytes;
  return 0;
}

Status allocate(void** memory, std::size_t bytes) {
  EmulatedMachine& machine = emulated_machine();
  if (const Status status = next_of(machine.allocation); status != 0) return status;
  if (bytes > machine.properties.memory_bytes - machine.device_bytes) return kOutOfMemory;
  *memory = poisoned(bytes);
  if (*memory == nullptr) return kOutOfMemory;
  device_allocations()[*memory] = bytes;
  machine.device_bytes += bytes;
  ++machine.live_objects;
  return 0;
}

void release(void* memory) {
  EmulatedMachine& machine = emulated_machine();
  const auto found = device_allocations().find(memory);
  machine.device_bytes -= found->second;
  device_allocations().erase(found);
  --machine.live_objects;
  std::free(memory);
}

Status allocate_pinned(void** memory, std::size_t bytes) {
  EmulatedMachine& machine = emulated_machine();
  if (const Status status = next_of(machine.allocation); status != 0) return status;
  *memory = poisoned(bytes);
  if (*memory == nullptr) return kOutOfMemory;
  ++machine.live_objects;
  return 0;
}

void release_pinned(void* memory) {
  --emulated_machine().live_objects;
  std::free(memory);
}

Status create_stream(Stream* stream) {
  void* token = nullptr;
  const Status status = make_token(&token);
  *stream = static_cast<Stream>(token);
  return status;
}
void destroy_stream(Stream stream) { drop_token(stream); }

Status copy_to_device(void* to, const void* from, std::size_t bytes, Stream) {
  ++emulated_machine().copies;
  return copy(to, from, bytes);
}
Status copy_to_host(void* to, const void* from, std::size_t bytes, Stream) {
  return copy(to, from, bytes);
}
Status copy_within(void* to, const void* from, std::size_t bytes, Stream) {
  return copy(to, from, bytes);
}
Status fill(void* memory, int byte, std::size_t bytes, Stream) {
  if (const Status status = next_of(emulated_machine().copy); status != 0) return status;
  if (bytes != 0) std::memset(memory, byte, bytes);
  return 0;
}

Status wait(Stream) { return next_of(emulated_machine().wait); }
Status last_launch() {
  ++emulated_machine().launches;
  return next_of(emulated_machine().launch);
}

Status create_event(Event* event) { return make_token(event); }
void destroy_event(Event event) { drop_token(event); }
Status record(Event, Stream) { return 0; }
Status wait_for(Event) { return next_of(emulated_machine().wait); }
Status milliseconds_between(float* milliseconds, Event, Event) {
  *milliseconds = 0;
  return 0;
}

}  // namespace kipp::cuda::runtime
