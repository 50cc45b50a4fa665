// The ops of forward() on the cuda backend: each enqueues kernels of kernels.h and returns. Nothing
// is looked at and nothing is allocated in a step; the first error of a step is kept, what follows
// it is not enqueued, and error() gives it to whoever ran the step.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cuda/attention_plan.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels.h"
#include "base/thread_pool.h"
#include "model/config.h"
#include "model/step_plan.h"
#include "model/weights.h"

namespace kipp::cuda {

struct CudaLimits {
  int max_step_tokens = 0;
  int max_logit_rows = 0;
  int max_positions = 0;  // of one sequence
  int kv_blocks = 0;
};

// Activations on the device, [rows, cols] of 4 bytes each in either form of kernels.h.
struct Rows {
  void* data = nullptr;
  int rows = 0;
  int cols = 0;

  F32Rows f32() const { return {static_cast<float*>(data), rows, cols}; }
  SplitRows split() const { return {static_cast<std::uint16_t*>(data), rows, cols}; }
};

class CudaOps {
 public:
  using Weight = DeviceMatrix;
  using Rows = cuda::Rows;
  struct Buffers {
    Rows x, h, qkv, ctx, gate_up, act, last, logits;
  };

  // Bytes of the device that create() allocates.
  static std::size_t bytes_needed(const ModelConfig& config, const CudaLimits& limits);
  // Device and cache outlive the ops. Deterministic: all steps multiply with the same number of
  // terms, so that a row has the same bits in any of them.
  static Result<std::unique_ptr<CudaOps>> create(Device& device, const ModelConfig& config,
                                                 const CudaLimits& limits, const DeviceKv& kv,
                                                 bool deterministic, ThreadPool& pool);

  Buffers& begin_step(const StepPlan& step);
  void embed(Rows& out, const MatrixView& table, std::span<const Token> tokens);
  void rms_norm(Rows& out, const Rows& in, std::span<const float> weight);
  void matmul(Rows& out, const Rows& in, const DeviceMatrix& w);
  void matmul_add(Rows& out, const Rows& in, const DeviceMatrix& w);
  // Enqueued with kv_append(), which follows: one kernel does both.
  void qk_norm_rope(Rows& qkv, std::span<const float> q_norm, std::span<const float> k_norm);
  void kv_append(int layer, const Rows& qkv);
  void attend(int layer, Rows& ctx, const Rows& qkv);
  void silu_mul(Rows& out, const Rows& gate_up);
  void take_rows(Rows& out, const Rows& in, std::span<const int> rows);
  void tap(std::string_view, int, const Rows&) const {}

  const Buffers& buffers() const { return buffers_; }
  // Of the step so far.
  Result<void> error() const;

 private:
  CudaOps(Device& device, const ModelConfig& config, const CudaLimits& limits, const DeviceKv& kv,
          bool deterministic)
      : device_(device), config_(config), limits_(limits), kv_(kv), deterministic_(deterministic) {}

  Result<void> make_rotations(ThreadPool& pool);
  Result<void> upload_tables(const StepPlan& step);
  void multiply(Rows& out, const Rows& in, const DeviceMatrix& w, Write write);
  // Calls launch() unless the step has failed already.
  template <class Launch>
  void enqueue(std::string_view what, const Launch& launch);

  Device& device_;
  ModelConfig config_;
  CudaLimits limits_;
  DeviceKv kv_;
  bool deterministic_;

  DeviceMemory memory_;     // behind buffers_ and scratch_
  DeviceMemory rotations_;  // [max_positions, cos and sin, kHeadDim / 2] F32
  DeviceMemory tables_;     // those of the step
  PinnedMemory host_tables_;
  Buffers buffers_;
  Scratch scratch_;
  AttentionPlan attention_;

  // Of the current step.
  DeviceStep step_;
  int terms_ = 2;
  std::span<const float> q_norm_, k_norm_;
  std::optional<Error> error_;
};

}  // namespace kipp::cuda
