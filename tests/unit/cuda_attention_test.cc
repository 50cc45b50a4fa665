// Keys and values into the cache and attention over it, on the emulated build of the CUDA kernels,
// against plain loops in double; the cut of a step into tasks; and that no cut changes a bit.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "backend/cuda/attention_plan.h"
#include "backend/cuda/kernels.h"
#include "model/config.h"
#include "model/memory.h"
#include "support/cuda_rows.h"
#include "support/sanitized.h"

namespace kipp::cuda {
namespace {

using test::DescendingThreads;
using test::index_of;
using test::normal_floats;
using test::SplitMatrix;

constexpr Stream kStream = nullptr;
constexpr int kLayers = 2;
constexpr int kLayer = 1;
const float kUnwritten = std::numeric_limits<float>::quiet_NaN();

// Cheap, because a cache needs many.
std::vector<float> uniform_floats(std::uint64_t seed, std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = static_cast<float>(draw_uniform(seed, i) * 5 - 2.5);
  }
  return values;
}

// One sequence's share of a step: `tokens` rows that follow `cached` positions.
struct Item {
  int cached;
  int tokens;
};

// Blocks are dealt out from the last.
StepPlan step_of(const std::vector<Item>& items) {
  StepPlan plan;
  plan.block_begin.push_back(0);
  int blocks = 0;
  for (const Item& item : items) blocks += blocks_for(item.cached + item.tokens);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const int held = blocks_for(items[i].cached + items[i].tokens);
    for (int b = 0; b < held; ++b) plan.blocks.push_back(--blocks);
    plan.block_begin.push_back(static_cast<int>(plan.blocks.size()));
    for (int t = 0; t < items[i].tokens; ++t) {
      plan.tokens.push_back(0);
      plan.positions.push_back(items[i].cached + t);
      plan.item_of_row.push_back(static_cast<int>(i));
    }
  }
  return plan;
}

// The cache of some sequences and a step over it. What nobody wrote is NaN.
class Sequences {
 public:
  Sequences(int group, const std::vector<Item>& items) : group_(group), plan_(step_of(items)) {
    ModelConfig config;
    config.layers = kLayers;
    config.query_heads = group * kKvHeads;
    kv_.block_elements = kv_block_bytes(config, sizeof(std::uint16_t)) / sizeof(std::uint16_t);
    const std::size_t blocks = plan_.blocks.size();
    memory_.assign(blocks * kv_.block_elements, 0xffff);
    kv_.data = memory_.data();
    for (std::size_t i = 0; i < items.size(); ++i) {
      for (int pos = 0; pos < items[i].cached + items[i].tokens; ++pos) {
        for (int kv_head = 0; kv_head < kKvHeads; ++kv_head) {
          const auto seed =
              static_cast<std::uint64_t>((static_cast<int>(i) * 4096 + pos) * 8 + kv_head);
          const auto values = uniform_floats(seed, 2 * kHeadDim);
          for (std::size_t d = 0; d < kHeadDim; ++d) {
            at(static_cast<int>(i), pos, 0, kv_head)[d] = f32_to_bf16(values[d]);
            at(static_cast<int>(i), pos, 1, kv_head)[d] = f32_to_bf16(values[kHeadDim + d]);
          }
        }
      }
    }
  }

  std::uint16_t* at(int item, int pos, int value, int kv_head) {
    const BlockId block = plan_.table(item)[static_cast<std::size_t>(pos / kBlockPositions)];
    const int head = (kLayer * 2 + value) * kKvHeads + kv_head;
    return memory_.data() + static_cast<std::size_t>(block) * kv_.block_elements +
           index_of(head * kBlockPositions + pos % kBlockPositions, kHeadDim, 0);
  }

