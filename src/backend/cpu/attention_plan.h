// Which thread computes which part of a step's attention. A part is a tile of one sequence's
// positions against one KV head, over all that is cached or, where a step has too few tiles to keep
// every thread busy (decoding far into a context), over one run of positions. Where work is cut
// decides who computes, never what is computed: runs are the same either way and are merged in
// order (attention.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/attention.h"
#include "base/huge_buffer.h"
#include "model/config.h"
#include "model/step_plan.h"

namespace kipp::cpu {

// Consecutive positions of one item: rows [row, row + positions) of the step.
struct AttentionTile {
  int item, row, pos, positions;
  int runs;                        // that its last position sees
  std::ptrdiff_t states = kWhole;  // where those of its runs are kept, if it is split
  static constexpr std::ptrdiff_t kWhole = -1;
};

struct AttentionPart {
  int tile, kv_head;
  int run;  // kAllRuns, or the one
  static constexpr int kAllRuns = -1;
};

// The state of a tile as one thread keeps it.
struct alignas(64) TileState {
  float out[kTileQueries * kHeadDim];
  float greatest[kTileQueries];
  float sum[kTileQueries];

  AttentionState view() { return {.out = out, .greatest = greatest, .sum = sum}; }
};

class AttentionPlan {
 public:
  struct Limits {
    int query_heads_per_kv_head = 0;
    int cached = 0;  // most positions of a sequence
    int max_step_tokens = 0;
    int threads = 0;
    int chains = 1;  // states that a run leaves of each query
    // Of caches whose heads lie side by side in pieces too short for a CPU's own prefetching: tiles
    // of few queries are always cut into runs, and all heads of a run follow each other.
    bool runs_before_heads = false;
    bool tiles_end_at_blocks = false;  // no tile crosses a multiple of kBlockPositions
  };

  // Bytes of the states of split tiles.
  static std::size_t bytes_needed(const Limits& limits);
  static Result<AttentionPlan> create(const Limits& limits);

  // Plans the parts of a step, once for all its layers.
  void begin_step(const StepPlan& step);

  std::span<const AttentionPart> parts() const { return parts_; }
  // [threads + 1] into parts(): those of a thread.
  std::span<const int> shares() const { return share_begin_; }
  // Of split tiles, one per KV head, to be joined after the parts.
  std::span<const AttentionPart> joins() const { return joins_; }
  const AttentionTile& tile(const AttentionPart& part) const {
    return tiles_[static_cast<std::size_t>(part.tile)];
  }
  // Of a split tile.
  AttentionState state_of_run(const AttentionTile& tile, int kv_head, int run, int chain = 0);

 private:
  explicit AttentionPlan(const Limits& limits) : limits_(limits) {}
  void cut_into_tiles(const StepPlan& step);
  void cut_into_parts();
  bool wants_split(const AttentionTile& tile, std::int64_t large) const;
  void share_parts();
  std::int64_t cost(const AttentionTile& tile, int run) const;
  std::size_t state_floats(const AttentionTile& tile) const;

  Limits limits_;
  HugeBuffer states_;  // of split tiles: [tile][KV head][run][chain]
  std::vector<AttentionTile> tiles_;
  std::vector<AttentionPart> parts_;
  std::vector<AttentionPart> joins_;
  std::vector<int> share_begin_;
};

}  // namespace kipp::cpu
