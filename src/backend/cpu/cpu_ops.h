// The ops of forward() on the cpu backend: each splits its rows or its outputs over the threads and
// computes them with the kernels of this folder. Every result is made by one thread from its own
// row (and the cache), so neither the split nor the other rows of a step can change it.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cpu/matmul.h"
#include "backend/cpu/paged_attention.h"
#include "backend/cpu/tiered_attention.h"
#include "backend/cpu/tiered_writer.h"
#include "backend/paged_kv.h"
#include "backend/tiered_kv.h"
#include "base/huge_buffer.h"
#include "base/thread_pool.h"
#include "model/config.h"
#include "model/step_plan.h"
#include "model/weights.h"

namespace kipp::cpu {

struct OpsLimits {
  int max_step_tokens = 0;
  int max_logit_rows = 0;
};

class CpuOps {
 public:
  using Weight = PackedMatrix;
  using Rows = cpu::Rows;
  struct Buffers {
    Rows x, h, qkv, ctx, gate_up, act, last, logits;
  };

  // Bytes of all that a step writes but the cache.
  static std::size_t bytes_needed(const ModelConfig& config, const OpsLimits& limits,
                                  const KvConfig& kv, int threads);
  // Allocates all of it: a step allocates nothing. kv and pool outlive the ops. Steps on a tiered
  // cache it has begun itself.
  static Result<std::unique_ptr<CpuOps>> create(const ModelConfig& config, const OpsLimits& limits,
                                                PagedKv& kv, ThreadPool& pool);
  static Result<std::unique_ptr<CpuOps>> create(const ModelConfig& config, const OpsLimits& limits,
                                                TieredKv& kv, ThreadPool& pool);

  Buffers& begin_step(const StepPlan& step);
  void embed(Rows& out, const MatrixView& table, std::span<const Token> tokens);
  void rms_norm(Rows& out, const Rows& in, std::span<const float> weight);
  void matmul(Rows& out, const Rows& in, const PackedMatrix& w);
  void matmul_add(Rows& out, const Rows& in, const PackedMatrix& w);
  void qk_norm_rope(Rows& qkv, std::span<const float> q_norm, std::span<const float> k_norm);
  void kv_append(int layer, const Rows& qkv);
  void attend(int layer, Rows& ctx, const Rows& qkv);
  void silu_mul(Rows& out, const Rows& gate_up);
  void take_rows(Rows& out, const Rows& in, std::span<const int> rows);
  void tap(std::string_view, int, const Rows&) const {}

  const Buffers& buffers() const { return buffers_; }
  // Why keys or values of this step could not be stored, if so: its logits then mean nothing.
  Result<void> stored() const {
    return tiered_ == nullptr ? Result<void>() : tiered_->writer.coded();
  }

 private:
  // Where keys and values go and are read again: one of these.
  struct Paged {
    PagedKv& kv;
    std::unique_ptr<PagedAttention> attention;
  };
  struct Tiered {
    TieredWriter writer;
    std::unique_ptr<TieredAttention> attention;
  };

  CpuOps(const ModelConfig& config, ThreadPool& pool);
  Result<void> allocate(const OpsLimits& limits);
  // body(row) for all rows, over the threads where there is enough to do in all.
  template <class Body>
  void for_rows(int rows, int floats_per_row, const Body& body);
  template <class T>
  void append_row(PagedKv& kv, int layer, int row, const Rows& qkv);
  std::span<float> cos_of(int row) const;
  std::span<float> sin_of(int row) const;

  ModelConfig config_;
  ThreadPool& pool_;
  MatmulScratch scratch_;
  std::unique_ptr<Paged> paged_;
  std::unique_ptr<Tiered> tiered_;
  const StepPlan* step_ = nullptr;  // of the current step
  HugeBuffer memory_;               // behind buffers_ and rotations_
  Buffers buffers_;
  float* rotations_ = nullptr;             // [max_step_tokens, cos and sin, kHeadDim / 2]
  std::vector<double> inverse_frequency_;  // [kHeadDim / 2]
};

}  // namespace kipp::cpu
