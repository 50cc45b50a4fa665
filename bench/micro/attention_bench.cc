// Attention of the cpu backend alone, for the query heads of qwen3-0.6b (16), qwen3-8b (32) and
// qwen3-14b (40): decoding one token at a depth, and reading the last positions of a prompt. Keys
// and values rotate through memory far beyond the caches, as those of a step's layers do.
//
//   GB/s, of_read     bytes of cached keys and values per second, and their share of the read
//                     bandwidth
//   GF/s, of_peak     operations per second, and their share of the multiply-add peak
//
//   positions/us      cached positions per microsecond, to compare precisions of the cache: BF16,
//                     and the tiers of each preset (backend/kv_policy.h)
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
#include "backend/cpu/tiered_attention.h"
#include "base/rng.h"
#include "bench_machine.h"

namespace kipp::cpu {
namespace {

using bench::Machine;
using bench::or_die;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kCacheBytes = std::size_t{512} << 20;

ModelConfig config_of(int query_heads, int cached) {
  return {.hidden = 1024,
          .layers = 1,
          .query_heads = query_heads,
          .intermediate = 3072,
          .context_length = cached,
          .rope_theta = 1000000,
          .tied = true};
}

class Draw {
 public:
  std::uint32_t operator()() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state_ >> 32);
  }

 private:
  std::uint64_t state_ = 1;
};

// A cache of random keys and values, with as many layers as it takes to exceed the CPU's caches.
// Only their distribution matters: it is drawn cheaply.
struct PagedCache {
  PagedCache(ThreadPool& pool, ModelConfig& config, int rows) {
    const int blocks = blocks_for(config.context_length);
    const std::size_t layer_bytes = static_cast<std::size_t>(blocks) * kv_block_bytes(config, 2);
    config.layers = static_cast<int>(kCacheBytes / layer_bytes) + 1;
    kv = std::make_unique<PagedKv>(
        or_die(PagedKv::create(config, {.blocks = blocks, .policy = {}})));
    Draw draw;
    for (int b = 0; b < blocks; ++b) {
      const std::span<std::byte> bytes = kv->block(b);
      // BF16 values within [-2, 2].
      auto* pairs = reinterpret_cast<std::uint32_t*>(bytes.data());
      for (std::size_t i = 0; i < bytes.size() / sizeof(*pairs); ++i)
        pairs[i] = draw() & 0xbfffbfffu;
    }
    attention = or_die(PagedAttention::create(config, *kv, pool, rows));
  }
  void begin_step(const StepPlan& step) { attention->begin_step(step); }

  std::unique_ptr<PagedKv> kv;
  std::unique_ptr<PagedAttention> attention;
};

struct TieredCache {
  TieredCache(ThreadPool& pool, ModelConfig& config, int rows, const KvPolicy& policy) {
    const int blocks = blocks_for(config.context_length);
    const int first = (config.context_length - rows) / kBlockPositions;  // block of a query
    const auto planes_of = [&](int key) {
      unsigned planes = 0;
      for (int query = std::max(first, key + 1); query < blocks; ++query) {
        planes |= policy.planes_needed(query, key);
      }
      if (key >= first) planes |= policy.planes_needed(key, key);
      return static_cast<PlaneBits>(planes);
    };
    int units = 0;
    for (int b = 0; b < blocks; ++b) units += policy.units(planes_of(b), config);
    config.layers =
        static_cast<int>(kCacheBytes / (static_cast<std::size_t>(units) * kKvUnitBytes)) + 1;
    kv = std::make_unique<TieredKv>(or_die(TieredKv::create(config,
                                                            {.blocks = blocks,
                                                             .store = KvStore::tiered,
                                                             .policy = policy,
                                                             .units = units * config.layers},
                                                            rows)));
    Draw draw;
    std::vector<std::byte> bytes;
    for (BlockId b = 0; b < blocks; ++b) {
      const PlaneChange change = {.block = b, .planes = planes_of(b)};
      kv->hold(std::span(&change, 1));
      bytes.resize(kv->block_bytes(change.planes));
      auto* words = reinterpret_cast<std::uint32_t*>(bytes.data());
      for (std::size_t i = 0; i < bytes.size() / sizeof(*words); ++i)
        words[i] = draw() & 0xbfffbfffu;
      // Scales of 0.0098 and offsets of -1.25, as of normal rows.
      const std::size_t parameters = policy.parameter_bytes(config);
      auto* halves = reinterpret_cast<std::uint16_t*>(bytes.data() + bytes.size() - parameters);
      constexpr std::size_t kPart = std::size_t{kKvHeads} * kBlockPositions;
      for (std::size_t i = 0; i < parameters / 2; ++i) {
        halves[i] = i / kPart % 2 == 0 ? std::uint16_t{0x2100} : std::uint16_t{0xbd00};
      }
      or_die(kv->write(b, bytes).map([] { return true; }));
    }
    attention = or_die(TieredAttention::create(config, *kv, pool, rows));
  }
  void begin_step(const StepPlan& step) {
    or_die(kv->begin_step(step).map([] { return true; }));
    attention->begin_step(step);
  }

