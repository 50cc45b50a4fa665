// All weights of a checkpoint in the device's memory, in the order its kernels read. Refuses a
// matrix that is larger than what a shader can see of one buffer.
//
// Eight rows are a tile; in it 16 bytes of row 0, the same 16 bytes of row 1, ... of row 7, then
// the next 16 bytes of each:
//   bf16          [rows / 8][cols / 8][8 rows][8 BF16]
//   q8_0          [rows / 8][cols / 16][8 rows][16 codes]
//   4 bits        [rows / 8][cols / 32][8 rows][16 bytes as the file has them]
// Scales lie apart, a word for each row of a tile at a time:
//   q8_0, scale4  [rows / 8][cols / 64, rounded up][8 rows][FP16 scales of two blocks of 32]
//   affine4       [rows / 8][cols / 32][8 rows][FP16 scale, FP16 offset]
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/thread_pool.h"
#include "gpu/device.h"
#include "model/weights.h"

namespace kipp::webgpu {

struct DeviceMatrix {
  gpu::Buffer codes;
  gpu::Buffer scales;  // of bf16 none
  Scheme scheme = Scheme::bf16;
  int rows = 0;
  int cols = 0;
};

class DeviceWeights {
 public:
  // Returns when everything is there. `progress` is called from this thread, in bytes of the
  // artifact.
  static Result<DeviceWeights> upload(gpu::Device& device,
                                      const Qwen3Weights<StackedMatrix>& weights, ThreadPool& pool,
                                      const LoadProgress& progress);

  // Norms are the artifact's, on the host; their copies on the device are found by norm(). The
  // bytes of `embed` are the device's alone: the pointer names the table and is not to be followed.
  const Qwen3Weights<const DeviceMatrix*>& get() const { return weights_; }
  const DeviceMatrix& embedding() const { return *matrices_.front(); }
  // Bytes from the start of norms() to this norm of get(), a multiple of kNormAlignment.
  std::uint64_t norm_offset(std::span<const float> norm) const;
  const gpu::Buffer& norms() const { return norms_; }

  static constexpr std::uint64_t kNormAlignment = 256;

 private:
  std::vector<std::unique_ptr<DeviceMatrix>> matrices_;
  gpu::Buffer norms_;
  std::vector<std::pair<const float*, std::uint64_t>> norm_offsets_;  // ascending by pointer
  Qwen3Weights<const DeviceMatrix*> weights_;
};

}  // namespace kipp::webgpu
