// One product cut into tasks: what every thread and every CPU target knows of it.
//
// Tokens are taken in groups that a kernel holds in registers, and groups in runs whose inputs and
// sums stay in the second-level cache; columns are taken in chunks whose weights do. A task is one
// panel times one run; the runs of a panel are neighbours, so its weights are read from memory
// once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backend/cpu/matmul.h"
#include "backend/cpu/matmul_layout.h"

namespace kipp::cpu {

inline constexpr int kGroupTokens = 5;  // sums of one strip of AVX2 in ten registers
inline constexpr int kRunGroups = 16;
inline constexpr int kChunkBlocks = 16;  // 512 columns

struct Job {
  const PackedMatrix* w = nullptr;
  const MatmulScratch* scratch = nullptr;
  Rows in;
  Rows out;
  Write write = Write::set;
  int groups = 0;
  int runs = 0;

  int blocks() const { return w->cols / kQuantBlock; }
  int tasks() const { return panels_of(w->rows) * runs; }
  int first_group(int run) const { return groups * run / runs; }
  // Groups are as equal as they can be: the first ones hold one more.
  int first_token(int group) const {
    return in.rows / groups * group + std::min(group, in.rows % groups);
  }
};

// A run of token groups, and where its inputs lie: chunk after chunk, and in a chunk group after
// group, so that whoever computes a chunk reads them in one stream.
struct Run {
  Run(const Job& job, int index)
      : first_group(job.first_group(index)),
        end_group(job.first_group(index + 1)),
        first_token(job.first_token(first_group)),
        tokens(job.first_token(end_group) - first_token),
        blocks_(job.blocks()),
        scratch_(job.scratch) {}

  // Of the group that begins with `token`, in the chunk that begins with `block`.
  // bf16: [columns of the chunk][tokens of the group]
  float* inputs(int token, int block) const {
    return reinterpret_cast<float*>(scratch_->inputs()) + at(token, block, kQuantBlock);
  }
  // Quantized: [pairs of columns][tokens], two int16 each
  std::int32_t* pairs(int token, int block) const {
    return reinterpret_cast<std::int32_t*>(scratch_->inputs()) + at(token, block, kPairs);
  }
  // Quantized: [blocks][tokens]
  BlockInput* block_inputs(int token, int block) const {
    return reinterpret_cast<BlockInput*>(scratch_->block_inputs()) + at(token, block, 1);
  }

  int first_group;
  int end_group;
  int first_token;
  int tokens;

 private:
  std::ptrdiff_t at(int token, int block, int per_block) const {
    const int chunk = std::min(kChunkBlocks, blocks_ - block);
    const std::ptrdiff_t blocks_before = std::ptrdiff_t{first_token} * blocks_ +
                                         std::ptrdiff_t{block} * tokens +
                                         std::ptrdiff_t{token - first_token} * chunk;
    return blocks_before * per_block;
  }

  int blocks_;
  const MatmulScratch* scratch_;
};

// Lays out the inputs of groups [begin, end) as the kernels read them.
void lay_out_inputs(const Job& job, int begin, int end);

// Computes one of tasks().
void multiply_task(const Job& job, int task, int thread);

}  // namespace kipp::cpu
