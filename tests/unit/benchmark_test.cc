// What `kipp bench` counts and what it asks a backend for. Times are never asserted.
#include "engine/benchmark.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "backend/registry.h"
#include "base/float16.h"
#include "model/step_plan.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using ::testing::HasSubstr;

TEST(BenchmarkCost, OfATwinIsWhatItsFileHolds) {
  const Artifact artifact = test::open_twin("tiny-untied", Scheme::q8_0);
  const ModelConfig& c = artifact.config();
  const ModelCost cost = model_cost(artifact);
  const double weights =
      1.0 * c.layers *
      (1.0 * c.hidden * (2 * c.attention_width() + 2 * kKvWidth) + 3.0 * c.hidden * c.intermediate);
  EXPECT_EQ(cost.layer_weights, weights);
  EXPECT_EQ(cost.head_weights, 1.0 * kVocabRows * c.hidden);
  EXPECT_EQ(cost.head_bytes, 2.0 * kVocabRows * c.hidden);  // BF16 in every scheme
  const double norms = 4.0 * (c.layers * (2.0 * c.hidden + 2.0 * kHeadDim) + c.hidden);
  EXPECT_EQ(cost.layer_bytes, weights * 34 / 32 + norms);
  EXPECT_EQ(cost.kv_bytes, 2.0 * 2 * c.layers * kKvWidth);
}

TEST(BenchmarkCost, ATiedHeadIsReadOnceAndAnEmbeddingNever) {
  const Artifact tied = test::open_twin("tiny-tied", Scheme::bf16);
  const Artifact untied = test::open_twin("tiny-untied", Scheme::bf16);
  EXPECT_EQ(model_cost(tied).head_bytes, 2.0 * kVocabRows * tied.config().hidden);
  EXPECT_EQ(model_cost(untied).head_bytes, 2.0 * kVocabRows * untied.config().hidden);
}

const ModelCost kUnits = {.layer_bytes = 1000,
                          .head_bytes = 100,
                          .kv_bytes = 1,
                          .layer_weights = 10,
                          .head_weights = 5,
                          .attention_width = 3};

TEST(BenchmarkCost, OfDecoding) {
  const BenchmarkCost cost = cost_of({BenchmarkKind::decode, 2, 7, 3}, kUnits, 512);
  // Two steps, three sequences of 8 and then 9 positions.
  EXPECT_EQ(cost.bytes, 2 * 1100 + 3 * (8 + 9));
  EXPECT_EQ(cost.flops, 3 * (2 * (20 + 10) + 12 * (8 + 9)));
}

TEST(BenchmarkCost, OfPrefill) {
  const BenchmarkCost cost = cost_of({BenchmarkKind::prefill, 5, 10, 1}, kUnits, 3);
  // Steps of three and two; the last returns one row of logits. The queries meet 11 to 15 keys.
  EXPECT_EQ(cost.bytes, 1000 + 13 + 1100 + 15);
  EXPECT_EQ(cost.flops, 5 * 20 + 12 * (11 + 12 + 13 + 14 + 15) + 10);
}