  // Rows first .. first + n of the step as a step of their own, cut for a device of `processors`.
  SplitMatrix attend(const std::vector<float>& qkv, int first, int n, int processors, int terms = 2,
                     int max_slots = 4096) {
    StepPlan part = plan_;
    const auto cut = [&](auto& of_rows) {
      of_rows = {of_rows.begin() + first, of_rows.begin() + first + n};
    };
    cut(part.tokens);
    cut(part.positions);
    cut(part.item_of_row);
    plan_attention(part, group_, processors, max_slots, cut_);
    DeviceStep step;
    step.positions = part.positions.data();
    step.item_of_row = part.item_of_row.data();
    step.blocks = part.blocks.data();
    step.block_begin = part.block_begin.data();
    step.tasks = cut_.tasks.data();
    step.merges = cut_.merges.data();
    step.rows = n;
    step.n_tasks = static_cast<int>(cut_.tasks.size());
    step.wide_tasks = cut_.wide_tasks;
    step.n_merges = static_cast<int>(cut_.merges.size());
    std::vector<float> rows(
        qkv.begin() + static_cast<std::ptrdiff_t>(index_of(first, qkv_cols(), 0)),
        qkv.begin() + static_cast<std::ptrdiff_t>(index_of(first + n, qkv_cols(), 0)));
    std::vector<float> states(
        attend_scratch_bytes(cut_.state_slots, group_ * kKvHeads) / sizeof(float), kUnwritten);
    SplitMatrix ctx(n, ctx_cols());
    EXPECT_EQ(cuda::attend(kStream, ctx.view(), {rows.data(), n, qkv_cols()}, kv_, kLayer, step,
                           terms, {states.data(), states.size() * sizeof(float)}),
              0);
    return ctx;
  }

  double expected(const std::vector<float>& qkv, int row, int head, std::vector<double>& out) {
    const auto r = static_cast<std::size_t>(row);
    const int item = plan_.item_of_row[r];
    const int seen = plan_.positions[r] + 1;
    std::vector<double> weights;
    for (int pos = 0; pos < seen; ++pos) {
      double score = 0;
      for (int d = 0; d < kHeadDim; ++d) {
        score += static_cast<double>(qkv[index_of(row, qkv_cols(), head * kHeadDim + d)]) *
                 static_cast<double>(bf16_to_f32(at(item, pos, 0, head / group_)[d]));
      }
      weights.push_back(score / std::sqrt(static_cast<double>(kHeadDim)));
    }
    const double most = *std::ranges::max_element(weights);
    double sum = 0;
    for (double& w : weights) sum += w = std::exp(w - most);
    out.assign(kHeadDim, 0);
    double squares = 0;
    for (std::size_t d = 0; d < kHeadDim; ++d) {
      for (int pos = 0; pos < seen; ++pos) {
        out[d] += weights[static_cast<std::size_t>(pos)] / sum *
                  static_cast<double>(bf16_to_f32(at(item, pos, 1, head / group_)[d]));
      }
      squares += out[d] * out[d];
    }
    return squares;
  }

  int rows() const { return plan_.rows(); }
  int ctx_cols() const { return group_ * kKvWidth; }
  int qkv_cols() const { return ctx_cols() + 2 * kKvWidth; }
  std::vector<float> queries() const { return normal_floats(77, index_of(rows(), qkv_cols(), 0)); }
  const AttentionPlan& cut() const { return cut_; }
  const StepPlan& plan() const { return plan_; }
  const DeviceKv& kv() const { return kv_; }
  std::vector<std::uint16_t>& memory() { return memory_; }

 private:
  int group_;
  StepPlan plan_;
  DeviceKv kv_;
  std::vector<std::uint16_t> memory_;
  AttentionPlan cut_;
};

// Relative to the length of a head's output.
void expect_attention(Sequences& sequences, const std::vector<float>& qkv, const SplitMatrix& ctx,
                      double bound) {
  std::vector<double> expected;
  for (int row = 0; row < sequences.rows(); ++row) {
    for (int head = 0; head < ctx.cols / kHeadDim; ++head) {
      const double squares = sequences.expected(qkv, row, head, expected);
      double error = 0;
      for (int d = 0; d < kHeadDim; ++d) {
        error += std::pow(static_cast<double>(ctx.joined(row, head * kHeadDim + d)) -
                              expected[static_cast<std::size_t>(d)],
                          2);
      }
      ASSERT_LE(error, bound * bound * squares) << "row " << row << ", head " << head;
    }
  }
}

