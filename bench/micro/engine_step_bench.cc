// What the engine itself adds to a step: planning, drawing, text, events. The backend does nothing
// and its time is not counted. One iteration of "step" is one step in which N sequences draw a
// token each; one of "logprobs" the log-probabilities of one row and of its N best.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <random>

#include "engine/engine_core.h"
#include "engine/logprobs.h"

namespace kipp {
namespace {

// The same logits for everybody.
class IdleBackend final : public Backend {
 public:
  explicit IdleBackend(int rows) : logits_(static_cast<std::size_t>(rows) * kVocabRows) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 3);
    for (float& logit : logits_) logit = normal(random);
    info_ = {.name = "idle", .max_step_tokens = 512, .max_logit_rows = rows};
  }
  const BackendInfo& info() const override { return info_; }
  Result<void> load(const Artifact&, const KvConfig&, const LoadOptions&) override { return {}; }
  Result<LogitsView> eval(std::span<const EvalItem> items) override {
    return LogitsView{.data = logits_.data(), .rows = static_cast<int>(items.size())};
  }
  void copy_blocks(std::span<const BlockCopy>) override {}
  std::size_t block_bytes() const override { return 1; }
  Result<void> read_block(BlockId, std::span<std::byte>) override { return {}; }
  Result<void> write_block(BlockId, std::span<const std::byte>) override { return {}; }

 private:
  BackendInfo info_;
  std::vector<float> logits_;
};

void step(benchmark::State& state, const SamplingParams& sampling) {
  const auto n = static_cast<int>(state.range(0));
  constexpr int kPositions = 1 << 16;
  IdleBackend backend(n);
  BlockPool pool(n * blocks_for(kPositions));
  const Tokenizer tokenizer;
  auto core = EngineCore::create({.backend = &backend,
                                  .pool = &pool,
                                  .tokenizer = &tokenizer,
                                  .stop_tokens = {},
                                  .context_length = kPositions},
                                 {.max_sequences = n});
  for (int i = 0; i < n; ++i) {
    Request request;
    request.prompt.assign(8, i);
    request.sampling = sampling;
    request.sampling.seed = static_cast<std::uint64_t>(i);
    request.max_tokens = kPositions;
    auto sequence = (*core)->prepare(std::move(request), [](RequestId, const Event&) {});
    if (!sequence) {
      std::fprintf(stderr, "%s\n", sequence.error().message.c_str());
      std::exit(1);
    }
    (*core)->submit(*std::move(sequence));
  }
  (*core)->step();  // the prompts
  const EngineStats before = (*core)->stats();
  for (auto _ : state) benchmark::DoNotOptimize((*core)->step());
  const EngineStats after = (*core)->stats();
  const auto own = (after.step_time - before.step_time) - (after.eval_time - before.eval_time);
  state.counters["us_per_step_without_eval"] =
      seconds(own) * 1e6 / static_cast<double>(after.steps - before.steps);
}

BENCHMARK_CAPTURE(step, greedy, {.temperature = 0, .logit_bias = {}})->Arg(1)->Arg(8);
BENCHMARK_CAPTURE(step, top_k_20_top_p,
                  {.temperature = 0.7f, .top_k = 20, .top_p = 0.8f, .logit_bias = {}})
    ->Arg(1)
    ->Arg(8);
BENCHMARK_CAPTURE(step, all_tokens, {.temperature = 1, .logit_bias = {}})->Arg(1)->Arg(8);

// Rows come from memory, as those of a long step do.
void logprobs(benchmark::State& state) {
  constexpr std::size_t kRows = 64;
  std::vector<float> rows(kRows * kVocabRows);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  for (float& logit : rows) logit = normal(random);
  std::size_t i = 0;
  for (auto _ : state) {
    const auto row = std::span(rows).subspan(i++ % kRows * kVocabRows, kVocabRows);
    benchmark::DoNotOptimize(logprobs_of(row, 5, static_cast<int>(state.range(0))));
  }
}

BENCHMARK(logprobs)->Arg(0)->Arg(5)->Arg(20)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kipp

BENCHMARK_MAIN();