TEST(BenchmarkCache, IsRefusedWithNumbersWhereItDoesNotFit) {
  const Checkpoint& checkpoint = **find_checkpoint("qwen3-0.6b");
  const BenchmarkCase what{BenchmarkKind::decode, 32, 8160, 32};
  // 32 x 256 blocks of 3.5 MiB: 28 GiB.
  const std::size_t bytes = std::size_t{28} << 30;
  EXPECT_TRUE(check_cache(what, checkpoint, bytes));
  EXPECT_TRUE(check_cache(what, checkpoint, 0)) << "unknown is not too little";
  const auto refused = check_cache(what, checkpoint, bytes - 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
  EXPECT_THAT(refused.error().message,
              HasSubstr("28.0 GiB of KV cache needed for 32 x 8192 positions of qwen3-0.6b"));
}

// Computes nothing and remembers what it was asked.
class Recorder final : public Backend {
 public:
  struct Item {
    int pos = 0;
    int tokens = 0;
    LogitRows want = LogitRows::none;
  };

  explicit Recorder(int blocks)
      : blocks_(static_cast<std::size_t>(blocks)),
        planner_({.max_step_tokens = 64,
                  .max_logit_rows = 8,
                  .kv_blocks = blocks,
                  .context_length = 4096}) {}
  const BackendInfo& info() const override { return info_; }
  Result<void> load(const Artifact&, const KvConfig&, const LoadOptions&) override { return {}; }
  Result<LogitsView> eval(std::span<const EvalItem> items) override {
    KIPP_TRY(planner_.plan(items));  // refuses shared blocks, wrong tables, ids without a name
    if (on_eval) on_eval();
    auto& step = steps.emplace_back();
    for (const EvalItem& item : items) {
      step.push_back({item.pos, static_cast<int>(item.tokens.size()), item.want});
      for (const BlockId block : item.blocks) used.insert(block);
    }
    return LogitsView{.data = nullptr, .rows = 0};
  }
  void copy_blocks(std::span<const BlockCopy>) override {}
  std::size_t block_bytes() const override { return kBlockBytes; }
  Result<void> read_block(BlockId, std::span<std::byte>) override { return {}; }
  Result<void> write_block(BlockId block, std::span<const std::byte> in) override {
    blocks_[static_cast<std::size_t>(block)].assign(in.begin(), in.end());
    return {};
  }
  const std::vector<std::byte>& block(std::size_t i) const { return blocks_[i]; }

  static constexpr std::size_t kBlockBytes = 4096;
  std::function<void()> on_eval;
  std::vector<std::vector<Item>> steps;
  std::set<BlockId> used;

 private:
  BackendInfo info_ = {.name = "recorder", .max_step_tokens = 64, .max_logit_rows = 8};
  std::vector<std::vector<std::byte>> blocks_;
  StepPlanner planner_;
};

TEST(Benchmark, DecodesSequencesSideBySideFromTheirDepth) {
  Recorder backend(30);
  auto benchmark = Benchmark::create(backend, 30, 1);
  ASSERT_TRUE(benchmark);
  const auto seconds = benchmark->run({BenchmarkKind::decode, 3, 63, 5});
  ASSERT_TRUE(seconds) << seconds.error().message;
  EXPECT_GT(*seconds, 0);
  ASSERT_EQ(backend.steps.size(), 3u);
  for (int step = 0; step < 3; ++step) {
    const auto& items = backend.steps[static_cast<std::size_t>(step)];
    ASSERT_EQ(items.size(), 5u);
    for (const auto& item : items) {
      EXPECT_EQ(item.pos, 63 + step);
      EXPECT_EQ(item.tokens, 1);
      EXPECT_EQ(item.want, LogitRows::last);
    }
  }
  EXPECT_EQ(backend.used.size(), 15u) << "three blocks each, none shared";
}

TEST(Benchmark, PrefillsInTheLargestStepsAndWantsTheLastRow) {
  Recorder backend(30);
  auto benchmark = Benchmark::create(backend, 30, 1);
  ASSERT_TRUE(benchmark);
  ASSERT_TRUE(benchmark->run({BenchmarkKind::prefill, 150, 100, 1}));
  ASSERT_EQ(backend.steps.size(), 3u);
  const int positions[] = {100, 164, 228};
  const int tokens[] = {64, 64, 22};
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(backend.steps[i].size(), 1u);
    EXPECT_EQ(backend.steps[i][0].pos, positions[i]);
    EXPECT_EQ(backend.steps[i][0].tokens, tokens[i]);
    EXPECT_EQ(backend.steps[i][0].want, i == 2 ? LogitRows::last : LogitRows::none);
  }
}

TEST(Benchmark, FillsEveryBlockWithOrdinaryNumbersOfTheSeed) {
  Recorder backend(3);
  Recorder again(3);
  Recorder other(3);
  ASSERT_TRUE(Benchmark::create(backend, 3, 1));
  ASSERT_TRUE(Benchmark::create(again, 3, 1));
  ASSERT_TRUE(Benchmark::create(other, 3, 2));
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& block = backend.block(i);
    ASSERT_EQ(block.size(), Recorder::kBlockBytes);
    EXPECT_EQ(block, again.block(i));
    EXPECT_NE(block, other.block(i));
    EXPECT_NE(block, backend.block((i + 1) % 3));
    double sum = 0;
    for (std::size_t k = 0; k < block.size(); k += 2) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, &block[k], 2);
      const float value = bf16_to_f32(bits);
      ASSERT_GE(std::abs(value), 0.25f);
      ASSERT_LT(std::abs(value), 1.0f);
      sum += value;
    }
    EXPECT_LT(std::abs(sum), 0.1 * Recorder::kBlockBytes / 2) << "both signs";
  }
}

TEST(Benchmark, StopsBetweenSteps) {
  Recorder backend(3);
  auto benchmark = Benchmark::create(backend, 3, 1);
  ASSERT_TRUE(benchmark);
  std::atomic<bool> cancel = false;
  backend.on_eval = [&] { cancel = backend.steps.size() == 2; };
  const auto stopped = benchmark->run({BenchmarkKind::decode, 10, 0, 1}, &cancel);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::interrupted);
  EXPECT_EQ(backend.steps.size(), 3u);
}

