// Attention of a whole step: which thread computes which part, over the blocks of the cache. A part
// is a tile of one sequence's positions against one KV head, over all that is cached or, where a
// step has too few tiles to keep every thread busy (decoding far into a context), over one run of
// positions. Where work is cut decides who computes, never what is computed: runs are the same
// either way and are merged in order (attention.h).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/matmul.h"
#include "backend/paged_kv.h"
#include "base/huge_buffer.h"
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
  // Consecutive positions of one item: rows [row, row + positions) of the step.
  struct Tile {
    int item, row, pos, positions;
    int runs;                        // that its last position sees
    std::ptrdiff_t states = kWhole;  // where those of its runs are kept, if it is split
    static constexpr std::ptrdiff_t kWhole = -1;
  };
  struct Part {
    int tile, kv_head;
    int run;  // kAllRuns, or the one
    static constexpr int kAllRuns = -1;
  };

  PagedAttention(const ModelConfig& config, PagedKv& kv, ThreadPool& pool);
  void cut_into_tiles(const StepPlan& step);
  void cut_into_parts();
  void share_parts();
  std::int64_t cost(const Tile& tile, int run) const;
  std::size_t state_floats(const Tile& tile) const;
  AttentionState state_of_run(const Tile& tile, int kv_head, int run);
  KvHead kv_head_at(int layer, int kv_head, const Tile& tile, int block);
  KvHead first_of(int layer, const Part& part);
  void attend_run_of(const Part& part, int run, int layer, const Rows& qkv,
                     const AttentionState& state, const KvHead& ahead, AttentionScratch& scratch);
  void compute(const Part& part, int layer, const Rows& ctx, const Rows& qkv, const KvHead& ahead,
               PerThread& memory);
  void finish(const Tile& tile, int kv_head, const AttentionState& state, const Rows& ctx) const;

  const int heads_;  // query heads per KV head
  PagedKv& kv_;
  ThreadPool& pool_;
  HugeBuffer states_;  // of split tiles
  std::unique_ptr<PerThread[]> per_thread_;

  const StepPlan* step_ = nullptr;
  std::vector<Tile> tiles_;
  std::vector<Part> parts_;
  std::vector<Part> joins_;       // of split tiles, one per KV head, after the parts
  std::vector<int> share_begin_;  // [threads + 1] into parts_
};

}  // namespace kipp::cpu
