// The ops of forward() on the webgpu backend: each records dispatches and returns. A step is
// submitted in a few parts, so that the device computes the first while the others are recorded.
// Nothing is allocated in a step but what the driver needs for its commands and, the first time a
// product has so many rows, a kernel.
//
// A gap between two dispatches costs as much as most kernels of a step with one row. There a norm
// and the gate of the feed-forward are done by the product that follows, with the same bits.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>

#include "backend/webgpu/device_kv.h"
#include "backend/webgpu/device_weights.h"
#include "backend/webgpu/kernels.h"
#include "gpu/device.h"
#include "model/config.h"
#include "model/step_plan.h"
#include "model/weights.h"

namespace kipp::webgpu {

// Activations on the device, [rows, cols] F32.
struct Rows {
  const gpu::Buffer* data = nullptr;
  int rows = 0;
  int cols = 0;
};

// The buffers of the largest step, which cache and ops share.
struct Activations {
  gpu::Buffer x, h, qkv, ctx, gate_up, act, last, logits;

  static Result<Activations> create(gpu::Device& device, const ModelConfig& config,
                                    int max_step_tokens, int max_logit_rows);
};

class WebgpuOps {
 public:
  using Weight = const DeviceMatrix*;
  using Rows = webgpu::Rows;
  struct Buffers {
    Rows x, h, qkv, ctx, gate_up, act, last, logits;
  };

  // All of them outlive the ops. Makes every kernel and its arguments.
  static Result<std::unique_ptr<WebgpuOps>> create(gpu::Device& device, const ModelConfig& config,
                                                   const DeviceWeights& weights,
                                                   const Activations& activations, DeviceKv& kv,
                                                   int max_step_tokens, int max_logit_rows);

  Buffers& begin_step(const StepPlan& step);
  void embed(Rows& out, const MatrixView& table, std::span<const Token> tokens);
  void rms_norm(Rows& out, const Rows& in, std::span<const float> norm);
  void matmul(Rows& out, const Rows& in, const Weight& w);
  // Whether a product is added is part of its arguments.
  void matmul_add(Rows& out, const Rows& in, const Weight& w) { matmul(out, in, w); }
  // Done by kv_append(), which follows: one kernel for both.
  void qk_norm_rope(Rows&, std::span<const float>, std::span<const float>) {}
  void kv_append(int layer, const Rows& qkv);
  void attend(int layer, Rows& ctx, const Rows& qkv);
  void silu_mul(Rows& out, const Rows& gate_up);
  // Done by rms_norm(), which follows.
  void take_rows(Rows&, const Rows&, std::span<const int>) {}
  void tap(std::string_view, int, const Rows&) const {}

  const Buffers& buffers() const { return buffers_; }
  // The last part of the step, or the first thing that went wrong.
  Result<gpu::Recorder> take_recorded();

 private:
  WebgpuOps(gpu::Device& device, const ModelConfig& config, const DeviceWeights& weights,
            const Activations& activations, DeviceKv& kv, Kernels kernels)
      : device_(device),
        config_(config),
        weights_(weights),
        activations_(activations),
        kv_(kv),
        kernels_(std::move(kernels)) {}

  Result<void> make_tables(int max_step_tokens, int max_logit_rows);
  Result<void> make_arguments();
  // A product's arguments. one_row: what a single row of `in` is made of on the way, where that is
  // not `in` itself; `norm` is that of a normed one.
  struct Product {
    const gpu::Buffer& in;
    const gpu::Buffer& out;
    std::uint64_t shape;
    RowInput input = RowInput::plain;
    const gpu::Buffer* one_row = nullptr;
    std::span<const float> norm = {};
  };
  Result<void> make_matmul(const DeviceMatrix& w, const Product& product);
  Result<void> make_norm(std::span<const float> norm, const gpu::Buffer& in, const gpu::Buffer& out,
                         std::uint64_t shape);

  gpu::Device& device_;
  ModelConfig config_;
  const DeviceWeights& weights_;
  const Activations& activations_;
  DeviceKv& kv_;

  Kernels kernels_;
  gpu::Buffer shapes_;      // uniform: what each kind of dispatch knows of its matrices
  gpu::Buffer step_;        // uniform: Step of wgsl/step.wgsl
  gpu::Buffer tokens_;      // [max_step_tokens] u32
  gpu::Buffer logit_rows_;  // [max_logit_rows] u32
  gpu::Buffer inverse_;     // [max_step_tokens] F32: of the rows that rms_norm() went through last
  gpu::Arguments embed_, silu_mul_;
  struct Multiply {
    RowInput input = RowInput::plain;
    gpu::Arguments one_row, more_rows;
  };
  std::unordered_map<const DeviceMatrix*, Multiply> matmul_;
  std::unordered_map<const float*, gpu::Arguments> rms_norm_;  // by the norm on the host

  Buffers buffers_;
  std::optional<gpu::Recorder> recorder_;  // of the current step
  std::optional<Error> error_;
};

}  // namespace kipp::webgpu
