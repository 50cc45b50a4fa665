// Keys and values of all layers in a device's memory, and attention over them: everything between
// the buffers qkv and ctx of a step. One buffer for each layer, since a shader sees only so much of
// one; a layer that does not fit is refused.
//
// A step is begin_step(), then append() and attend() for each layer in one recording, and after its
// submission finish_step(). One thread, as of the device.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
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
  virtual ~DeviceKv();

  // Refuses a step that needs planes which its blocks do not hold. Before anything of the step is
  // submitted.
  virtual Result<void> begin_step(const StepPlan& step) = 0;
  // RMSNorm and rotation of queries and keys in qkv; queries go back, keys and values are kept.
  // Codes of the blocks that are completed are made.
  virtual void append(gpu::Recorder& recorder, int layer) const = 0;
  // ctx = attention of qkv's queries over all positions up to their own.
  virtual void attend(gpu::Recorder& recorder, int layer) const = 0;
  // Once the step is submitted: why keys or values of it could not be coded, if so; its logits then
  // mean nothing. Waits only where codes were made.
  virtual Result<void> finish_step() { return {}; }

  // As Backend's functions of these names.
  virtual Result<void> copy_blocks(std::span<const BlockCopy> copies) = 0;
  virtual void hold_planes(std::span<const PlaneChange> /*changes*/) {}
  virtual Result<void> move_planes(BlockId /*from*/, BlockId /*to*/, PlaneBits /*planes*/) {
    return {};
  }
  virtual std::size_t block_bytes(PlaneBits planes) const = 0;
  std::size_t block_bytes() const { return block_bytes(static_cast<PlaneBits>(~0u)); }
  virtual Result<void> read_block(BlockId block, std::span<std::byte> out) = 0;
  virtual Result<void> write_block(BlockId block, std::span<const std::byte> in) = 0;

 protected:
  // The kernels that attend, of one layer or of several, and what they are given.
  struct Attention {
    const gpu::Kernel& narrow;
    const gpu::Kernel& wide;
    const gpu::Arguments& narrow_arguments;
    const gpu::Arguments& wide_arguments;
  };
  struct Texts {
    const char* name;
    std::vector<std::string_view> parts;  // after the constants, in this order
  };
  // What decides the shapes of kernels.
  struct Shape {
    int vectors;  // of a state
    bool tiles_end_at_blocks;
    std::uint32_t narrow_heads, narrow_batch, wide_queries;
  };

  DeviceKv(gpu::Device& device, const ModelConfig& config, const KvConfig& kv, const Limits& limits,
           const Shape& shape);
  static std::uint32_t workgroup_bytes(const gpu::Device& device, const Limits& limits);
  static std::size_t common_bytes(const ModelConfig& config, const KvConfig& kv,
                                  const Limits& limits, int vectors);

  // rope_, step_, states_.
  Result<void> create_common();
  Result<gpu::Buffer> make_buffer(std::size_t bytes, const std::string& what);
  // `constants` are put in front of the parts.
  Result<gpu::Kernel> make_kernel(const Texts& texts, const std::string& constants,
                                  std::vector<gpu::Access> bindings);
  Result<gpu::Arguments> bind(const gpu::Kernel& kernel,
                              std::initializer_list<gpu::Binding> bindings);
  std::string narrow_constants() const;
  std::string wide_constants() const;
  void begin_tables(const StepPlan& step, std::span<const AttentionPlan::Completed> completed);
  std::uint32_t rows() const { return rows_; }
  std::uint32_t append_heads() const {
    return static_cast<std::uint32_t>(config_.query_heads + 2 * kKvHeads);
  }
  void dispatch(gpu::Recorder& recorder, const Attention& attention) const;
  gpu::Device& device() const { return device_; }

  const ModelConfig config_;
  const KvConfig kv_;
  gpu::Buffer rope_;    // float32 [positions][kHeadDim / 2 cos, kHeadDim / 2 sin]
  gpu::Buffer step_;    // AttentionPlan::words()
  gpu::Buffer states_;  // of split tasks, float32 [slots][query_heads][vectors * kHeadDim + 4]
  gpu::Kernel merge_;
  gpu::Arguments merge_arguments_;

 private:
  gpu::Device& device_;
  const Shape shape_;
  AttentionPlan plan_;
  std::uint32_t rows_ = 0;  // of the step
};

}  // namespace kipp::webgpu
