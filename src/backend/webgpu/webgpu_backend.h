// Any GPU that WebGPU reaches: Vulkan, Metal, Direct3D 12. docs/BACKENDS.md says how it computes.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace kipp::webgpu {

inline constexpr int kMaxStepTokens = 512;
// As many as `cpu` returns; 78 MB, within the 128 MiB that every device can bind.
inline constexpr int kMaxLogitRows = 128;

class WebgpuBackend final : public Backend {
 public:
  WebgpuBackend();
  ~WebgpuBackend() override;

  const BackendInfo& info() const override { return info_; }
  Result<void> load(const Artifact& artifact, const KvConfig& kv,
                    const LoadOptions& options = {}) override;
  Result<LogitsView> eval(std::span<const EvalItem> items) override;
  void copy_blocks(std::span<const BlockCopy> copies) override;
  void hold_planes(std::span<const PlaneChange> changes) override;
  void move_planes(BlockId from, BlockId to, PlaneBits planes) override;
  std::size_t block_bytes() const override;
  std::size_t block_bytes(PlaneBits planes) const override;
  Result<void> read_block(BlockId block, std::span<std::byte> out) override;
  Result<void> write_block(BlockId block, std::span<const std::byte> in) override;

  // Makes the device lost, for tests of what follows. Needs a loaded backend.
  void lose_device();

 private:
  struct State;

  BackendInfo info_{.name = "webgpu",
                    .max_step_tokens = kMaxStepTokens,
                    .max_logit_rows = kMaxLogitRows,
                    .on_host = false};
  std::unique_ptr<State> state_;  // empty until load
};

}  // namespace kipp::webgpu
