#include "engine/benchmark.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>

#include "base/rng.h"
#include "base/statistics.h"
#include "model/memory.h"
#include "model/weights.h"

namespace kipp {
namespace {

// BF16 of random sign and a magnitude from 0.25 to 1: 0x3e80 is 0.25, and the next 255 patterns
// lead to just below 1. Nothing denormal, nothing that overflows a score.
std::uint64_t four_bf16(std::uint64_t random) {
  constexpr std::uint64_t kSignAndLowByte = 0x80ff80ff80ff80ffull;
  constexpr std::uint64_t kQuarter = 0x3e803e803e803e80ull;
  return (random & kSignAndLowByte) + kQuarter;
}

// Pairs of FP16 scales and offsets: 0x1c00 is 1 / 256, and the next 255 patterns lead to a quarter
// more, so that codes of 8 bits stand for up to about one.
std::uint64_t four_fp16(std::uint64_t random) {
  constexpr std::uint64_t kLowByte = 0x00ff00ff00ff00ffull;
  constexpr std::uint64_t kSmall = 0x1c001c001c001c00ull;
  return (random & kLowByte) + kSmall;
}

// Bytes read of a block at each distance from 1 on, until the far band begins.
std::vector<double> bytes_by_distance(const KvPolicy& policy, const ModelConfig& config) {
  const kvquant::TieredKvPolicy& tiers = policy.tiers(LayerGroup::common);
  const int far = tiers.recent_blocks + tiers.mid_width() + 1;
  std::vector<double> bytes;
  for (int distance = 1; distance <= far; ++distance) {
    const int query = tiers.sink_blocks + distance;
    const int units = policy.units(policy.planes_needed(query, tiers.sink_blocks), config);
    bytes.push_back(static_cast<double>(units) * kKvUnitBytes +
                    static_cast<double>(policy.parameter_bytes(config)));
  }
  return bytes;
}

// One sequence of a case: its next position, its blocks, and where its tokens come from.
struct BenchmarkSequence {
  std::vector<Token> tokens;
  std::vector<BlockId> blocks;
};

std::vector<BenchmarkSequence> make_sequences(const BenchmarkCase& what, std::uint64_t seed) {
  std::vector<BenchmarkSequence> sequences(static_cast<std::size_t>(what.batch));
  BlockId next_block = 0;
  std::uint64_t draw = 0;
  for (BenchmarkSequence& sequence : sequences) {
    sequence.tokens.resize(static_cast<std::size_t>(what.tokens));
    for (Token& token : sequence.tokens) {
      token = static_cast<Token>(draw_bits(seed, draw++) % kNamedTokens);
    }
    sequence.blocks.resize(static_cast<std::size_t>(blocks_for(what.positions())));
    for (BlockId& block : sequence.blocks) block = next_block++;
  }
  return sequences;
}

}  // namespace

std::string_view to_string(BenchmarkKind kind) {
  return kind == BenchmarkKind::prefill ? "prefill" : "decode";
}

double ModelCost::cached_bytes(int positions) const {
  if (block_bytes_by_distance.empty()) return kv_bytes * positions;
  const int blocks = (positions - 1) / kBlockPositions;  // before the query's own
  double bytes = kv_bytes * (positions - blocks * kBlockPositions);
  for (int distance = 1; distance <= blocks; ++distance) {
    const auto i = std::min(static_cast<std::size_t>(distance), block_bytes_by_distance.size());
    bytes += block_bytes_by_distance[i - 1];
  }
  return bytes;
}

ModelCost model_cost(const Artifact& artifact, const KvPolicy& policy) {
  const ModelConfig& config = artifact.config();
  ModelCost cost;
  for (const StoredTensor& tensor : artifact.tensors()) {
    const auto bytes = static_cast<double>(tensor.data.size());
    const double values = static_cast<double>(tensor.spec.rows) * tensor.spec.cols;
    switch (tensor.spec.role) {
      case TensorRole::norm:
        cost.layer_bytes += bytes;
        break;
      case TensorRole::projection:
        cost.layer_bytes += bytes;
        cost.layer_weights += values;
        break;
      case TensorRole::embedding:
        if (!config.tied) break;  // a step reads single rows of it
        [[fallthrough]];
      case TensorRole::head:
        cost.head_bytes += bytes;
        cost.head_weights += values;
        break;
    }
  }
  cost.kv_bytes = static_cast<double>(kv_block_bytes(config, 2)) / kBlockPositions;
  cost.attention_width = static_cast<double>(config.layers) * config.attention_width();
  if (!policy.all_bf16()) cost.block_bytes_by_distance = bytes_by_distance(policy, config);
  return cost;
}

BenchmarkCost cost_of(const BenchmarkCase& what, const ModelCost& model, int max_step_tokens) {
  const bool decode = what.kind == BenchmarkKind::decode;
  const int chunk = decode ? 1 : max_step_tokens;
  BenchmarkCost cost;
  for (int done = 0; done < what.tokens;) {
    const int n = std::min(chunk, what.tokens - done);
    const int pos = what.depth + done;
    done += n;
    const bool logits = decode || done == what.tokens;
    cost.bytes += model.layer_bytes + (logits ? model.head_bytes : 0);
    cost.bytes += what.batch * model.cached_bytes(pos + n);
    // A query at position p meets p + 1 keys and as many values: two multiply-adds for each
    // element.
    const double pairs = static_cast<double>(n) * pos + static_cast<double>(n) * (n + 1) / 2;
    cost.flops += what.batch * (2 * model.layer_weights * n + 4 * model.attention_width * pairs +
                                (logits ? 2 * model.head_weights : 0));
  }
  return cost;
}

Result<void> check_cache(const BenchmarkCase& what, const Checkpoint& checkpoint,
                         std::size_t available) {
  const std::size_t bytes =
      static_cast<std::size_t>(what.blocks()) * kv_block_bytes(checkpoint.config, 2);
  if (available == 0 || bytes <= available) return {};
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  return fail(ErrorCode::exhausted,
              "memory: {:.1f} GiB of KV cache needed for {} x {} positions of {}, {:.1f} GiB "
              "available; ask for a smaller --depth or --batch",
              static_cast<double>(bytes) / kGib, what.batch, what.positions(), checkpoint.id,
              static_cast<double>(available) / kGib);
}

Result<KvPlan> plan_cache(std::span<const BenchmarkCase> cases, const KvPolicy& policy,
                          const ModelConfig& config, int max_step_tokens) {
  KvPlan all;
  for (const BenchmarkCase& what : cases) {
    KIPP_TRY_ASSIGN(plan, plan_kv(policy, KvStore::bf16, config, max_step_tokens,
                                  {.blocks = what.blocks(), .sequences = what.batch}));
    const int blocks = std::max(all.cache.blocks, plan.cache.blocks);
    const int units = std::max(all.cache.units, plan.cache.units);
    all = plan;
    all.cache.blocks = blocks;
    all.cache.units = units;
    if (all.cache.store == KvStore::tiered) all.planes.total_units = units;
  }
  return all;
}

std::vector<double> BenchmarkResult::rates() const {
  std::vector<double> rates;
  for (const double s : seconds) {
    rates.push_back(static_cast<double>(what.batch) * what.tokens / s);
  }
  return rates;
}

double BenchmarkResult::median_seconds() const { return median(seconds); }

Result<Benchmark> Benchmark::create(Backend& backend, int blocks, std::uint64_t seed) {
  Benchmark benchmark(backend, blocks, seed);
  KIPP_TRY(benchmark.fill());
  return benchmark;
}

Result<Benchmark> Benchmark::create(Backend& backend, const KvPlan& plan, std::uint64_t seed) {
  if (plan.cache.store != KvStore::tiered) return create(backend, plan.cache.blocks, seed);
  Benchmark benchmark(backend, plan.cache.blocks, seed);
  benchmark.pool_ = std::make_unique<BlockPool>(plan.cache.blocks, plan.planes);
  return benchmark;
}

// The planes in the order of their bits, then scales and offsets, as TieredKv stores them.
Result<void> Benchmark::write_planes(BlockId block, PlaneBits planes, std::uint64_t& draw) {
  std::vector<std::uint64_t> words(backend_->block_bytes(planes) / sizeof(std::uint64_t));
  auto at = words.begin();
  for (int bit = 0; bit < kMaxPlanes; ++bit) {
    if ((planes >> bit & 1) == 0) continue;
    const bool rows = bit % kvquant::kPlanes == static_cast<int>(kvquant::Plane::bf16);
    const auto bytes =
        static_cast<std::size_t>(pool_->plan().units[static_cast<std::size_t>(bit)]) * kKvUnitBytes;
    for (std::size_t i = 0; i < bytes / sizeof(std::uint64_t); ++i, ++at) {
      const std::uint64_t random = draw_bits(~seed_, draw++);
      *at = rows ? four_bf16(random) : random;
    }
  }
  for (; at != words.end(); ++at) *at = four_fp16(draw_bits(~seed_, draw++));
  return backend_->write_block(block, std::as_bytes(std::span(words)));
}

// Of every sequence, what it has cached. Nobody's blocks are published: they share nothing.
Result<std::vector<BlockTable>> Benchmark::restored(const BenchmarkCase& what) {
  std::vector<BlockTable> tables;
  std::uint64_t draw = 0;
  for (int i = 0; i < what.batch; ++i) {
    auto table = BlockTable::insure(*pool_, what.positions());
    if (!table) {
      return fail(ErrorCode::exhausted, "KV cache: expected room for {} sequences, found it for {}",
                  what.batch, i);
    }
    for (int b = 0; b < blocks_for(what.depth); ++b) {
      const PlaneBits planes = pool_->plan().at_rest(what.depth, b);
      const BlockId block = table->grow_restored(what.depth, planes);
      hand_over_planes(*pool_, *backend_);
      KIPP_TRY(write_planes(block, planes, draw));
    }
    tables.push_back(*std::move(table));
  }
  if (what.depth > 0 && what.batch > 0) KIPP_TRY(settle(tables.back().covering(1).front()));
  return tables;
}

Result<void> Benchmark::fill() {
  std::vector<std::uint64_t> block(backend_->block_bytes() / sizeof(std::uint64_t));
  std::uint64_t draw = 0;
  for (BlockId id = 0; id < blocks_; ++id) {
    for (std::uint64_t& word : block) word = four_bf16(draw_bits(~seed_, draw++));
    KIPP_TRY(backend_->write_block(id, std::as_bytes(std::span(block))));
  }
  return settle(0);
}

// A device may still be writing what it was given, and would go on in the time of the first step:
// its answer to a read comes after that.
Result<void> Benchmark::settle(BlockId block) {
  std::vector<std::byte> bytes(pool_ != nullptr ? backend_->block_bytes(pool_->held(block))
                                                : backend_->block_bytes());
  return backend_->read_block(block, bytes);
}

Result<void> Benchmark::check(const BenchmarkCase& what) const {
  const BackendInfo& info = backend_->info();
  const int most = std::min(info.max_step_tokens, info.max_logit_rows);
  if (what.batch < 1 || what.batch > most) {
    return fail(ErrorCode::invalid, "batch: expected 1 to {} sequences on {}, found {}", most,
                info.name, what.batch);
  }
  if (what.kind == BenchmarkKind::prefill && what.batch != 1) {
    return fail(ErrorCode::invalid, "batch: expected 1 sequence of prefill, found {}", what.batch);
  }
  if (what.tokens < 1) {
    return fail(ErrorCode::invalid, "tokens: expected at least 1, found {}", what.tokens);
  }
  if (what.blocks() > blocks_) {
    return fail(ErrorCode::invalid,
                "blocks: expected at most {}, found {} sequences of {} positions", blocks_,
                what.batch, what.positions());
  }
  return {};
}

Result<double> Benchmark::run(const BenchmarkCase& what, const std::atomic<bool>* cancel) {
  KIPP_TRY(check(what));
  const auto sequences = make_sequences(what, seed_);
  std::vector<EvalItem> items(sequences.size());
  std::vector<BlockTable> tables;
  if (pool_ != nullptr) {
    KIPP_TRY_ASSIGN(filled, restored(what));
    tables = std::move(filled);
  }
  const int chunk = what.kind == BenchmarkKind::decode ? 1 : backend_->info().max_step_tokens;
  const auto start = std::chrono::steady_clock::now();
  for (int done = 0; done < what.tokens;) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      return fail(ErrorCode::interrupted, "benchmark: interrupted");
    }
    const int n = std::min(chunk, what.tokens - done);
    const bool logits = what.kind == BenchmarkKind::decode || done + n == what.tokens;
    const int begin = what.depth + done, end = begin + n;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (pool_ != nullptr) tables[i].grow(begin, end);
      items[i] = {
          .seq = static_cast<SeqId>(i),
          .pos = begin,
          .tokens = std::span(sequences[i].tokens)
                        .subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(n)),
          .blocks = pool_ != nullptr ? tables[i].covering(end)
                                     : std::span<const BlockId>(sequences[i].blocks)
                                           .first(static_cast<std::size_t>(blocks_for(end))),
          .want = logits ? LogitRows::last : LogitRows::none};
    }
    if (pool_ != nullptr) hand_over_planes(*pool_, *backend_);
    KIPP_TRY(backend_->eval(items));
    for (BlockTable& table : tables) table.advance(end);
    done += n;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return took.count();
}

}  // namespace kipp
