// BF16 keys and values in a device's memory. Block b of a layer is
//   [k, v][kv_head][position][head_dim] BF16, two to a word
// so that the layers' parts one after the other are the bytes that all backends exchange.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/webgpu/device_kv.h"

namespace kipp::webgpu {

class PagedDeviceKv final : public DeviceKv {
 public:
  static std::size_t bytes_needed(const ModelConfig& config, const KvConfig& kv,
                                  const Limits& limits);
  static Result<std::unique_ptr<DeviceKv>> create(gpu::Device& device, const ModelConfig& config,
                                                  const KvConfig& kv, const Limits& limits,
                                                  const Activations& activations,
                                                  std::span<const LayerNorms> norms);

  Result<void> begin_step(const StepPlan& step) override;
  void append(gpu::Recorder& recorder, int layer) const override;
  void attend(gpu::Recorder& recorder, int layer) const override;
  Result<void> copy_blocks(std::span<const BlockCopy> copies) override;
  using DeviceKv::block_bytes;
  std::size_t block_bytes(PlaneBits planes) const override;
  Result<void> read_block(BlockId block, std::span<std::byte> out) override;
  Result<void> write_block(BlockId block, std::span<const std::byte> in) override;

 private:
  struct Layer {
    gpu::Buffer cache;
    gpu::Arguments append, narrow, wide;
  };

  using DeviceKv::DeviceKv;
  Result<void> create_kernels();
  Result<void> create_layers(const Activations& activations, std::span<const LayerNorms> norms);
  Result<void> check(BlockId block, std::size_t bytes) const;

  gpu::Kernel append_, narrow_, wide_;
  std::vector<Layer> layers_;
  gpu::Buffer bounce_;  // one block of all layers: copies are between buffers, not within one
};

}  // namespace kipp::webgpu
