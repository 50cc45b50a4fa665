// The only file of the host side that sees a CUDA header.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>

#include "backend/cuda/runtime.h"

namespace kipp::cuda::runtime {

namespace {

cudaError_t error_of(Status status) { return static_cast<cudaError_t>(status); }
cudaStream_t stream_of(Stream stream) { return reinterpret_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(Event event) { return static_cast<cudaEvent_t>(event); }

Status copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, Stream stream) {
  return cudaMemcpyAsync(to, from, bytes, kind, stream_of(stream));
}

}  // namespace

Trouble trouble_of(Status status) {
  switch (error_of(status)) {
    case cudaSuccess:
      return Trouble::none;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorInitializationError:
      return Trouble::absent;
    case cudaErrorMemoryAllocation:
      return Trouble::out_of_memory;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInvalidDeviceFunction:
      return Trouble::unbuilt;
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
      return Trouble::lost;
    default:
      return Trouble::other;
  }
}

std::string_view name_of(Status status) { return cudaGetErrorName(error_of(status)); }
std::string_view text_of(Status status) { return cudaGetErrorString(error_of(status)); }

Status open(Properties* properties, int* driver, int* runtime) {
  if (cudaDriverGetVersion(driver) != cudaSuccess) *driver = 0;
  if (cudaRuntimeGetVersion(runtime) != cudaSuccess) *runtime = 0;
  if (const cudaError_t error = cudaSetDevice(0); error != cudaSuccess) return error;
  cudaDeviceProp found;
  if (const cudaError_t error = cudaGetDeviceProperties(&found, 0); error != cudaSuccess) {
    return error;
  }
  static_assert(sizeof found.name == sizeof properties->name);
  std::memcpy(properties->name, found.name, sizeof found.name);
  properties->major = found.major;
  properties->minor = found.minor;
  properties->processors = found.multiProcessorCount;
  properties->l2_bytes = static_cast<std::size_t>(std::max(found.l2CacheSize, 0));
  properties->shared_block_bytes = found.sharedMemPerBlockOptin;
  properties->memory_bytes = found.totalGlobalMem;
  return cudaSuccess;
}

Status free_memory(std::size_t* bytes) {
  std::size_t total = 0;
  return cudaMemGetInfo(bytes, &total);
}

Status allocate(void** memory, std::size_t bytes) { return cudaMalloc(memory, bytes); }
void release(void* memory) { cudaFree(memory); }
Status allocate_pinned(void** memory, std::size_t bytes) {
  return cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
}
void release_pinned(void* memory) { cudaFreeHost(memory); }

Status create_stream(Stream* stream) {
  cudaStream_t made = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
  *stream = reinterpret_cast<Stream>(made);
  return error;
}
void destroy_stream(Stream stream) { cudaStreamDestroy(stream_of(stream)); }

Status copy_to_device(void* to, const void* from, std::size_t bytes, Stream stream) {
  return copy(to, from, bytes, cudaMemcpyHostToDevice, stream);
}
Status copy_to_host(void* to, const void* from, std::size_t bytes, Stream stream) {
  return copy(to, from, bytes, cudaMemcpyDeviceToHost, stream);
}
Status copy_within(void* to, const void* from, std::size_t bytes, Stream stream) {
  return copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}
Status fill(void* memory, int byte, std::size_t bytes, Stream stream) {
  return cudaMemsetAsync(memory, byte, bytes, stream_of(stream));
}

Status wait(Stream stream) { return cudaStreamSynchronize(stream_of(stream)); }
Status last_launch() { return cudaGetLastError(); }

Status create_event(Event* event) {
  cudaEvent_t made = nullptr;
  const cudaError_t error = cudaEventCreate(&made);
  *event = made;
  return error;
}
void destroy_event(Event event) { cudaEventDestroy(event_of(event)); }
Status record(Event event, Stream stream) {
  return cudaEventRecord(event_of(event), stream_of(stream));
}
Status wait_for(Event event) { return cudaEventSynchronize(event_of(event)); }
Status milliseconds_between(float* milliseconds, Event begin, Event end) {
  return cudaEventElapsedTime(milliseconds, event_of(begin), event_of(end));
}

}  // namespace kipp::cuda::runtime
