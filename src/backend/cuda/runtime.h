// The calls of the CUDA runtime that kipp uses, without its headers: runtime.cu makes them,
// runtime_emulated.cc imitates them on plain memory for tests. Nothing here decides anything:
// Device (device.h) turns what comes back into sentences.
#pragma once

#include <cstddef>
#include <string_view>

#include "backend/cuda/kernels.h"

namespace kipp::cuda::runtime {

// 0, or the cudaError_t of the call. Work that was enqueued may fail later: then the next call that
// waits for it says so.
using Status = int;

// What a caller can do about a status.
enum class Trouble {
  none,
  absent,         // no driver, no device, or a driver older than this build
  out_of_memory,  // the device, or pinned memory of the host
  unbuilt,        // this build has no code for this device
  lost,           // every later call of this process fails too
  other,
};

Trouble trouble_of(Status status);
// "cudaErrorIllegalAddress: an illegal memory access was encountered"; lives as long as the
// program.
std::string_view name_of(Status status);
std::string_view text_of(Status status);

struct Properties {
  char name[256] = {};
  int major = 0;  // of the compute capability
  int minor = 0;
  int processors = 0;                  // streaming multiprocessors
  std::size_t l2_bytes = 0;            // of cache
  std::size_t shared_block_bytes = 0;  // of shared memory one block can ask for
  std::size_t memory_bytes = 0;
};

// Device 0 of those the process sees (CUDA_VISIBLE_DEVICES chooses). `driver` and `runtime` are
// versions as 1000 * major + 10 * minor, known even where the device is absent; 0: not known.
Status open(Properties* properties, int* driver, int* runtime);

Status free_memory(std::size_t* bytes);
Status allocate(void** memory, std::size_t bytes);
void release(void* memory);
// Of the host, page-locked: what copies to and from the device run at full speed with, and beside
// kernels.
Status allocate_pinned(void** memory, std::size_t bytes);
void release_pinned(void* memory);

Status create_stream(Stream* stream);
void destroy_stream(Stream stream);

// Enqueued, in the order of the stream. Memory of the host must stay until the stream has passed.
Status copy_to_device(void* to, const void* from, std::size_t bytes, Stream stream);
Status copy_to_host(void* to, const void* from, std::size_t bytes, Stream stream);
Status copy_within(void* to, const void* from, std::size_t bytes, Stream stream);
Status fill(void* memory, int byte, std::size_t bytes, Stream stream);

// Waits until all that was enqueued is done.
Status wait(Stream stream);
// Of the launches since the last call.
Status last_launch();

// A mark in a stream that the host can wait for, and take the time between two of.
using Event = void*;
Status create_event(Event* event);
void destroy_event(Event event);
Status record(Event event, Stream stream);
Status wait_for(Event event);
Status milliseconds_between(float* milliseconds, Event begin, Event end);

}  // namespace kipp::cuda::runtime
