// Attention of the cpu backend alone, for the query heads of qwen3-0.6b (16), qwen3-8b (32) and
// qwen3-14b (40): decoding one token at a depth, and reading the last positions of a prompt. Keys
// and values rotate through memory far beyond the caches, as those of a step's layers do.
//
//   GB/s, of_read     bytes of cached keys and values per second, and their share of the read
//                     bandwidth
//   GF/s, of_peak     operations per second, and their share of the multiply-add peak
//
// Both yardsticks are measured first in the same run. Figures are of the fastest repetition, since
// a neighbour can only make one slower. --threads=N (all cores), --target=AVX2 forces an
// instruction set; everything else is Google Benchmark's.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <vector>

#include "backend/cpu/paged_attention.h"
#include "base/rng.h"
#include "bench_machine.h"

namespace kipp::cpu {
namespace {

using bench::Machine;
using bench::or_die;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kCacheBytes = std::size_t{512} << 20;

// The last `rows` positions of a sequence over a cache of random keys and values, with as many
// layers as it takes to exceed the CPU's caches.
class Step {
 public:
  Step(ThreadPool& pool, int query_heads, int cached, int rows)
      : config_{.hidden = 1024,
                .layers = 1,
                .query_heads = query_heads,
                .intermediate = 3072,
                .context_length = cached,
                .rope_theta = 1000000,
                .tied = true},
        rows_(rows),
        tokens_(static_cast<std::size_t>(rows), 1),
        blocks_(static_cast<std::size_t>(blocks_for(cached))),
        planner_({.max_step_tokens = rows,
                  .max_logit_rows = 1,
                  .kv_blocks = blocks_for(cached),
                  .context_length = cached}) {
    const int blocks = blocks_for(cached);
    const std::size_t layer_bytes = static_cast<std::size_t>(blocks) * kv_block_bytes(config_, 2);
    config_.layers = static_cast<int>(kCacheBytes / layer_bytes) + 1;
    kv_ = std::make_unique<PagedKv>(or_die(PagedKv::create(config_, {.blocks = blocks})));
    attention_ = or_die(PagedAttention::create(config_, *kv_, pool, rows));
    // BF16 values within [-2, 2], cheaply: only their distribution matters.
    std::uint64_t state = 1;
    for (int b = 0; b < blocks; ++b) {
      const std::span<std::byte> bytes = kv_->block(b);
      auto* pairs = reinterpret_cast<std::uint32_t*>(bytes.data());
      for (std::size_t i = 0; i < bytes.size() / sizeof(*pairs); ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        pairs[i] = static_cast<std::uint32_t>(state >> 32) & 0xbfffbfffu;
      }
    }
    qkv_.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(qkv_cols()));
    ctx_.resize(static_cast<std::size_t>(rows) *
                static_cast<std::size_t>(config_.attention_width()));
    for (std::size_t i = 0; i < qkv_.size(); ++i) {
      qkv_[i] = static_cast<float>(4 * draw_uniform(1, i) - 2);
    }
    std::iota(blocks_.begin(), blocks_.end(), 0);
    const EvalItem item = {.pos = cached - rows, .tokens = tokens_, .blocks = blocks_};
    attention_->begin_step(*or_die(planner_.plan(std::span(&item, 1))));
  }

  void attend() {
    attention_->attend(layer_, {ctx_.data(), rows_, config_.attention_width()},
                       {qkv_.data(), rows_, qkv_cols()});
    layer_ = (layer_ + 1) % config_.layers;
  }

 private:
  int qkv_cols() const { return config_.attention_width() + 2 * kKvWidth; }

  ModelConfig config_;
  int rows_;
  std::vector<Token> tokens_;
  std::vector<BlockId> blocks_;
  StepPlanner planner_;
  std::unique_ptr<PagedKv> kv_;
  std::unique_ptr<PagedAttention> attention_;
  std::vector<float> qkv_, ctx_;
  int layer_ = 0;
};

void run(benchmark::State& state, const Machine& machine, int query_heads, int cached, int rows) {
  Step step(*machine.pool, query_heads, cached, rows);
  double best = 1e9;
  for (auto _ : state) {
    const auto start = Clock::now();
    step.attend();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
  }
  const double bytes = static_cast<double>(cached) * 2 * kKvWidth * 2;
  // A multiply-add per query head, dimension and position seen, for the score and for the value.
  const double seen = rows * (cached - (rows - 1) / 2.0);
  const double flops = seen * query_heads * kHeadDim * 4;
  if (rows == 1) {
    state.counters["GB/s"] = bytes / best * 1e-9;
    state.counters["of_read"] = bytes / best / machine.read_bandwidth;
  }
  state.counters["GF/s"] = flops / best * 1e-9;
  state.counters["of_peak"] = flops / best / machine.multiply_add;
}

void add(const Machine& machine, const char* name, int cached, int rows) {
  for (const int query_heads : {16, 32, 40}) {
    benchmark::RegisterBenchmark(fmt::format("{}/{}/{}_heads", name, cached, query_heads).c_str(),
                                 [&machine, query_heads, cached, rows](benchmark::State& state) {
                                   run(state, machine, query_heads, cached, rows);
                                 })
        ->UseManualTime()
        ->MinTime(0.3);
  }
}

int run_all(int argc, char** argv) {
  const Machine machine = bench::measure_machine(argc, argv);
  for (const int cached : {1024, 4096, 16384}) add(machine, "decode", cached, 1);
  for (const int cached : {512, 4096}) add(machine, "prefill", cached, 512);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace kipp::cpu

int main(int argc, char** argv) { return kipp::cpu::run_all(argc, argv); }
