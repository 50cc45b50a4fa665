// The ops of forward() on the reference backend, each against a naive double version, over
// hand-made matrices and a cache with a scrambled block table.
#include "backend/reference/reference_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/float16.h"
#include "model/step_plan.h"

namespace kipp::reference {
namespace {

constexpr double kHalfUlp = 0x1p-24;
constexpr ModelConfig kConfig = {.hidden = 64,
                                 .layers = 2,
                                 .query_heads = 16,
                                 .intermediate = 96,
                                 .context_length = 256,
                                 .rope_theta = 1000000,
                                 .tied = true};
constexpr int kQkvCols = 16 * kHeadDim + 2 * kKvWidth;

std::vector<float> random_floats(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

// A BF16 matrix of random weights and its values.
struct Matrix {
  int rows, cols;
  std::vector<std::uint16_t> bits;

  Matrix(int n_rows, int n_cols, unsigned seed) : rows(n_rows), cols(n_cols) {
    for (const float v : random_floats(static_cast<std::size_t>(rows * cols), seed)) {
      bits.push_back(f32_to_bf16(v));
    }
  }
  double at(int r, int c) const {
    return static_cast<double>(bf16_to_f32(bits[static_cast<std::size_t>(r * cols + c)]));
  }
  MatrixView view() const {
    return {.data = reinterpret_cast<const std::byte*>(bits.data()),
            .scheme = Scheme::bf16,
            .rows = rows,
            .cols = cols};
  }
};

class ReferenceOpsTest : public testing::TestWithParam<KvStore> {
 protected:
  void SetUp() override {
    auto kv = PagedKv::create(kConfig, {.blocks = 8, .store = GetParam()});
    ASSERT_TRUE(kv);
    kv_ = std::make_unique<PagedKv>(*std::move(kv));
    ops_ = std::make_unique<ReferenceOps>(kConfig, *kv_, 64);
  }

  // Plans and begins a step.
  ReferenceOps::Buffers& begin(const std::vector<EvalItem>& items) {
    const auto plan = planner_.plan(items);
    EXPECT_TRUE(plan);
    step_ = *plan;
    return ops_->begin_step(*step_);
  }
  ReferenceOps::Buffers& begin_rows(std::size_t n) {
    tokens_.assign(n, 1);
    return begin({{.tokens = tokens_, .blocks = blocks_, .want = LogitRows::all}});
  }
  static void fill(Rows& rows, unsigned seed) {
    const auto values = random_floats(static_cast<std::size_t>(rows.rows * rows.cols), seed);
    std::copy(values.begin(), values.end(), rows.data);
  }
  static std::vector<float> copy(const Rows& rows) {
    return {rows.data, rows.data + rows.rows * rows.cols};
  }

  std::unique_ptr<PagedKv> kv_;
  std::unique_ptr<ReferenceOps> ops_;
  StepPlanner planner_{
      {.max_step_tokens = 64, .max_logit_rows = 64, .kv_blocks = 8, .context_length = 256}};
  const StepPlan* step_ = nullptr;
  std::vector<Token> tokens_;
  std::vector<BlockId> blocks_ = {5, 2, 7, 0};
};

INSTANTIATE_TEST_SUITE_P(Stores, ReferenceOpsTest, testing::Values(KvStore::bf16, KvStore::f32),
                         [](const auto& tested) {
                           return tested.param == KvStore::bf16 ? "Bf16" : "F32";
                         });

TEST_P(ReferenceOpsTest, MatmulStacksItsParts) {
  // Row counts that are no multiple of how many rows are decoded at a time.
  const Matrix a(13, 64, 1), b(8, 64, 2), c(3, 64, 3);
  const StackedMatrix stacked = {.parts = {a.view(), b.view(), c.view()}, .n_parts = 3};
  auto& buffers = begin_rows(5);
  Rows in = buffers.h;
  fill(in, 4);
  std::vector<float> storage(5 * 24), before = random_floats(5 * 24, 5);
  Rows out = {storage.data(), 5, 24};

  std::vector<double> expected(storage.size()), bound(storage.size());
  for (int r = 0; r < 5; ++r) {
    for (int o = 0; o < 24; ++o) {
      const Matrix& m = o < 13 ? a : o < 21 ? b : c;
      const int row = o < 13 ? o : o < 21 ? o - 13 : o - 21;
      const auto at = static_cast<std::size_t>(r * 24 + o);
      for (int i = 0; i < 64; ++i) {
        const double product =
            m.at(row, i) * static_cast<double>(in.row(r)[static_cast<std::size_t>(i)]);
        expected[at] += product;
        bound[at] += std::abs(product) * kHalfUlp * 8;  // 2 additions, 5 folds, the product
      }
    }
  }
  ops_->matmul(out, in, stacked);
  for (std::size_t i = 0; i < storage.size(); ++i) EXPECT_NEAR(storage[i], expected[i], bound[i]);

  const std::vector<float> product = storage;
  storage = before;
  ops_->matmul_add(out, in, stacked);
  for (std::size_t i = 0; i < storage.size(); ++i) EXPECT_EQ(storage[i], before[i] + product[i]);
}

TEST_P(ReferenceOpsTest, EmbedLooksRowsUp) {
  const Matrix table(10, 64, 6);
  tokens_ = {9, 0, 9};
  auto& buffers = begin({{.tokens = tokens_, .blocks = blocks_}});
  ops_->embed(buffers.x, table.view(), step_->tokens);
  for (int r = 0; r < 3; ++r) {
    for (int i = 0; i < 64; ++i) {
      EXPECT_EQ(static_cast<double>(buffers.x.row(r)[static_cast<std::size_t>(i)]),
                table.at(tokens_[static_cast<std::size_t>(r)], i));
    }
  }
}

TEST_P(ReferenceOpsTest, SiluMulTakesGateBeforeUp) {
  auto& buffers = begin_rows(3);
  fill(buffers.gate_up, 7);
  ops_->silu_mul(buffers.act, buffers.gate_up);
  for (int r = 0; r < 3; ++r) {
    for (std::size_t i = 0; i < 96; ++i) {
      const double gate = static_cast<double>(buffers.gate_up.row(r)[i]);
      const double up = static_cast<double>(buffers.gate_up.row(r)[i + 96]);
      const double expected = gate / (1 + std::exp(-gate)) * up;
      ASSERT_NEAR(buffers.act.row(r)[i], expected, 4 * kHalfUlp * std::abs(expected));
    }
  }
}

TEST_P(ReferenceOpsTest, TakeRowsFollowsTheAskedLogits) {
  tokens_ = {1, 2, 3, 4, 5};
  const auto all = std::span<const Token>(tokens_);
  const std::vector<BlockId> other = {1};
  auto& buffers =
      begin({{.seq = 0, .tokens = all.first(3), .blocks = blocks_},
             {.seq = 1, .tokens = all.subspan(3), .blocks = other, .want = LogitRows::all}});
  fill(buffers.x, 8);
  ASSERT_EQ(buffers.last.rows, 3);
  ops_->take_rows(buffers.last, buffers.x, step_->logit_rows);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(std::ranges::equal(buffers.last.row(i), buffers.x.row(i + 2)));
  }
}

TEST_P(ReferenceOpsTest, QkNormRopeTouchesQueriesAndKeysByTheirPositions) {
  tokens_ = {1, 2};
  auto& buffers = begin({{.pos = 40, .tokens = tokens_, .blocks = blocks_}});
  fill(buffers.qkv, 9);
  const auto before = copy(buffers.qkv);
  const auto q_norm = random_floats(kHeadDim, 10), k_norm = random_floats(kHeadDim, 11);
  ops_->qk_norm_rope(buffers.qkv, q_norm, k_norm);
  for (int r = 0; r < 2; ++r) {
    for (int head = 0; head < 16 + 2 * kKvHeads; ++head) {
      const auto out =
          buffers.qkv.row(r).subspan(static_cast<std::size_t>(head * kHeadDim), kHeadDim);
      const float* in = before.data() + r * kQkvCols + head * kHeadDim;
      if (head >= 16 + kKvHeads) {
        ASSERT_TRUE(std::ranges::equal(out, std::span(in, kHeadDim))) << "values stay";
        continue;
      }
      const auto& norm = head < 16 ? q_norm : k_norm;
      double squares = 0;
      for (int i = 0; i < kHeadDim; ++i)
        squares += static_cast<double>(in[i]) * static_cast<double>(in[i]);
      const double scale = 1 / std::sqrt(squares / kHeadDim + 1e-6);
      for (std::size_t i = 0; i < 64; ++i) {
        const double angle = (40 + r) * std::pow(1e6, -static_cast<double>(i) / 64);
        const double a = static_cast<double>(in[i]) * scale * static_cast<double>(norm[i]);
        const double b =
            static_cast<double>(in[i + 64]) * scale * static_cast<double>(norm[i + 64]);
        // The norm rounds four times, the rotation four times.
        const double bound = 8 * kHalfUlp * (std::abs(a) + std::abs(b));
        ASSERT_NEAR(out[i], a * std::cos(angle) - b * std::sin(angle), bound);
        ASSERT_NEAR(out[i + 64], b * std::cos(angle) + a * std::sin(angle), bound);
      }
    }
  }
}

// Two chunks of one sequence with another sequence beside the second: causal, grouped, through the
// block table.
TEST_P(ReferenceOpsTest, AttendIsCausalGroupedAndPaged) {
  constexpr int kFirst = 45, kSecond = 7, kLayer = 1;
  const auto all = random_floats((kFirst + kSecond) * kQkvCols, 12);  // [positions, kQkvCols]
  const auto stored = [&](double v) {
    return GetParam() == KvStore::f32 ? v
                                      : static_cast<double>(round_to_bf16(static_cast<float>(v)));
  };
  const auto at = [&](int pos, int col) {
    return static_cast<double>(all[static_cast<std::size_t>(pos * kQkvCols + col)]);
  };
  tokens_.assign(kFirst, 1);
  auto* buffers = &begin({{.tokens = tokens_, .blocks = blocks_}});
  std::copy_n(all.begin(), kFirst * kQkvCols, buffers->qkv.data);
  ops_->kv_append(kLayer, buffers->qkv);

  tokens_.assign(kSecond, 1);
  const std::vector<BlockId> other = {3};
  buffers = &begin({{.seq = 1, .tokens = tokens_, .blocks = other},
                    {.seq = 0, .pos = kFirst, .tokens = tokens_, .blocks = blocks_}});
  std::copy_n(all.begin() + kFirst * kQkvCols, kSecond * kQkvCols,
              buffers->qkv.data + kSecond * kQkvCols);
  std::fill_n(buffers->qkv.data, kSecond * kQkvCols, 50.0f);
  ops_->kv_append(kLayer, buffers->qkv);
  ops_->attend(kLayer, buffers->ctx, buffers->qkv);

  for (int t = 0; t < kSecond; ++t) {
    const int cached = kFirst + t + 1;
    for (int head = 0; head < 16; ++head) {
      const int k_at = 16 * kHeadDim + head / 2 * kHeadDim, v_at = k_at + kKvWidth;
      std::vector<double> weight;
      double max = -1e300, worst_score = 0, sum = 0;
      for (int pos = 0; pos < cached; ++pos) {
        double score = 0, magnitude = 0;
        for (int i = 0; i < kHeadDim; ++i) {
          const double product = at(kFirst + t, head * kHeadDim + i) * stored(at(pos, k_at + i));
          score += product;
          magnitude += std::abs(product);
        }
        weight.push_back(score / std::sqrt(128.0));
        max = std::max(max, weight.back());
        worst_score = std::max(worst_score, magnitude / std::sqrt(128.0));
      }
      for (double& w : weight) sum += w = std::exp(w - max);
      // A score is off by its ten roundings, which the exponential turns into a relative error of
      // each weight, up to twice through the normalization; the sum over positions rounds once per
      // position.
      const double relative = (2 * 12 * worst_score + cached + 4) * kHalfUlp;
      for (int i = 0; i < kHeadDim; ++i) {
        double expected = 0, magnitude = 0;
        for (int pos = 0; pos < cached; ++pos) {
          const double term =
              weight[static_cast<std::size_t>(pos)] / sum * stored(at(pos, v_at + i));
          expected += term;
          magnitude += std::abs(term);
        }
        const float found =
            buffers->ctx.row(kSecond + t)[static_cast<std::size_t>(head * kHeadDim + i)];
        ASSERT_NEAR(found, expected, relative * magnitude) << t << ' ' << head << ' ' << i;
      }
    }
  }
}

TEST_P(ReferenceOpsTest, LayersDoNotShareTheirCache) {
  tokens_.assign(3, 1);
  auto& buffers = begin({{.tokens = tokens_, .blocks = blocks_}});
  fill(buffers.qkv, 13);
  ops_->kv_append(0, buffers.qkv);
  ops_->attend(0, buffers.ctx, buffers.qkv);
  const auto alone = copy(buffers.ctx);
  const auto qkv = copy(buffers.qkv);
  fill(buffers.qkv, 14);
  ops_->kv_append(1, buffers.qkv);
  std::copy(qkv.begin(), qkv.end(), buffers.qkv.data);
  ops_->attend(0, buffers.ctx, buffers.qkv);
  EXPECT_EQ(copy(buffers.ctx), alone);
}

}  // namespace
}  // namespace kipp::reference
