// How fast a backend computes: prefill and decode at any depth of context, for one sequence or for
// many, with the bytes and operations that no engine can avoid, so that a speed can be named as a
// share of what the machine can do.
//
// Measured at the seam (Backend::eval, logits of the last row included). What the engine adds above
// it is another benchmark's subject (bench/micro/engine_step_bench.cc).
//
// Context is not computed but written: every block gets seeded random keys and values of ordinary
// size through Backend::write_block, because attention takes the same time whatever they are, and
// computing 16k positions would take longer than everything that is measured. Tokens are random
// too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/types.h"
#include "engine/kv_plan.h"
#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "model/artifact.h"

namespace kipp {

enum class BenchmarkKind : std::uint8_t { prefill, decode };

std::string_view to_string(BenchmarkKind kind);

// One thing to measure. Prefill reads `tokens` after `depth` cached positions in the largest steps
// the backend takes; decode continues each of `batch` sequences, which share nothing, by `tokens`
// steps of one token.
struct BenchmarkCase {
  BenchmarkKind kind = BenchmarkKind::decode;
  int tokens = 0;  // of each sequence
  int depth = 0;   // positions in the cache before the first of them
  int batch = 1;

  int positions() const { return depth + tokens; }  // of each sequence
  int blocks() const { return batch * blocks_for(positions()); }

  friend bool operator==(const BenchmarkCase&, const BenchmarkCase&) = default;
};

// What one repetition has to do at the least.
struct BenchmarkCost {
  double bytes = 0;  // read: the weights of every step, and what is cached of every sequence
  double flops = 0;  // two for a multiply-add, of projections, head and attention
};

// What the costs depend on.
struct ModelCost {
  double layer_bytes = 0;      // projections and norms of all layers, as the artifact stores them
  double head_bytes = 0;       // read by steps that return logits
  double kv_bytes = 0;         // of one cached position, in BF16
  double layer_weights = 0;    // values of all projections
  double head_weights = 0;     // values of the head
  double attention_width = 0;  // of all layers together
  // Where keys and values are not BF16 throughout, bytes that a query reads of a block so many
  // blocks before its own; the last one's stands for all farther ones. Sinks, a block, are left
  // out.
  std::vector<double> block_bytes_by_distance = {};

  // What a query at the end of so many cached positions reads of one sequence.
  double cached_bytes(int positions) const;
  double decode_bytes() const { return layer_bytes + head_bytes; }  // of weights, per step
};

ModelCost model_cost(const Artifact& artifact, const KvPolicy& policy = {});
BenchmarkCost cost_of(const BenchmarkCase& what, const ModelCost& model, int max_step_tokens);

// Refuses a case whose cache does not fit into `available` bytes of memory (0: not known,
// accepted). What else a backend needs is checked when it loads.
Result<void> check_cache(const BenchmarkCase& what, const Checkpoint& checkpoint,
                         std::size_t available);

// Room for each of the cases.
Result<KvPlan> plan_cache(std::span<const BenchmarkCase> cases, const KvPolicy& policy,
                          const ModelConfig& config, int max_step_tokens);

struct BenchmarkResult {
  BenchmarkCase what;
  BenchmarkCost cost;
  std::vector<double> seconds;  // of every repetition

  // Tokens of all sequences per second.
  std::vector<double> rates() const;
  double median_seconds() const;
};

class Benchmark {
 public:
  // Over a loaded backend with `blocks` blocks, all of which it overwrites.
  static Result<Benchmark> create(Backend& backend, int blocks, std::uint64_t seed);
  // The same over what a backend was loaded with. A tiered cache is filled before every repetition
  // with the planes that a sequence of that depth holds, untimed.
  static Result<Benchmark> create(Backend& backend, const KvPlan& plan, std::uint64_t seed);

  // One repetition, in seconds. The first one after create() should not count: it touches memory
  // for the first time. `cancel` set to true stops before the next step with
  // ErrorCode::interrupted.
  Result<double> run(const BenchmarkCase& what, const std::atomic<bool>* cancel = nullptr);

 private:
  Benchmark(Backend& backend, int blocks, std::uint64_t seed)
      : backend_(&backend), blocks_(blocks), seed_(seed) {}

  Result<void> fill();
  Result<void> settle(BlockId block);
  Result<void> check(const BenchmarkCase& what) const;
  Result<std::vector<BlockTable>> restored(const BenchmarkCase& what);
  Result<void> write_planes(BlockId block, PlaneBits planes, std::uint64_t& draw);

  Backend* backend_;
  std::unique_ptr<BlockPool> pool_;  // of a tiered cache
  int blocks_;
  std::uint64_t seed_;
};

}  // namespace kipp
