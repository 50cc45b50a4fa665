// The backend for NVIDIA GPUs of compute capability 8.0 and later: resident weights, a paged pool
// of BF16 keys and values, every step enqueued on one stream and waited for. One device, the first
// that the process sees; CUDA_VISIBLE_DEVICES chooses another.
//
// Refused: weights left in the mapping, caches other than BF16, what does not fit into the memory
// of the device (with numbers, before anything is allocated).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/devices.h"

namespace kipp::cuda {

// Larger than on a CPU, because a step must hold the weights' bytes against enough arithmetic; at
// 8B one takes about 50 ms, which is what a cancellation may wait.
inline constexpr int kMaxStepTokens = 2048;
inline constexpr int kMaxLogitRows = 256;  // 156 MB on the device and as much page-locked

// The one device that this backend uses; none is an error that says so.
Result<std::vector<DeviceFacts>> list_devices();

class CudaBackend final : public Backend {
 public:
  CudaBackend();
  ~CudaBackend() override;

  const BackendInfo& info() const override { return info_; }
  Result<void> load(const Artifact& artifact, const KvConfig& kv,
                    const LoadOptions& options = {}) override;
  Result<LogitsView> eval(std::span<const EvalItem> items) override;
  // An error is returned by the eval that follows, which then does nothing.
  void copy_blocks(std::span<const BlockCopy> copies) override;
  using Backend::block_bytes;
  std::size_t block_bytes() const override;
  Result<void> read_block(BlockId block, std::span<std::byte> out) override;
  Result<void> write_block(BlockId block, std::span<const std::byte> in) override;

 private:
  struct State;
  Result<std::byte*> block_at(BlockId block, std::size_t bytes) const;

  BackendInfo info_{.name = "cuda",
                    .max_step_tokens = kMaxStepTokens,
                    .max_logit_rows = kMaxLogitRows,
                    .on_host = false};
  std::unique_ptr<State> state_;  // empty until load
};

}  // namespace kipp::cuda
