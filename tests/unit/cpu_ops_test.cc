// The ops of forward() on the cpu backend against those of the reference, for shapes that exercise
// every way rows and columns are split: one row and many, wider than a piece of silu_mul, a group
// of five query heads, several sequences in a step.
#include "backend/cpu/cpu_ops.h"

#include <gmock/gmock.h>

#include <cstring>

#include "backend/reference/reference_ops.h"
#include "base/float16.h"
#include "support/random_floats.h"

namespace kipp {
namespace {

using test::normal_floats;

constexpr ModelConfig kConfig = {.hidden = 1056,
                                 .layers = 2,
                                 .query_heads = 40,
                                 .intermediate = 2592,
                                 .context_length = 640,
                                 .rope_theta = 1000000,
                                 .tied = true};
constexpr int kRows = 64;
constexpr int kBlocks = 40;

template <class Rows>
std::span<float> all_of(const Rows& rows) {
  return {rows.data, static_cast<std::size_t>(rows.rows) * static_cast<std::size_t>(rows.cols)};
}

class CpuOpsTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    pool_ = ThreadPool::create(GetParam()).value();
    kv_ = std::make_unique<PagedKv>(PagedKv::create(kConfig, {.blocks = kBlocks}).value());
    reference_kv_ =
        std::make_unique<PagedKv>(PagedKv::create(kConfig, {.blocks = kBlocks}).value());
    ops_ = cpu::CpuOps::create(kConfig, {.max_step_tokens = kRows, .max_logit_rows = kRows}, *kv_,
                               *pool_)
               .value();
    reference_ = std::make_unique<reference::ReferenceOps>(kConfig, *reference_kv_, kRows);
  }

  // The same step on both, its buffers full of the same values.
  void begin(const std::vector<EvalItem>& items) {
    const auto plan = planner_.plan(items);
    ASSERT_TRUE(plan) << plan.error().message;
    step_ = *plan;
    mine_ = &ops_->begin_step(*step_);
    its_ = &reference_->begin_step(*step_);
    fill(mine_->x, its_->x, 1);
    fill(mine_->h, its_->h, 2);
    fill(mine_->qkv, its_->qkv, 3);
    fill(mine_->gate_up, its_->gate_up, 4);
  }
  void begin_rows(int rows) {
    tokens_.assign(static_cast<std::size_t>(rows), 1);
    begin({{.pos = 500, .tokens = tokens_, .blocks = blocks_, .want = LogitRows::all}});
  }
  void fill(const cpu::Rows& mine, const reference::Rows& its, unsigned seed) {
    const auto values = normal_floats(seed, all_of(mine).size());
    std::ranges::copy(values, all_of(mine).begin());
    std::ranges::copy(values, all_of(its).begin());
  }

  static void expect_close(const cpu::Rows& mine, const reference::Rows& its) {
    ASSERT_EQ(mine.rows, its.rows);
    ASSERT_EQ(mine.cols, its.cols);
    for (int r = 0; r < mine.rows; ++r) {
      double error = 0, size = 0;
      for (std::size_t i = 0; i < mine.row(r).size(); ++i) {
        const double truth = static_cast<double>(its.row(r)[i]);
        const double off = static_cast<double>(mine.row(r)[i]) - truth;
        error += off * off;
        size += truth * truth;
      }
      ASSERT_LE(error, 1e-12 * size) << "row " << r;
    }
  }

  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<PagedKv> kv_, reference_kv_;
  std::unique_ptr<cpu::CpuOps> ops_;
  std::unique_ptr<reference::ReferenceOps> reference_;
  cpu::CpuOps::Buffers* mine_ = nullptr;
  reference::ReferenceOps::Buffers* its_ = nullptr;
  StepPlanner planner_{{.max_step_tokens = kRows,
                        .max_logit_rows = kRows,
                        .kv_blocks = kBlocks,
                        .context_length = kConfig.context_length}};
  const StepPlan* step_ = nullptr;
  std::vector<Token> tokens_;
  std::vector<BlockId> blocks_ = {9, 2, 14, 5, 1, 7, 3, 11, 20, 19, 18, 17, 16, 15, 13, 12, 10, 8};
};

INSTANTIATE_TEST_SUITE_P(Threads, CpuOpsTest, testing::Values(1, 2, 5));

