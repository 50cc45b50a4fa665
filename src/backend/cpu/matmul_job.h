// One product cut into tasks: what every thread and every CPU target knows of it.
#pragma once

#include <algorithm>
#include <cstddef>

#include "backend/cpu/matmul.h"
#include "backend/cpu/matmul_layout.h"

namespace kipp::cpu {

// Tokens are taken in groups that a kernel holds in registers, and groups in runs whose sums and
// inputs stay in the second-level cache. A task is one panel times one run; the runs of a panel are
// neighbours, so its weights are read from memory once.
inline constexpr int kGroupTokens = 6;
inline constexpr int kRunGroups = 16;

struct Job {
  const PackedMatrix* w = nullptr;
  const MatmulScratch* scratch = nullptr;
  Rows out;
  Write write = Write::set;
  int tokens = 0;
  int groups = 0;
  int runs = 0;
  int chunk_blocks = 0;  // blocks of columns between two visits to the sums

  int tasks() const { return panels_of(w->rows) * runs; }
  int first_group(int run) const { return groups * run / runs; }
  // Groups are as equal as they can be: the first tokens % groups hold one more.
  int first_token(int group) const {
    return tokens / groups * group + std::min(group, tokens % groups);
  }
  // A group's inputs, [cols][its tokens] from block `block` on.
  const float* inputs(int token, int group_tokens, int block) const {
    return scratch->inputs() + static_cast<std::ptrdiff_t>(token) * w->cols +
           static_cast<std::ptrdiff_t>(block) * kQuantBlock * group_tokens;
  }
  // Sums of its inputs, [blocks][its tokens].
  const float* sums(int token, int group_tokens, int block) const {
    return scratch->sums() + static_cast<std::ptrdiff_t>(token) * (w->cols / kQuantBlock) +
           static_cast<std::ptrdiff_t>(block) * group_tokens;
  }
};

// Computes tasks [begin, end) with the best kernels the CPU has.
void multiply_tasks(const Job& job, int begin, int end, int thread);

}  // namespace kipp::cpu
