// Keys and values on the device and attention over them, on whatever adapter there is: against
// loops in double and the reference backend, and that no neighbour, chunk, table or cut changes a
// bit.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/reference/reference_ops.h"
#include "backend/webgpu/device_kv.h"
#include "base/float16.h"
#include "support/webgpu_cache.h"

namespace kipp::webgpu {
namespace {

using test::config_of;
using test::Deal;
using test::device;
using test::Item;
using test::kBlockHead;
using test::kLayers;
using test::kMaxRows;
using test::normal_floats;
using test::part_of;
using test::same_bits;
using test::step_of;
using test::value;
using Cache = test::WebgpuCache;

// What the blocks of a step hold, on the host; positions that nobody wrote are NaN.
class Stored {
 public:
  explicit Stored(const StepPlan& plan)
      : bytes_(2 * kLayers * 2 * kKvHeads * kBlockHead),
        memory_(plan.blocks.size() * bytes_ / 2, 0xffff) {
    for (int item = 0; item + 1 < static_cast<int>(plan.block_begin.size()); ++item) {
      const auto rows = std::ranges::count(plan.item_of_row, item);
      const auto first = std::ranges::find(plan.item_of_row, item) - plan.item_of_row.begin();
      const int length = plan.positions[static_cast<std::size_t>(first)] + static_cast<int>(rows);
      for (int position = 0; position < length; ++position) {
        const auto floats =
            normal_floats(static_cast<std::uint64_t>(item * 8192 + position), 4 * kKvWidth);
        for (int part = 0; part < 4 * kKvHeads; ++part) {
          const int layer = part / (2 * kKvHeads), side = part / kKvHeads % 2;
          std::transform(floats.begin() + part * kHeadDim, floats.begin() + (part + 1) * kHeadDim,
                         at(plan, item, position, layer, side, part % kKvHeads), f32_to_bf16);
        }
      }
    }
  }

  std::uint16_t* at(const StepPlan& plan, int item, int position, int layer, int side, int head) {
    const BlockId block = plan.table(item)[static_cast<std::size_t>(position / kBlockPositions)];
    const auto heads = static_cast<std::size_t>((layer * 2 + side) * kKvHeads + head);
    return memory_.data() + static_cast<std::size_t>(block) * bytes_ / 2 + heads * kBlockHead +
           static_cast<std::size_t>(position % kBlockPositions) * kHeadDim;
  }
  std::span<const std::byte> block(BlockId id) const {
    return std::as_bytes(std::span(memory_)).subspan(static_cast<std::size_t>(id) * bytes_, bytes_);
  }
  void write_to(DeviceKv& kv) const {
    const auto blocks = static_cast<BlockId>(memory_.size() * 2 / bytes_);
    for (BlockId id = 0; id < blocks; ++id) value(kv.write_block(id, block(id)));
  }

 private:
  std::size_t bytes_;
  std::vector<std::uint16_t> memory_;
};

double attended(Stored& stored, const StepPlan& plan, std::span<const float> query, int row,
                int layer, int kv_head, std::vector<double>& out) {
  const auto r = static_cast<std::size_t>(row);
  std::vector<double> weights;
  for (int position = 0; position <= plan.positions[r]; ++position) {
    const std::uint16_t* k = stored.at(plan, plan.item_of_row[r], position, layer, 0, kv_head);
    double score = 0;
    for (std::size_t d = 0; d < kHeadDim; ++d) {
      score += static_cast<double>(query[d]) * static_cast<double>(bf16_to_f32(k[d]));
    }
    weights.push_back(score / std::sqrt(128.0));
  }
  const double greatest = *std::ranges::max_element(weights);
  double sum = 0, size = 0;
  for (double& w : weights) sum += w = std::exp(w - greatest);
  out.assign(kHeadDim, 0);
  for (int position = 0; position <= plan.positions[r]; ++position) {
    const std::uint16_t* v = stored.at(plan, plan.item_of_row[r], position, layer, 1, kv_head);
    for (std::size_t d = 0; d < kHeadDim; ++d) {
      out[d] += weights[static_cast<std::size_t>(position)] / sum *
                static_cast<double>(bf16_to_f32(v[d]));
    }
  }
  for (const double x : out) size += x * x;
  return size;
}

// Long and short ones, alone and in tiles, around the edges of blocks and runs.
const std::vector<Item> kItems = {{300, 1}, {0, 37}, {255, 2}, {31, 1}, {520, 19}, {0, 1}, {63, 3}};
constexpr int kLayer = 1;

class Attention : public testing::TestWithParam<int> {
 protected:
  const int group = GetParam();
  const StepPlan plan = step_of(kItems);
  Stored stored{plan};
  Cache cache{group, {.blocks = static_cast<int>(plan.blocks.size())}};
  const std::vector<float> qkv =
      normal_floats(5, static_cast<std::size_t>(plan.rows() * cache.qkv_cols()));

