#include "backend/cuda/attention_plan.h"

#include <algorithm>

#include "model/config.h"

namespace kipp::cuda {

namespace {

constexpr int kNarrowRows = 16;  // packed rows (tokens times heads) of a one-warp task
constexpr int kWideRows = 64;
// Blocks of threads per processor that keep memory busy: as many one-warp tasks as fit there.
constexpr int kTasksPerProcessor = 4;

int runs_seen(int position) { return position / kRunPositions + 1; }

// Consecutive tokens of one item, all their runs in one task.
void cut_rows(const StepPlan& step, int queries_per_kv_head, std::vector<AttendTask>& tasks) {
  const int rows = step.rows();
  for (int row = 0; row < rows;) {
    const int item = step.item_of_row[static_cast<std::size_t>(row)];
    int end = row;
    while (end < rows && step.item_of_row[static_cast<std::size_t>(end)] == item) ++end;
    const bool narrow = (end - row) * queries_per_kv_head <= kNarrowRows;
    const int most = (narrow ? kNarrowRows : kWideRows) / queries_per_kv_head;
    while (row < end) {
      const int tokens = std::min(most, end - row);
      const int last = step.positions[static_cast<std::size_t>(row + tokens - 1)];
      tasks.push_back({.row = row, .tokens = tokens, .run_begin = 0, .run_end = runs_seen(last)});
      row += tokens;
    }
  }
}

}  // namespace

int max_attend_tasks(int rows, int max_state_slots) { return rows + max_state_slots; }

void plan_attention(const StepPlan& step, int queries_per_kv_head, int processors,
                    int max_state_slots, AttentionPlan& plan) {
  plan.tasks.clear();
  plan.merges.clear();
  plan.state_slots = 0;
  cut_rows(step, queries_per_kv_head, plan.tasks);

  // Runs per task that would give every processor its share. A context is cut where it has twice
  // that, so that a long one does not keep the others waiting.
  std::int64_t runs = 0;
  for (const AttendTask& task : plan.tasks) runs += task.run_end;
  const std::int64_t wanted = std::int64_t{processors} * kTasksPerProcessor;
  const auto share = static_cast<int>(std::max<std::int64_t>(1, runs * kKvHeads / wanted));

  const std::size_t whole = plan.tasks.size();
  for (std::size_t i = 0; i < whole; ++i) {
    const AttendTask task = plan.tasks[i];
    const int pieces = task.run_end / share;
    const int slots = task.tokens * task.run_end;
    if (pieces < 2 || slots > max_state_slots - plan.state_slots) continue;
    const int state = plan.state_slots;
    plan.state_slots += slots;
    plan.merges.push_back(
        {.row = task.row, .tokens = task.tokens, .runs = task.run_end, .state = state});
    for (int piece = 0; piece < pieces; ++piece) {
      AttendTask part = task;
      part.run_begin = task.run_end * piece / pieces;
      part.run_end = task.run_end * (piece + 1) / pieces;
      part.state = state;
      if (piece == 0) {
        plan.tasks[i] = part;
      } else {
        plan.tasks.push_back(part);
      }
    }
  }

  // Wide ones first, as attend() wants them, and of each kind the longest first, so that the last
  // to finish are short.
  const auto wide = [&](const AttendTask& task) {
    return task.tokens * queries_per_kv_head > kNarrowRows;
  };
  std::ranges::stable_sort(plan.tasks, [&](const AttendTask& a, const AttendTask& b) {
    if (wide(a) != wide(b)) return wide(a);
    return a.run_end - a.run_begin > b.run_end - b.run_begin;
  });
  plan.wide_tasks = static_cast<int>(std::ranges::count_if(plan.tasks, wide));
}

}  // namespace kipp::cuda
