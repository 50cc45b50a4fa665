// How the rows of a step are cut into tasks for attention: decided on the host once per step, for
// all layers, and written as one table of words that the kernels read (wgsl/attention.wgsl). The
// cut decides who computes, never what: a query has the same bits in any task.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/step_plan.h"

namespace kipp::webgpu {

inline constexpr int kRunPositions = 256;  // wgsl/attention.wgsl
constexpr int runs_of(int positions) { return (positions + kRunPositions - 1) / kRunPositions; }

class AttentionPlan {
 public:
  struct Limits {
    int queries_per_kv_head = 0;
    int tile_queries = 0;  // of a wide task: tokens times heads
    int max_step_tokens = 0;
    int max_table_blocks = 0;          // of all block tables of a step together
    int state_slots = 0;               // at least max_step_tokens
    int workgroups = 0;                // that keep the device busy
    bool tiles_end_at_blocks = false;  // no wide task crosses a multiple of kBlockPositions
  };

  explicit AttentionPlan(const Limits& limits);

  // The most bytes that words() takes.
  static std::size_t bytes_needed(const Limits& limits);
  const Limits& limits() const { return limits_; }

  // A block that the step completes, and the planes it holds in each group of layers (a bit for
  // each plane, keys' first).
  struct Completed {
    BlockId block = 0;
    std::uint32_t planes[2] = {};
  };

  void begin_step(const StepPlan& step, std::span<const Completed> completed = {});

  // Header, then the tables whose places it holds:
  //   rows    [rows] block * 32 + position in it, position
  //   tasks   narrow ones, one token each, and wide ones: row, tokens, position, block table, runs
  //           [begin, end), first slot of states, runs of a split tile
  //   merges  [tokens of split tiles] row, runs, first slot
  //   blocks  of all sequences
  //   completed  [blocks] block, its planes, unused
  std::span<const std::uint32_t> words() const { return words_; }
  std::uint32_t narrow_tasks() const { return static_cast<std::uint32_t>(narrow_.size()); }
  std::uint32_t wide_tasks() const { return static_cast<std::uint32_t>(wide_.size()); }
  std::uint32_t merges() const { return static_cast<std::uint32_t>(merges_.size()); }

 private:
  struct Task {
    std::uint32_t row, tokens, position, blocks, run_begin, run_end, state, runs;
  };
  struct Merge {
    std::uint32_t row, runs, state, unused;
  };

  void cut_into_tiles(const StepPlan& step);
  void split(std::vector<Task>& tasks, std::size_t whole, std::uint32_t share);
  void write_words(const StepPlan& step, std::span<const Completed> completed);

  Limits limits_;
  std::vector<Task> narrow_, wide_;
  std::vector<Merge> merges_;
  std::uint32_t slots_ = 0;
  std::vector<std::uint32_t> words_;
};

}  // namespace kipp::webgpu
