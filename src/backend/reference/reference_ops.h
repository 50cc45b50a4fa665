// The ops of forward() on the reference backend: they compute at once, one thread, no SIMD by hand.
// A weight row is decoded once per step and used for all rows of the step; the order inside each
// dot product does not depend on how many rows there are, so neither does any result.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/paged_kv.h"
#include "backend/tiered_kv.h"
#include "base/types.h"
#include "kvquant/cpu_ref.h"
#include "model/config.h"
#include "model/step_plan.h"
#include "model/weights.h"

namespace kipp::reference {

// Activations, row major; a view into a buffer of ReferenceOps.
struct Rows {
  float* data = nullptr;
  int rows = 0;
  int cols = 0;

  std::span<float> row(int r) const {
    return {data + static_cast<std::size_t>(r) * static_cast<std::size_t>(cols),
            static_cast<std::size_t>(cols)};
  }
};

// Called with (name, layer, values) in the order of forward(); the values are valid during the
// call.
using Tap = std::function<void(std::string_view name, int layer, const Rows& values)>;

class ReferenceOps {
 public:
  using Weight = StackedMatrix;
  using Rows = reference::Rows;
  struct Buffers {
    Rows x, h, qkv, ctx, gate_up, act, last, logits;
  };

  // Allocates for steps of up to max_step_tokens rows over a cache that outlives the ops. Steps on
  // a tiered one it has begun itself.
  ReferenceOps(const ModelConfig& config, PagedKv& kv, int max_step_tokens);
  ReferenceOps(const ModelConfig& config, TieredKv& kv, int max_step_tokens);

  Buffers& begin_step(const StepPlan& step);
  void embed(Rows& out, const MatrixView& table, std::span<const Token> tokens);
  void rms_norm(Rows& out, const Rows& in, std::span<const float> weight);
  void matmul(Rows& out, const Rows& in, const StackedMatrix& w);
  void matmul_add(Rows& out, const Rows& in, const StackedMatrix& w);
  void qk_norm_rope(Rows& qkv, std::span<const float> q_norm, std::span<const float> k_norm);
  void kv_append(int layer, const Rows& qkv);
  void attend(int layer, Rows& ctx, const Rows& qkv);
  void silu_mul(Rows& out, const Rows& gate_up);
  void take_rows(Rows& out, const Rows& in, std::span<const int> rows);
  void tap(std::string_view name, int layer, const Rows& values) const {
    if (tap_) tap_(name, layer, values);
  }

  void set_tap(Tap tap) { tap_ = std::move(tap); }
  const Buffers& buffers() const { return buffers_; }
  // Why keys or values of this step could not be coded, if so: its logits then mean nothing.
  const Result<void>& stored() const { return stored_; }

 private:
  ReferenceOps(const ModelConfig& config, int kv_blocks, int max_step_tokens);
  enum class Write : bool { set, add };
  void multiply(Rows& out, const Rows& in, const StackedMatrix& w, Write write);
  template <class T>
  void append(int layer, const Rows& qkv);
  template <class T>
  void attend_stored(int layer, Rows& ctx, const Rows& qkv);
  // reference_tiered_ops.cc
  void append_tiered(int layer, const Rows& qkv);
  void attend_tiered(int layer, Rows& ctx, const Rows& qkv);

  ModelConfig config_;
  PagedKv* paged_ = nullptr;        // either this
  TieredKv* tiered_ = nullptr;      // or that
  const StepPlan* step_ = nullptr;  // of the current step
  Tap tap_;
  Buffers buffers_;
  std::vector<std::unique_ptr<float[]>> storage_;  // behind buffers_
  std::vector<float> panel_;                       // [kPanelRows, widest cols] decoded weight rows
  std::vector<float> scores_;                      // [queries_per_kv_head, cached positions]
  std::vector<double> inverse_frequency_;          // [kHeadDim / 2]
  std::vector<float> cos_, sin_;  // [max_step_tokens, kHeadDim / 2], of the current step
  // Of a tiered cache.
  kvquant::CpuRefBackend kvquant_;
  std::unique_ptr<EncodeScratch> encode_scratch_;
  std::vector<float> turned_;      // [queries_per_kv_head, kHeadDim] queries as codes need them
  std::vector<float> from_codes_;  // [queries_per_kv_head, kHeadDim] sums of values that were codes
  Result<void> stored_;
};

}  // namespace kipp::reference