// Decoded tokens at both sides of a block and of a run, chunks that begin inside a block, for every
// number of queries per KV head that the family has, with tasks of one warp and of four.
TEST(CudaAttention, IsTheSoftmaxInDoubles) {
  for (const int group : {1, 2, 4, 5, 8}) {
    if (test::kSanitized && group != 1 && group != 4) continue;
    std::vector<Item> items{{0, 1}, {31, 1}, {32, 1}, {127, 1}, {300, 1}, {5, 3}};
    if (group == 4) items.insert(items.end(), {{0, 40}, {120, 17}, {20, 64 / 4}});
    Sequences sequences(group, items);
    const auto qkv = sequences.queries();
    SCOPED_TRACE(testing::Message() << group << " queries per KV head");
    expect_attention(sequences, qkv, sequences.attend(qkv, 0, sequences.rows(), 1), 3e-5);
    if (group == 4) {
      EXPECT_GT(sequences.cut().wide_tasks, 0);
      EXPECT_LT(sequences.cut().wide_tasks, static_cast<int>(sequences.cut().tasks.size()));
      expect_attention(sequences, qkv, sequences.attend(qkv, 0, sequences.rows(), 1, 1), 2e-2);
    }
  }
}

TEST(CudaAttention, NoCutOfTheWorkChangesABit) {
  Sequences sequences(4, {{260, 1}, {130, 20}, {140, 2}});
  const auto qkv = sequences.queries();
  const SplitMatrix whole = sequences.attend(qkv, 0, sequences.rows(), 1);
  EXPECT_TRUE(sequences.cut().merges.empty());
  const SplitMatrix cut = sequences.attend(qkv, 0, sequences.rows(), 10000);
  EXPECT_EQ(sequences.cut().merges.size(), 4u);  // every task sees more than one run
  EXPECT_EQ(cut.data, whole.data);
  const SplitMatrix partly = sequences.attend(qkv, 0, sequences.rows(), 10000, 2, 12);
  EXPECT_GT(sequences.cut().merges.size(), 0u);
  EXPECT_LT(sequences.cut().merges.size(), 4u);
  EXPECT_EQ(partly.data, whole.data);
  const DescendingThreads descending;
  EXPECT_EQ(sequences.attend(qkv, 0, sequences.rows(), 10000).data, whole.data);
}

TEST(CudaAttention, ARowHasTheSameBitsAloneAndInAnyStep) {
  Sequences sequences(2, {{140, 1}, {90, 60}, {0, 3}});
  const auto qkv = sequences.queries();
  const SplitMatrix whole = sequences.attend(qkv, 0, sequences.rows(), 4);
  for (const auto& [first, n] :
       {std::pair{0, 1}, {1, 1}, {33, 1}, {38, 9}, {60, 1}, {61, 3}, {20, 44}}) {
    EXPECT_EQ(sequences.attend(qkv, first, n, 1).data, whole.part(first, n).data)
        << "rows " << first << " + " << n;
  }
}

// Blocks are reused: what an earlier sequence left after a position must not reach it.
TEST(CudaAttention, WhatLiesPastThePositionIsNotSeen) {
  Sequences sequences(4, {{36, 1}});
  const auto qkv = sequences.queries();
  const SplitMatrix before = sequences.attend(qkv, 0, 1, 1);
  for (int pos = 37; pos < 64; ++pos) {
    for (int kv_head = 0; kv_head < kKvHeads; ++kv_head) {
      std::fill_n(sequences.at(0, pos, 0, kv_head), kHeadDim, std::uint16_t{0x7f80});
      std::fill_n(sequences.at(0, pos, 1, kv_head), kHeadDim, std::uint16_t{0xff80});
    }
  }
  EXPECT_EQ(sequences.attend(qkv, 0, 1, 1).data, before.data);
}

