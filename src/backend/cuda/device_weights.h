// All weights of a checkpoint on the device, in the order the kernels read. The artifact's rows are
// copied in pieces through two page-locked buffers (one is filled by the host's threads while the
// other is on its way) and put in order by the device. A tied head is the embedding's copy.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels.h"
#include "base/thread_pool.h"
#include "model/weights.h"

namespace kipp::cuda {

class DeviceWeights {
 public:
  // What stays on the device, and what the copying takes beside it until it is done.
  static std::size_t bytes_needed(const Qwen3Weights<StackedMatrix>& weights);
  static std::size_t staging_bytes();

  // Returns when everything is there. `progress` is called from this thread, in bytes of the
  // artifact.
  static Result<DeviceWeights> upload(Device& device, const Qwen3Weights<StackedMatrix>& weights,
                                      ThreadPool& pool, const LoadProgress& progress);

  // All pointers are the device's: the host must not follow them. `embed.data` is the packed
  // table's DeviceMatrix::weights.
  const Qwen3Weights<DeviceMatrix>& get() const { return weights_; }

 private:
  DeviceMemory memory_;
  Qwen3Weights<DeviceMatrix> weights_;
};

}  // namespace kipp::cuda
