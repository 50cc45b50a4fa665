#include "backend/webgpu/attention_plan.h"

#include <algorithm>

#include "model/config.h"

namespace kipp::webgpu {

namespace {

constexpr std::size_t kHeaderWords = 5;

// An item of so few tokens is faster token by token: a tile takes as long with few as with many. On
// an H200, 8 tokens after 4,096 positions took 104 us as a tile, one token 18.
constexpr std::uint32_t kNarrowTokens = 4;

std::uint32_t word(int value) { return static_cast<std::uint32_t>(value); }

}  // namespace

AttentionPlan::AttentionPlan(const Limits& limits) : limits_(limits) {
  words_.reserve(bytes_needed(limits) / sizeof(std::uint32_t));
}

std::size_t AttentionPlan::bytes_needed(const Limits& limits) {
  const auto rows = static_cast<std::size_t>(limits.max_step_tokens);
  // A task that is not split has a row of its own at least, one that is a slot as well.
  const std::size_t tasks = rows + static_cast<std::size_t>(limits.state_slots);
  return sizeof(std::uint32_t) *
             (kHeaderWords + 2 * rows + static_cast<std::size_t>(limits.max_table_blocks)) +
         tasks * sizeof(Task) + rows * sizeof(Merge);
}

void AttentionPlan::begin_step(const StepPlan& step, std::span<const Completed> completed) {
  narrow_.clear();
  wide_.clear();
  merges_.clear();
  slots_ = 0;
  cut_into_tiles(step);

  // Runs of a task that would give every workgroup its share. A context is cut where it has twice
  // that, so that a long one does not keep the others waiting.
  std::uint64_t runs = 0;
  for (const auto* tasks : {&narrow_, &wide_}) {
    for (const Task& task : *tasks) runs += task.run_end;
  }
  const auto wanted = static_cast<std::uint64_t>(std::max(limits_.workgroups / kKvHeads, 1));
  const auto share = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, runs / wanted));
  // Tiles of several runs that stay whole need a slot for each token.
  for (Task& task : wide_) {
    if (task.run_end == 1) continue;
    task.state = slots_;
    slots_ += task.tokens;
  }
  for (auto* tasks : {&narrow_, &wide_}) {
    const std::size_t whole = tasks->size();
    for (std::size_t i = 0; i < whole; ++i) split(*tasks, i, share);
    // The longest first, so that the last to finish are short.
    std::ranges::stable_sort(*tasks, [](const Task& a, const Task& b) {
      return a.run_end - a.run_begin > b.run_end - b.run_begin;
    });
  }
  write_words(step, completed);
}

void AttentionPlan::cut_into_tiles(const StepPlan& step) {
  const auto most = word(limits_.tile_queries / limits_.queries_per_kv_head);
  const auto rows = word(step.rows());
  for (std::uint32_t row = 0; row < rows;) {
    const int item = step.item_of_row[row];
    std::uint32_t end = row;
    while (end < rows && step.item_of_row[end] == item) ++end;
    // Relative to the table of blocks until it is known where that lies.
    const auto blocks = word(step.block_begin[static_cast<std::size_t>(item)]);
    const bool narrow = end - row <= kNarrowTokens;
    while (row < end) {
      const auto position = word(step.positions[row]);
      std::uint32_t tokens = narrow ? 1 : std::min(most, end - row);
      if (limits_.tiles_end_at_blocks) {
        tokens = std::min(tokens, word(kBlockPositions) - position % word(kBlockPositions));
      }
      (narrow ? narrow_ : wide_)
          .push_back({.row = row,
                      .tokens = tokens,
                      .position = position,
                      .blocks = blocks,
                      .run_begin = 0,
                      .run_end = word(runs_of(static_cast<int>(position + tokens))),
                      .state = 0,
                      .runs = 0});
      row += tokens;
    }
  }
}

void AttentionPlan::split(std::vector<Task>& tasks, std::size_t whole, std::uint32_t share) {
  const Task task = tasks[whole];
  const std::uint32_t pieces = task.run_end / share;
  const std::uint32_t slots = task.tokens * task.run_end;
  if (pieces < 2 || slots > word(limits_.state_slots) - slots_) return;
  for (std::uint32_t token = 0; token < task.tokens; ++token) {
    merges_.push_back({.row = task.row + token,
                       .runs = word(runs_of(static_cast<int>(task.position + token + 1))),
                       .state = slots_ + token * task.run_end,
                       .unused = 0});
  }
  // The last one first: it has the block that is being written, and over bit planes that takes
  // longest.
  for (std::uint32_t piece = pieces; piece-- > 0;) {
    Task part = task;
    part.run_begin = task.run_end * piece / pieces;
    part.run_end = task.run_end * (piece + 1) / pieces;
    part.state = slots_;
    part.runs = task.run_end;
    if (piece + 1 == pieces) {
      tasks[whole] = part;
    } else {
      tasks.push_back(part);
    }
  }
  slots_ += slots;
}

void AttentionPlan::write_words(const StepPlan& step, std::span<const Completed> completed) {
  words_.assign(kHeaderWords, 0);
  words_[0] = word(static_cast<int>(words_.size()));
  for (std::size_t row = 0; row < step.positions.size(); ++row) {
    const int position = step.positions[row];
    const BlockId block =
        step.table(step.item_of_row[row])[static_cast<std::size_t>(position / kBlockPositions)];
    words_.push_back(word(block * kBlockPositions + position % kBlockPositions));
    words_.push_back(word(position));
  }
  const auto task_words = (narrow_.size() + wide_.size()) * sizeof(Task) / sizeof(std::uint32_t);
  const auto merge_words = merges_.size() * sizeof(Merge) / sizeof(std::uint32_t);
  const auto blocks = static_cast<std::uint32_t>(words_.size() + task_words + merge_words);
  const auto append = [&](const std::vector<Task>& tasks) {
    for (const Task& t : tasks) {
      words_.insert(words_.end(), {t.row, t.tokens, t.position, blocks + t.blocks, t.run_begin,
                                   t.run_end, t.state, t.runs});
    }
  };
  words_[1] = static_cast<std::uint32_t>(words_.size());
  append(narrow_);
  words_[2] = static_cast<std::uint32_t>(words_.size());
  append(wide_);
  words_[3] = static_cast<std::uint32_t>(words_.size());
  for (const Merge& m : merges_) words_.insert(words_.end(), {m.row, m.runs, m.state, m.unused});
  for (const BlockId block : step.blocks) words_.push_back(word(block));
  words_[4] = static_cast<std::uint32_t>(words_.size());
  for (const Completed& c : completed) {
    words_.insert(words_.end(), {word(c.block), c.planes[0], c.planes[1], 0});
  }
}

}  // namespace kipp::webgpu