// Every row's runs in exactly one task each, tasks within the bounds that buffers are made for.
TEST(CudaAttention, APlanCoversEveryRunOfEveryRowOnce) {
  for (const int group : {1, 2, 4, 5, 8, 16}) {
    for (const int processors : {1, 16, 132, 5000}) {
      for (const int max_slots : {0, 50, 100000}) {
        const StepPlan step = step_of({{1000, 1}, {0, 100}, {3000, 5}, {129, 30}, {0, 1}});
        AttentionPlan plan;
        plan_attention(step, group, processors, max_slots, plan);
        const int rows = step.rows();
        std::vector<std::vector<int>> seen(static_cast<std::size_t>(rows));
        std::vector<int> slots(static_cast<std::size_t>(plan.state_slots), 0);
        for (std::size_t i = 0; i < plan.tasks.size(); ++i) {
          const AttendTask& task = plan.tasks[i];
          ASSERT_LE(task.tokens * group, 64);
          EXPECT_EQ(task.tokens * group > 16, static_cast<int>(i) < plan.wide_tasks);
          EXPECT_LT(task.run_begin, task.run_end);
          for (int t = 0; t < task.tokens; ++t) {
            const auto row = static_cast<std::size_t>(task.row + t);
            EXPECT_EQ(step.item_of_row[row], step.item_of_row[static_cast<std::size_t>(task.row)]);
            for (int run = task.run_begin; run < task.run_end; ++run) seen[row].push_back(run);
          }
        }
        for (const MergeTask& merge : plan.merges) {
          for (int slot = 0; slot < merge.tokens * merge.runs; ++slot) {
            ++slots[static_cast<std::size_t>(merge.state + slot)];
          }
        }
        EXPECT_TRUE(std::ranges::all_of(slots, [](int n) { return n == 1; }));
        for (int row = 0; row < rows; ++row) {
          auto& runs = seen[static_cast<std::size_t>(row)];
          std::ranges::sort(runs);
          const int needed = step.positions[static_cast<std::size_t>(row)] / kRunPositions + 1;
          ASSERT_GE(static_cast<int>(runs.size()), needed);
          for (std::size_t r = 0; r < runs.size(); ++r) EXPECT_EQ(runs[r], static_cast<int>(r));
        }
        EXPECT_LE(plan.state_slots, max_slots);
        EXPECT_LE(static_cast<int>(plan.tasks.size()), max_attend_tasks(rows, max_slots));
        EXPECT_LE(static_cast<int>(plan.merges.size()), max_merge_tasks(rows));
      }
    }
  }
}

TEST(CudaAttention, LongContextsAreSpreadOverTheDevice) {
  AttentionPlan plan;
  plan_attention(step_of({{4000, 1}}), 4, 132, 4096, plan);
  EXPECT_EQ(plan.tasks.size(), 32u);  // one per run of 128, times 8 KV heads: 256 warps
}

TEST(CudaAttention, RefusesWhatDoesNotFit) {
  Sequences sequences(2, {{3, 1}});
  std::vector<float> qkv(static_cast<std::size_t>(sequences.qkv_cols()));
  SplitMatrix ctx(1, sequences.ctx_cols());
  DeviceStep step;
  step.rows = 1;
  const auto code = [&](int ctx_cols, int qkv_cols, int rows, int terms) {
    return cuda::attend(kStream, {ctx.data.data(), rows, ctx_cols}, {qkv.data(), 1, qkv_cols},
                        sequences.kv(), 0, step, terms, {});
  };
  EXPECT_NE(code(ctx.cols - kHeadDim, sequences.qkv_cols() - kHeadDim, 1, 2), 0);
  EXPECT_NE(code(ctx.cols, sequences.qkv_cols() + 32, 1, 2), 0);
  EXPECT_NE(code(ctx.cols, sequences.qkv_cols(), 2, 2), 0);
  EXPECT_NE(code(ctx.cols, sequences.qkv_cols(), 1, 0), 0);
}