TEST(Benchmark, RefusesWhatItHasNoRoomFor) {
  Recorder backend(3);
  auto benchmark = Benchmark::create(backend, 3, 1);
  ASSERT_TRUE(benchmark);
  const auto why = [&](const BenchmarkCase& what) {
    const auto seconds = benchmark->run(what);
    return seconds ? "" : seconds.error().message;
  };
  EXPECT_EQ(why({BenchmarkKind::decode, 32, 64, 1}), "");
  EXPECT_THAT(why({BenchmarkKind::decode, 33, 64, 1}), HasSubstr("1 sequences of 97 positions"));
  EXPECT_THAT(why({BenchmarkKind::decode, 1, 0, 9}),
              HasSubstr("batch: expected 1 to 8 sequences on recorder, found 9"));
  EXPECT_THAT(why({BenchmarkKind::prefill, 1, 0, 2}), HasSubstr("prefill"));
  EXPECT_THAT(why({BenchmarkKind::decode, 0, 0, 1}), HasSubstr("expected at least 1, found 0"));
}

TEST(Benchmark, RunsOnBothBackends) {
  for (const char* name : {"cpu", "reference"}) {
    const auto model = test::open_twin_model("tiny-untied", Scheme::affine4_gs32, 12, name);
    auto benchmark = Benchmark::create(model->backend(), 12, 1);
    ASSERT_TRUE(benchmark) << benchmark.error().message;
    EXPECT_TRUE(benchmark->run({BenchmarkKind::prefill, 40, 64, 1}));
    EXPECT_TRUE(benchmark->run({BenchmarkKind::decode, 2, 64, 4}));
  }
}

TEST(BenchmarkCost, CountsWhatIsReadOfPlanes) {
  const Artifact twin = test::open_twin("tiny-tied", Scheme::bf16);
  const KvPolicy policy =
      KvPolicy::parse("sink=1:int8,recent=1:int8,mid=1:int8/int4,far=int4").value();
  const ModelCost cost = model_cost(twin, policy);
  const double row = model_cost(twin).kv_bytes;  // of a position, both sides
  // In blocks of 32 rows: 16 bits an element are all of a row's bytes; 0.25 are scale and offset.
  const auto block = [&](double bits) { return row * kBlockPositions * (bits + 0.25) / 16; };
  EXPECT_EQ(cost.cached_bytes(5), 5 * row);
  EXPECT_EQ(cost.cached_bytes(33), block(8) + row);
  EXPECT_EQ(cost.cached_bytes(96), block(8) + block(6) + 32 * row);
  EXPECT_EQ(cost.cached_bytes(32 * 6 + 2), block(8) + block(6) + 4 * block(4) + 2 * row);
}

TEST(Benchmark, FillsATieredCacheToAnyDepth) {
  const Artifact twin = test::open_twin("tiny-tied", Scheme::bf16);
  const KvPolicy policy =
      KvPolicy::parse("sink=1:int8,recent=1:int8,mid=1:int8/int4,far=int4/int2").value();
  const BenchmarkCase cases[] = {{BenchmarkKind::prefill, 70, 96, 1},
                                 {BenchmarkKind::decode, 34, 190, 2},
                                 {BenchmarkKind::decode, 2, 0, 3}};
  for (const std::string_view name : {"cpu", "reference"}) {
    auto backend = make_backend(name).value();
    const auto plan = plan_cache(cases, policy, twin.config(), backend->info().max_step_tokens);
    ASSERT_TRUE(plan) << plan.error().message;
    ASSERT_TRUE(backend->load(twin, plan->cache, {.threads = 1}));
    auto benchmark = Benchmark::create(*backend, *plan, 1);
    ASSERT_TRUE(benchmark) << benchmark.error().message;
    for (const BenchmarkCase& what : cases) {
      if (name == "reference" && what.tokens > 2) continue;  // of one thread, and the same ways
      const auto seconds = benchmark->run(what);
      EXPECT_TRUE(seconds) << name << ": " << seconds.error().message;
    }
  }
}

TEST(BenchmarkResult, RatesCountAllSequences) {
  const BenchmarkResult result{
      .what = {BenchmarkKind::decode, 10, 0, 4}, .cost = {}, .seconds = {2, 1, 4}};
  EXPECT_THAT(result.rates(), ::testing::ElementsAre(20, 40, 10));
  EXPECT_EQ(result.median_seconds(), 2);
}

}  // namespace
}  // namespace kipp
