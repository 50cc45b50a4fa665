// Attention of a whole step over the blocks of a BF16 or FP32 cache; attention_plan.h says how its
// work is shared.
#pragma once

#include <memory>

#include "backend/cpu/attention.h"
#include "backend/cpu/attention_plan.h"
#include "backend/cpu/matmul.h"
#include "backend/paged_kv.h"
#include "base/thread_pool.h"
#include "model/step_plan.h"

namespace kipp::cpu {

class PagedAttention {
 public:
  // Bytes that an object takes.
  static std::size_t bytes_needed(const ModelConfig& config, int kv_blocks, int threads);
  // kv and pool outlive the object.
  static Result<std::unique_ptr<PagedAttention>> create(const ModelConfig& config, PagedKv& kv,
                                                        ThreadPool& pool, int max_step_tokens);
  ~PagedAttention();

  // Plans the parts, once for all layers of the step, which must outlive its attend() calls.
  void begin_step(const StepPlan& step);
  // ctx[r] = attention of row r's queries, [q | k | v] = qkv[r], over the positions up to its own.
  void attend(int layer, const Rows& ctx, const Rows& qkv);

 private:
  struct PerThread;

  PagedAttention(const ModelConfig& config, PagedKv& kv, ThreadPool& pool, AttentionPlan plan);
  KvHead kv_head_at(int layer, int kv_head, const AttentionTile& tile, int block);
  KvHead first_of(int layer, const AttentionPart& part);
  void attend_run_of(const AttentionPart& part, int run, int layer, const Rows& qkv,
                     const AttentionState& state, const KvHead& ahead, AttentionScratch& scratch);
  void compute(const AttentionPart& part, int layer, const Rows& ctx, const Rows& qkv,
               const KvHead& ahead, PerThread& memory);
  void finish(const AttentionTile& tile, int kv_head, const AttentionState& state,
              const Rows& ctx) const;

  const int heads_;  // query heads per KV head
  PagedKv& kv_;
  ThreadPool& pool_;
  AttentionPlan plan_;
  std::unique_ptr<PerThread[]> per_thread_;
  const StepPlan* step_ = nullptr;
};

}  // namespace kipp::cpu
