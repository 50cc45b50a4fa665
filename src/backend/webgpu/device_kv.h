// Keys and values of all layers in a device's memory, and attention over them: everything between
// the buffers qkv and ctx of a step. One buffer for each layer, since a shader sees only so much of
// one; a layer that does not fit is refused. Block b of a layer is
//   [k, v][kv_head][position][head_dim] BF16, two to a word
// so that the layers' parts one after the other are the bytes that all backends exchange.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/webgpu/attention_plan.h"
#include "gpu/device.h"
#include "model/config.h"
#include "model/step_plan.h"

namespace kipp::webgpu {

class DeviceKv {
 public:
  struct Limits {
    int max_step_tokens = 0;
    // Of a kernel's workgroup, where the adapter has more; 0: all it has. For tests: the bits are
    // the same.
    std::uint32_t workgroup_bytes = 0;
    // That keep the device busy; a step with fewer is cut further.
    int workgroups = 1024;
  };
  // The norms of a layer's queries and keys: [kHeadDim] float32 each.
  struct LayerNorms {
    gpu::Binding query, key;
  };
  struct Activations {
    const gpu::Buffer& qkv;  // float32 [rows][(query_heads + 2 * kKvHeads) * kHeadDim]
    const gpu::Buffer& ctx;  // float32 [rows][query_heads * kHeadDim]
  };

  // Bytes on the device, for checks before anything is allocated.
  static std::size_t bytes_needed(const ModelConfig& config, const KvConfig& kv,
                                  const Limits& limits);
  // The device outlives the cache.
  static Result<std::unique_ptr<DeviceKv>> create(gpu::Device& device, const ModelConfig& config,
                                                  const KvConfig& kv, const Limits& limits,
                                                  const Activations& activations,
                                                  std::span<const LayerNorms> norms);
  ~DeviceKv();

  // Before anything of the step is submitted.
  Result<void> begin_step(const StepPlan& step);
  // RMSNorm and rotation of queries and keys in qkv; queries go back, keys and values are kept.
  void append(gpu::Recorder& recorder, int layer) const;
  // ctx = attention of qkv's queries over all positions up to their own.
  void attend(gpu::Recorder& recorder, int layer) const;

  // As Backend's functions of these names.
  Result<void> copy_blocks(std::span<const BlockCopy> copies);
  std::size_t block_bytes() const;
  Result<void> read_block(BlockId block, std::span<std::byte> out);
  Result<void> write_block(BlockId block, std::span<const std::byte> in);

 private:
  struct Layer {
    gpu::Buffer cache;
    gpu::Arguments append, narrow, wide;
  };

  DeviceKv(gpu::Device& device, const ModelConfig& config, const KvConfig& kv,
           const Limits& limits);
  Result<void> create_kernels(std::uint32_t workgroup_bytes);
  Result<void> create_buffers();
  Result<void> bind(const Activations& activations, std::span<const LayerNorms> norms);
  Result<void> check(BlockId block, std::size_t bytes) const;

  gpu::Device& device_;
  const ModelConfig config_;
  const KvConfig kv_;
  AttentionPlan plan_;
  std::uint32_t rows_ = 0;          // of the step
  std::uint32_t narrow_parts_ = 0;  // workgroups of a narrow task and KV head
  gpu::Kernel append_, narrow_, wide_, merge_;
  gpu::Arguments merge_arguments_;
  std::vector<Layer> layers_;
  gpu::Buffer rope_;    // float32 [positions][kHeadDim / 2 cos, kHeadDim / 2 sin]
  gpu::Buffer step_;    // AttentionPlan::words()
  gpu::Buffer states_;  // of split tasks, float32 [slots][query_heads][132]
  gpu::Buffer bounce_;  // one block of all layers: copies are between buffers, not within one
};

}  // namespace kipp::webgpu
