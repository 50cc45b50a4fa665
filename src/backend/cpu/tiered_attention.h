// Attention of a whole step over bit planes: each block is read at the width that its distance to
// the query's block asks for. Tiles end at blocks, so that all their positions read a block alike;
// attention_plan.h says how the work is shared.
#pragma once

#include <array>
#include <memory>

#include "backend/cpu/attention_plan.h"
#include "backend/cpu/code_attention.h"
#include "backend/cpu/matmul.h"
#include "backend/tiered_kv.h"
#include "base/thread_pool.h"
#include "model/step_plan.h"

namespace kipp::cpu {

class TieredAttention {
 public:
  // Bytes that an object takes.
  static std::size_t bytes_needed(const ModelConfig& config, int kv_blocks, int threads);
  // kv and pool outlive the object.
  static Result<std::unique_ptr<TieredAttention>> create(const ModelConfig& config,
                                                         const TieredKv& kv, ThreadPool& pool,
                                                         int max_step_tokens);
  ~TieredAttention();

  // Plans the parts, once for all layers of the step, which must outlive its attend() calls.
  void begin_step(const StepPlan& step);
  // ctx[r] = attention of row r's queries, [q | k | v] = qkv[r], over the positions up to its own.
  void attend(int layer_index, const Rows& ctx, const Rows& qkv);

 private:
  struct PerThread;
  struct Layer;  // what attend() is given

  TieredAttention(const ModelConfig& config, const TieredKv& kv, ThreadPool& pool,
                  AttentionPlan plan);
  TieredHead head_at(const Layer& layer, int kv_head, const AttentionTile& tile, int block) const;
  // What is asked for while a run is at hand: by its block i, block i of `run`. Where all heads of
  // a run follow each other, the turn of head g asks for block g of the run, by its block i that of
  // head i: the units of planes, in which heads lie side by side, are then read from end to end,
  // long before they are used. (Zen 4: a core reads 10 to 13 GB/s in scattered pieces of 1 KiB, 27
  // in units of 8.)
  using Ahead = std::array<TieredHead, kRunBlocks>;
  Ahead ahead_of(const Layer& layer, const AttentionPart& part, int run) const;
  Ahead ahead_of_part(const Layer& layer, std::size_t index) const;
  TieredState state_of_run(const AttentionTile& tile, int kv_head, int run);
  QueryTile queries_of(const Layer& layer, const AttentionPart& part) const;
  void attend_run_of(const Layer& layer, const AttentionPart& part, int run,
                     const TieredState& state, const Ahead& ahead, PerThread& memory);
  void compute(const Layer& layer, const AttentionPart& part, const Ahead& ahead,
               PerThread& memory);
  void merge(const TieredState& state, const TieredState& next, int queries) const;
  void finish(const Layer& layer, const AttentionPart& part, const TieredState& state) const;

  const int heads_;  // query heads per KV head
  const bool keys_rotated_, values_rotated_;
  const TieredKv& kv_;
  ThreadPool& pool_;
  AttentionPlan plan_;
  std::unique_ptr<PerThread[]> per_thread_;
  const StepPlan* step_ = nullptr;
};

}  // namespace kipp::cpu