TEST_P(CpuOpsTest, RowsOfEveryWidth) {
  const auto norm = normal_floats(5, 1056), q_norm = normal_floats(6, kHeadDim),
             k_norm = normal_floats(7, kHeadDim);
  for (const int rows : {1, 2, 7, kRows}) {
    SCOPED_TRACE(rows);
    begin_rows(rows);
    ops_->rms_norm(mine_->h, mine_->x, norm);
    reference_->rms_norm(its_->h, its_->x, norm);
    expect_close(mine_->h, its_->h);
    ops_->silu_mul(mine_->act, mine_->gate_up);
    reference_->silu_mul(its_->act, its_->gate_up);
    expect_close(mine_->act, its_->act);
    ops_->qk_norm_rope(mine_->qkv, q_norm, k_norm);
    reference_->qk_norm_rope(its_->qkv, q_norm, k_norm);
    expect_close(mine_->qkv, its_->qkv);
  }
}

TEST_P(CpuOpsTest, EmbedAndTakeRowsMoveBits) {
  std::vector<std::uint16_t> table;
  for (const float v : normal_floats(8, 100 * 1056)) table.push_back(f32_to_bf16(v));
  const MatrixView view = {.data = reinterpret_cast<const std::byte*>(table.data()),
                           .scheme = Scheme::bf16,
                           .rows = 100,
                           .cols = 1056};
  for (const int rows : {1, kRows}) {
    tokens_.clear();
    for (int i = 0; i < rows; ++i) tokens_.push_back((i * 37 + 99) % 100);
    begin({{.pos = 3, .tokens = tokens_, .blocks = blocks_, .want = LogitRows::all}});
    ops_->embed(mine_->x, view, tokens_);
    reference_->embed(its_->x, view, tokens_);
    EXPECT_TRUE(std::ranges::equal(all_of(mine_->x), all_of(its_->x)));
    ops_->take_rows(mine_->last, mine_->x, step_->logit_rows);
    EXPECT_TRUE(std::ranges::equal(all_of(mine_->last), all_of(mine_->x)));
  }
}

// Two sequences, at different depths and paces, over scrambled blocks.
TEST_P(CpuOpsTest, CacheAndAttention) {
  const std::vector<BlockId> other = {30, 31, 39, 33};
  const std::vector<Token> many(kRows - 1, 1), few(5, 1), one(1, 1);
  std::vector<std::byte> mine(kv_->block_bytes()), its(mine.size());
  int pos = 0;
  for (int step = 0; step < 8; ++step, pos += kRows - 1) {
    SCOPED_TRACE(step);
    begin({{.seq = 1, .pos = step, .tokens = one, .blocks = other},
           {.seq = 0, .pos = pos, .tokens = many, .blocks = blocks_}});
    for (const int layer : {0, 1}) {
      ops_->kv_append(layer, mine_->qkv);
      reference_->kv_append(layer, its_->qkv);
      ops_->attend(layer, mine_->ctx, mine_->qkv);
      reference_->attend(layer, its_->ctx, its_->qkv);
      expect_close(mine_->ctx, its_->ctx);
    }
  }
  for (const BlockId block : {9, 2, 11, 30}) {
    ASSERT_TRUE(kv_->read(block, mine));
    ASSERT_TRUE(reference_kv_->read(block, its));
    EXPECT_EQ(mine, its) << block;
  }
  // Decoding and a few tokens at once, at a depth of several runs.
  begin({{.seq = 0, .pos = pos, .tokens = one, .blocks = blocks_},
         {.seq = 1, .pos = 8, .tokens = few, .blocks = other}});
  ops_->kv_append(1, mine_->qkv);
  reference_->kv_append(1, its_->qkv);
  ops_->attend(1, mine_->ctx, mine_->qkv);
  reference_->attend(1, its_->ctx, its_->qkv);
  expect_close(mine_->ctx, its_->ctx);
}

TEST_P(CpuOpsTest, BytesNeededCoverWhatIsAllocated) {
  const auto need = [&](int blocks, int threads) {
    return cpu::CpuOps::bytes_needed(kConfig, {.max_step_tokens = kRows, .max_logit_rows = 8},
                                     {.blocks = blocks}, threads);
  };
  // 64 rows of activations, 8 of logits.
  EXPECT_GT(need(kBlocks, 1), 4u * (64 * (2 * 1056 + 7168 + 5120 + 3 * 2592) + 8 * 151936));
  EXPECT_LT(need(kBlocks, 1), 32u << 20);
  EXPECT_GT(need(kBlocks, 16), need(kBlocks, 1) + 15 * 64 * 128 * 4);
  EXPECT_EQ(need(2000000000, 1), need(20, 1)) << "a sequence is no longer than the context";
}

}  // namespace
}  // namespace kipp
