// How the rows of a step are cut into tasks for attend(): decided on the host once per step, for
// all layers. The cut decides who computes, never what: a run of positions has the same state
// wherever it is computed (kernels.h).
#pragma once

#include <vector>

#include "backend/cuda/kernels.h"
#include "model/step_plan.h"

namespace kipp::cuda {

struct AttentionPlan {
  std::vector<AttendTask> tasks;  // the wide ones first
  int wide_tasks = 0;
  std::vector<MergeTask> merges;
  int state_slots = 0;  // that the tasks write: attend_scratch_bytes(state_slots, query_heads)
};

// queries_per_kv_head: 1..16. `processors`: of the device, which the tasks should keep busy.
// max_state_slots bounds state_slots; what does not fit is not cut. Reuses the vectors of `plan`.
void plan_attention(const StepPlan& step, int queries_per_kv_head, int processors,
                    int max_state_slots, AttentionPlan& plan);

// Bounds of what plan_attention() makes for steps of up to `rows` rows, for buffers made at load.
int max_attend_tasks(int rows, int max_state_slots);
inline int max_merge_tasks(int rows) { return rows; }

}  // namespace kipp::cuda