  std::span<const float> rows_of_qkv(int first, int n) const {
    return std::span(qkv).subspan(static_cast<std::size_t>(first * cache.qkv_cols()),
                                  static_cast<std::size_t>(n * cache.qkv_cols()));
  }
  std::span<const float> rows_of_ctx(const std::vector<float>& ctx, int first, int n) const {
    return std::span(ctx).subspan(static_cast<std::size_t>(first * cache.ctx_cols()),
                                  static_cast<std::size_t>(n * cache.ctx_cols()));
  }

  void SetUp() override { stored.write_to(cache.kv()); }
};

INSTANTIATE_TEST_SUITE_P(Group, Attention, testing::Values(2, 5),
                         [](const auto& test) { return fmt::format("Of{}", test.param); });

TEST_P(Attention, IsThatOfDoubles) {
  const auto ctx = cache.attend(plan, qkv, kLayer);
  std::vector<double> out;
  for (int row = 0; row < plan.rows(); ++row) {
    for (int head = row % 3; head < group * kKvHeads; head += 3) {
      const auto query =
          rows_of_qkv(row, 1).subspan(static_cast<std::size_t>(head) * kHeadDim, kHeadDim);
      const double size = attended(stored, plan, query, row, kLayer, head / group, out);
      double error = 0;
      for (std::size_t d = 0; d < kHeadDim; ++d) {
        const auto at = static_cast<std::size_t>(row * cache.ctx_cols() + head * kHeadDim) + d;
        error += std::pow(static_cast<double>(ctx[at]) - out[d], 2);
      }
      ASSERT_LE(error, 1e-11 * size) << "row " << row << ", head " << head;
    }
  }
}

TEST_P(Attention, ARowHasTheSameBitsInAnyStep) {
  const auto ctx = cache.attend(plan, qkv, kLayer);
  for (const auto& [first, n] : {std::pair{0, 1},
                                 {1, 1},
                                 {37, 1},
                                 {1, 7},
                                 {8, 30},
                                 {38, 1},
                                 {39, 1},
                                 {41, 1},
                                 {50, 10},
                                 {60, 3},
                                 {61, 1}}) {
    EXPECT_TRUE(same_bits(cache.attend(part_of(plan, first, n), rows_of_qkv(first, n), kLayer),
                          rows_of_ctx(ctx, first, n)))
        << "rows " << first << " + " << n;
  }
}

TEST_P(Attention, ACutChangesNoBit) {
  const auto ctx = cache.attend(plan, qkv, kLayer);
  for (const int workgroups : {1, 40}) {
    for (const std::uint32_t bytes : {16u << 10, 0u}) {
      if (bytes != 0 && group == 2) continue;  // the same kernel for a token
      Cache other(
          group, {.blocks = static_cast<int>(plan.blocks.size())},
          {.max_step_tokens = kMaxRows, .workgroup_bytes = bytes, .workgroups = workgroups});
      stored.write_to(other.kv());
      EXPECT_TRUE(same_bits(other.attend(plan, qkv, kLayer), ctx))
          << workgroups << " workgroups of " << bytes << " bytes";
    }
  }
}

TEST_P(Attention, IsThatOfTheReference) {
  const ModelConfig config = config_of(group);
  const KvConfig kv = {.blocks = static_cast<int>(plan.blocks.size())};
  PagedKv paged = value(PagedKv::create(config, kv));
  for (BlockId id = 0; id < kv.blocks; ++id) {
    value(paged.write(id, stored.block(id)));
  }
  reference::ReferenceOps ops(config, paged, kMaxRows);
  auto& buffers = ops.begin_step(plan);
  std::ranges::copy(qkv, buffers.qkv.data);
  ops.qk_norm_rope(buffers.qkv, cache.q_norm(kLayer), cache.k_norm(kLayer));
  ops.kv_append(kLayer, buffers.qkv);
  ops.attend(kLayer, buffers.ctx, buffers.qkv);

  std::vector<float> rows = qkv;
  const auto ctx = cache.append_and_attend(plan, rows, kLayer);
  double error = 0, size = 0;
  for (std::size_t i = 0; i < ctx.size(); ++i) {
    const auto truth = static_cast<double>(buffers.ctx.data[i]);
    error += std::pow(static_cast<double>(ctx[i]) - truth, 2);
    size += truth * truth;
  }
  // Some keys round to the other neighbour.
  EXPECT_LE(error, 1e-7 * size);

  // Blocks: values to the bit, keys but for those; rows nobody wrote as they were.
  std::vector<std::byte> found(cache.kv().block_bytes());
  std::size_t others = 0;
  for (BlockId id = 0; id < kv.blocks; ++id) {
    value(cache.kv().read_block(id, found));
    const auto truth = paged.block(id);
    for (std::size_t at = 0; at < found.size(); at += 2) {
      const bool key = at / (found.size() / kLayers / 2) % 2 == 0;
      if (std::memcmp(&found[at], &truth[at], 2) == 0) continue;
      std::uint16_t bits[2];
      std::memcpy(&bits[0], &found[at], 2);
      std::memcpy(&bits[1], &truth[at], 2);
      ASSERT_TRUE(key) << "block " << id << ", byte " << at;
      ASSERT_LE(std::abs(bits[0] - bits[1]), 1) << "block " << id << ", byte " << at;
      ++others;
    }
  }
  EXPECT_LE(others, qkv.size() / 200);
}

// Queries come back normed and rotated, keys and values of qkv as they were.
TEST_P(Attention, QueriesAreNormedAndRotated) {
  const ModelConfig config = config_of(group);
  PagedKv paged = value(PagedKv::create(config, {.blocks = 1}));
  reference::ReferenceOps ops(config, paged, kMaxRows);
  auto& buffers = ops.begin_step(plan);
  std::ranges::copy(qkv, buffers.qkv.data);
  ops.qk_norm_rope(buffers.qkv, cache.q_norm(kLayer), cache.k_norm(kLayer));
  std::vector<float> rows = qkv;
  cache.append_and_attend(plan, rows, kLayer);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool query =
        i % static_cast<std::size_t>(cache.qkv_cols()) < static_cast<std::size_t>(cache.ctx_cols());
    if (query) {
      ASSERT_NEAR(rows[i], buffers.qkv.data[i], 2e-6 * (1 + std::abs(rows[i]))) << i;
    } else {
      ASSERT_EQ(rows[i], qkv[i]) << i;
    }
  }
}

// In chunks of any size, over other blocks, beside others: what a sequence computes stays.
TEST(WebgpuAttention, ChunksAndTablesChangeNoBit) {
  constexpr int kTokens = 71;
  const std::vector<Item> both = {{0, kTokens}, {0, 1}};
  const StepPlan whole = step_of(both);
  Cache cache(2, {.blocks = 8});
  const auto width = static_cast<std::size_t>(cache.qkv_cols());
  const auto given = normal_floats(7, static_cast<std::size_t>(whole.rows()) * width);
  auto rows = given;
  const auto expected = cache.append_and_attend(whole, rows, 0);
  std::vector<std::byte> block(cache.kv().block_bytes()), other(block.size());
  value(cache.kv().read_block(whole.blocks[1], block));
  for (const int chunk : {1, 7, 32}) {
    std::vector<float> ctx;
    StepPlan table = step_of({{0, kTokens}}, chunk == 7 ? Deal::backwards : Deal::forwards);
    for (int at = 0; at < kTokens; at += chunk) {
      const int n = std::min(chunk, kTokens - at);
      auto part = std::vector<float>(given.begin() + static_cast<std::ptrdiff_t>(width) * at,
                                     given.begin() + static_cast<std::ptrdiff_t>(width) * (at + n));
      const auto out = cache.append_and_attend(part_of(table, at, n), part, 0);
      ctx.insert(ctx.end(), out.begin(), out.end());
    }
    EXPECT_TRUE(same_bits(ctx, std::span(expected).first(ctx.size()))) << "chunks of " << chunk;
    value(cache.kv().read_block(table.blocks[1], other));
    EXPECT_EQ(std::memcmp(block.data(), other.data(), block.size()), 0) << "chunks of " << chunk;
  }
}

TEST(WebgpuAttention, BlocksAreCopiedReadAndWritten) {
  const StepPlan plan = step_of({{60, 1}});
  Stored stored(plan);
  Cache cache(2, {.blocks = 5});
  stored.write_to(cache.kv());
  const auto qkv = normal_floats(9, static_cast<std::size_t>(cache.qkv_cols()));
  const auto expected = cache.attend(plan, qkv, kLayer);
  value(cache.kv().copy_blocks(std::vector<BlockCopy>{{.from = 0, .to = 3}, {.from = 1, .to = 4}}));
  const std::vector<std::byte> nothing(cache.kv().block_bytes());
  for (const BlockId id : {0, 1}) value(cache.kv().write_block(id, nothing));
  std::vector<std::byte> found(nothing.size());
  for (const BlockId id : {0, 1, 2}) {
    value(cache.kv().read_block(id, found));
    EXPECT_EQ(found, nothing) << id;
  }
  value(cache.kv().read_block(4, found));
  EXPECT_TRUE(std::ranges::equal(found, stored.block(1)));
  StepPlan moved = plan;
  for (BlockId& id : moved.blocks) id += 3;
  EXPECT_TRUE(same_bits(cache.attend(moved, qkv, kLayer), expected));

  EXPECT_THAT(cache.kv().read_block(5, found).error().message,
              testing::HasSubstr("expected one from 0 to 4, found 5"));
  found.pop_back();
  EXPECT_THAT(cache.kv().write_block(1, found).error().message,
              testing::HasSubstr("block 1: expected 262144 bytes, found 262143"));
}

// Every run of every row in exactly one task, within the bounds that buffers are made for.
TEST(WebgpuAttention, APlanCoversEveryRunOfEveryRowOnce) {
  for (const int group : {2, 5, 8}) {
    for (const int workgroups : {1, 500, 5000}) {
      for (const bool ends : {false, true}) {
        const StepPlan step = step_of({{1000, 1}, {0, 100}, {3000, 5}, {129, 30}, {0, 1}});
        const AttentionPlan::Limits limits = {.queries_per_kv_head = group,
                                              .tile_queries = 64,
                                              .max_step_tokens = 140,
                                              .max_table_blocks = 300,
                                              .state_slots = 300,
                                              .workgroups = workgroups,
                                              .tiles_end_at_blocks = ends};
        AttentionPlan plan(limits);
        plan.begin_step(step);
        const auto words = plan.words();
        EXPECT_LE(words.size_bytes(), AttentionPlan::bytes_needed(limits));
        std::vector<std::vector<std::uint32_t>> seen(static_cast<std::size_t>(step.rows()));
        std::vector<int> written(300, 0);
        std::vector<std::vector<std::uint32_t>> slots(seen.size());
        const auto tasks = plan.narrow_tasks() + plan.wide_tasks();
        for (std::uint32_t i = 0; i < tasks; ++i) {
          const auto task = words.subspan(words[1] + i * 8, 8);
          EXPECT_LE(task[1] * static_cast<std::uint32_t>(group), 64u);
          EXPECT_EQ(task[1] == 1 || i >= plan.narrow_tasks(), true);
          if (ends) {
            EXPECT_LE(task[2] % 32 + task[1], 32u);
          }
          EXPECT_LT(task[4], task[5]);
          for (std::uint32_t token = 0; token < task[1]; ++token) {
            const std::size_t row = task[0] + token;
            EXPECT_EQ(step.positions[row], static_cast<int>(task[2] + token));
            EXPECT_EQ(words[task[3]],
                      static_cast<std::uint32_t>(step.table(step.item_of_row[row]).front()));
            for (std::uint32_t run = task[4]; run < task[5]; ++run) {
              seen[row].push_back(run);
              if (task[7] == 0) continue;
              ++written[task[6] + token * task[7] + run];
              slots[row].resize(task[7]);
              slots[row][run] = task[6] + token * task[7] + run;
            }
            if (task[7] == 0 && task[5] > 1 && i >= plan.narrow_tasks()) {
              ++written[task[6] + token];
            }
          }
        }
        EXPECT_TRUE(std::ranges::all_of(written, [](int n) { return n <= 1; }));
        std::vector<int> merged(seen.size(), 0);
        for (std::uint32_t i = 0; i < plan.merges(); ++i) {
          const auto merge = words.subspan(words[3] + i * 4, 4);
          ++merged[merge[0]];
          for (std::uint32_t run = 0; run < merge[1]; ++run) {
            EXPECT_EQ(slots[merge[0]][run], merge[2] + run);
          }
          EXPECT_EQ(static_cast<int>(merge[1]), runs_of(step.positions[merge[0]] + 1));
        }
        for (std::size_t row = 0; row < seen.size(); ++row) {
          EXPECT_EQ(merged[row], slots[row].empty() ? 0 : 1);
          std::ranges::sort(seen[row]);
          ASSERT_GE(static_cast<int>(seen[row].size()), runs_of(step.positions[row] + 1));
          for (std::size_t r = 0; r < seen[row].size(); ++r) EXPECT_EQ(seen[row][r], r);
        }
        EXPECT_EQ(plan.merges() > 0, workgroups > 1);
      }
    }
  }
}

TEST(WebgpuAttention, ALayerThatDoesNotFitIsRefused) {
  const gpu::Buffer none = value(device().create_buffer(16, "nothing"));
  const auto refused = DeviceKv::create(device(), config_of(2), {.blocks = 1 << 20},
                                        {.max_step_tokens = 1}, {.qkv = none, .ctx = none}, {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              testing::HasSubstr("found 137438953472 for keys and values of 1048576 blocks in a "
                                 "layer"));
}

}  // namespace
}  // namespace kipp::webgpu