TEST(CudaAppend, NormsRotatesAndWritesToTheCache) {
  for (const int group : {1, 5}) {
    Sequences sequences(group, {{30, 4}, {0, 1}, {64, 1}});
    const StepPlan& plan = sequences.plan();
    const int rows = sequences.rows();
    const int heads = group * kKvHeads;
    auto qkv = sequences.queries();
    const auto q_norm = normal_floats(1, kHeadDim);
    const auto k_norm = normal_floats(2, kHeadDim);
    std::vector<float> rotations(index_of(65, kHeadDim, 0));
    std::vector<double> angles(rotations.size() / 2);
    for (int pos = 0; pos < 65; ++pos) {
      for (int i = 0; i < kHeadDim / 2; ++i) {
        const double angle = pos * std::pow(1e4, -2.0 * i / kHeadDim);
        angles[index_of(pos, kHeadDim / 2, i)] = angle;
        rotations[index_of(pos, kHeadDim, i)] = static_cast<float>(std::cos(angle));
        rotations[index_of(pos, kHeadDim, kHeadDim / 2 + i)] = static_cast<float>(std::sin(angle));
      }
    }
    const auto before = qkv;
    const auto cache_before = sequences.memory();
    DeviceStep step;
    step.positions = plan.positions.data();
    step.item_of_row = plan.item_of_row.data();
    step.blocks = plan.blocks.data();
    step.block_begin = plan.block_begin.data();
    step.rows = rows;
    ASSERT_EQ(qk_norm_rope_append(kStream, {qkv.data(), rows, sequences.qkv_cols()}, sequences.kv(),
                                  kLayer, q_norm.data(), k_norm.data(), rotations.data(), step),
              0);
    std::size_t written = 0;
    for (int row = 0; row < rows; ++row) {
      const int pos = plan.positions[static_cast<std::size_t>(row)];
      const int item = plan.item_of_row[static_cast<std::size_t>(row)];
      for (int head = 0; head < heads + 2 * kKvHeads; ++head) {
        const float* in = before.data() + index_of(row, sequences.qkv_cols(), head * kHeadDim);
        const float* out = qkv.data() + index_of(row, sequences.qkv_cols(), head * kHeadDim);
        const bool query = head < heads;
        const bool value = head >= heads + kKvHeads;
        double squares = 0;
        for (int d = 0; d < kHeadDim; ++d) squares += std::pow(static_cast<double>(in[d]), 2);
        const double scale = 1 / std::sqrt(squares / kHeadDim + 1e-6);
        const auto& norm = query ? q_norm : k_norm;
        const auto normed = [&](int d) {
          return static_cast<double>(in[d]) * scale *
                 static_cast<double>(norm[static_cast<std::size_t>(d)]);
        };
        for (int d = 0; d < kHeadDim; ++d) {
          const int i = d % (kHeadDim / 2);
          const double angle = angles[index_of(pos, kHeadDim / 2, i)];
          const double turned =
              d == i ? normed(i) * std::cos(angle) - normed(i + kHeadDim / 2) * std::sin(angle)
                     : normed(d) * std::cos(angle) + normed(i) * std::sin(angle);
          if (query) {
            ASSERT_NEAR(out[d], turned, 2e-6 * scale * 10) << row << ", head " << head << ", " << d;
            continue;
          }
          ASSERT_EQ(out[d], in[d]);
          const int kv_head = (head - heads) % kKvHeads;
          const float stored = bf16_to_f32(sequences.at(item, pos, value ? 1 : 0, kv_head)[d]);
          if (value) {
            ASSERT_EQ(stored, round_to_bf16(in[d]));
          } else {
            ASSERT_NEAR(stored, turned, 0x1p-8 * std::abs(turned) + 1e-5);
          }
          ++written;
        }
      }
    }
    std::size_t changed = 0;
    for (std::size_t i = 0; i < cache_before.size(); ++i) {
      changed += sequences.memory()[i] != cache_before[i] ? 1u : 0u;
    }
    EXPECT_LE(changed, written);
    EXPECT_GT(changed, written * 9 / 10);
  }
}

}  // namespace
}  // namespace kipp::cuda