  std::unique_ptr<TieredKv> kv;
  std::unique_ptr<TieredAttention> attention;
};

// The last `rows` positions of a sequence over such a cache.
template <class Cache>
class Step {
 public:
  template <class... Policy>
  Step(ThreadPool& pool, int query_heads, int cached, int rows, const Policy&... policy)
      : config_(config_of(query_heads, cached)),
        rows_(rows),
        tokens_(static_cast<std::size_t>(rows), 1),
        blocks_(static_cast<std::size_t>(blocks_for(cached))),
        planner_({.max_step_tokens = rows,
                  .max_logit_rows = 1,
                  .kv_blocks = blocks_for(cached),
                  .context_length = cached}),
        cache_(pool, config_, rows, policy...) {
    qkv_.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(qkv_cols()));
    ctx_.resize(static_cast<std::size_t>(rows) *
                static_cast<std::size_t>(config_.attention_width()));
    for (std::size_t i = 0; i < qkv_.size(); ++i) {
      qkv_[i] = static_cast<float>(4 * draw_uniform(1, i) - 2);
    }
    std::iota(blocks_.begin(), blocks_.end(), 0);
    const EvalItem item = {.pos = cached - rows, .tokens = tokens_, .blocks = blocks_};
    cache_.begin_step(*or_die(planner_.plan(std::span(&item, 1))));
  }

  void attend() {
    cache_.attention->attend(layer_, {ctx_.data(), rows_, config_.attention_width()},
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
  Cache cache_;
  std::vector<float> qkv_, ctx_;
  int layer_ = 0;
};

struct Case {
  std::string preset;
  int query_heads, cached, rows;
};

template <class Cache, class... Policy>
double fastest(benchmark::State& state, const Machine& machine, const Case& c,
               const Policy&... policy) {
  Step<Cache> step(*machine.pool, c.query_heads, c.cached, c.rows, policy...);
  double best = 1e9;
  for (auto _ : state) {
    const auto start = Clock::now();
    step.attend();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
  }
  return best;
}

void run(benchmark::State& state, const Machine& machine, const Case& c) {
  const bool bf16 = c.preset == "bf16";
  const double best =
      bf16 ? fastest<PagedCache>(state, machine, c)
           : fastest<TieredCache>(state, machine, c, or_die(KvPolicy::parse(c.preset)));
  // A multiply-add per query head, dimension and position seen, for the score and for the value.
  const double seen = c.rows * (c.cached - (c.rows - 1) / 2.0);
  const double flops = seen * c.query_heads * kHeadDim * 4;
  if (bf16 && c.rows == 1) {
    const double bytes = static_cast<double>(c.cached) * 2 * kKvWidth * 2;
    state.counters["GB/s"] = bytes / best * 1e-9;
    state.counters["of_read"] = bytes / best / machine.read_bandwidth;
  }
  state.counters["positions/us"] = seen / best * 1e-6;
  state.counters["GF/s"] = flops / best * 1e-9;
  state.counters["of_peak"] = flops / best / machine.multiply_add;
}

void add(const Machine& machine, const char* name, int cached, int rows) {
  for (const int query_heads : {16, 32, 40}) {
    for (const std::string_view preset : KvPolicy::preset_names()) {
      const Case c = {std::string(preset), query_heads, cached, rows};
      benchmark::RegisterBenchmark(
          fmt::format("{}/{}/{}_heads/{}", name, cached, query_heads, preset).c_str(),
          [&machine, c](benchmark::State& state) { run(state, machine, c); })
          ->UseManualTime()
          ->MinTime(0.3);
    }
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
