#include "backend/cpu/tiered_attention.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kipp::cpu {

using kvquant::BitWidth;
using kvquant::Side;

namespace {

constexpr int kChains = 2;  // of values from codes and of values from rows

AttentionPlan::Limits plan_limits(const ModelConfig& config, int kv_blocks, int threads,
                                  int max_step_tokens) {
  return {.query_heads_per_kv_head = config.queries_per_kv_head(),
          .cached = kBlockPositions * std::min(kv_blocks, blocks_for(config.context_length)),
          .max_step_tokens = max_step_tokens,
          .threads = threads,
          .chains = kChains,
          .tiles_end_at_blocks = true};
}

}  // namespace

struct TieredAttention::PerThread {
  TieredScratch scratch;
  CodedQueries coded;
  TileState codes, rows, next_codes, next_rows;
  // Whose queries `coded` holds: parts of one tile and head follow each other.
  int tile = -1, kv_head = -1;

  TieredState total() { return {.codes = codes.view(), .rows = rows.view()}; }
  TieredState next() { return {.codes = next_codes.view(), .rows = next_rows.view()}; }
};

struct TieredAttention::Layer {
  int index;
  const Rows& ctx;
  const Rows& qkv;
};

std::size_t TieredAttention::bytes_needed(const ModelConfig& config, int kv_blocks, int threads) {
  return AttentionPlan::bytes_needed(plan_limits(config, kv_blocks, threads, 0)) +
         static_cast<std::size_t>(threads) * sizeof(PerThread);
}

Result<std::unique_ptr<TieredAttention>> TieredAttention::create(const ModelConfig& config,
                                                                 const TieredKv& kv,
                                                                 ThreadPool& pool,
                                                                 int max_step_tokens) {
  KIPP_TRY_ASSIGN(plan, AttentionPlan::create(
                            plan_limits(config, kv.blocks(), pool.threads(), max_step_tokens)));
  std::unique_ptr<TieredAttention> attention(
      new TieredAttention(config, kv, pool, std::move(plan)));
  attention->per_thread_ =
      std::make_unique_for_overwrite<PerThread[]>(static_cast<std::size_t>(pool.threads()));
  return attention;
}

TieredAttention::TieredAttention(const ModelConfig& config, const TieredKv& kv, ThreadPool& pool,
                                 AttentionPlan plan)
    : heads_(config.queries_per_kv_head()),
      keys_rotated_(kv.policy().scheme().key.hadamard),
      values_rotated_(kv.policy().scheme().value.hadamard),
      kv_(kv),
      pool_(pool),
      plan_(std::move(plan)) {}

TieredAttention::~TieredAttention() = default;

void TieredAttention::begin_step(const StepPlan& step) {
  step_ = &step;
  plan_.begin_step(step);
}

TieredHead TieredAttention::head_at(const Layer& layer, int kv_head, const AttentionTile& tile,
                                    int block) const {
  const BlockId id = step_->table(tile.item)[static_cast<std::size_t>(block)];
  const kvquant::Tier tier = kv_.tier(layer.index, tile.pos / kBlockPositions, block);
  const auto side = [&](Side s) -> TieredSide {
    const BitWidth width = tier.side(s);
    if (width == BitWidth::bf16)
      return {.rows = kv_.rows(s, id, layer.index, kv_head), .codes = {}};
    return {.rows = nullptr, .codes = kv_.codes(s, id, layer.index, kv_head, width)};
  };
  return {.keys = side(Side::key), .values = side(Side::value)};
}

TieredHead TieredAttention::first_of(const Layer& layer, const AttentionPart& part) const {
  const int run = part.run == AttentionPart::kAllRuns ? 0 : part.run;
  return head_at(layer, part.kv_head, plan_.tile(part), run * kRunBlocks);
}

TieredState TieredAttention::state_of_run(const AttentionTile& tile, int kv_head, int run) {
  return {.codes = plan_.state_of_run(tile, kv_head, run, 0),
          .rows = plan_.state_of_run(tile, kv_head, run, 1)};
}

QueryTile TieredAttention::queries_of(const Layer& layer, const AttentionPart& part) const {
  const AttentionTile& tile = plan_.tile(part);
  return {.first = layer.qkv.row(tile.row).data() + part.kv_head * heads_ * kHeadDim,
          .stride = layer.qkv.cols,
          .positions = tile.positions,
          .heads = heads_};
}

void TieredAttention::attend_run_of(const Layer& layer, const AttentionPart& part, int run,
                                    const TieredState& state, const TieredHead& ahead,
                                    PerThread& memory) {
  const AttentionTile& tile = plan_.tile(part);
  const int first = run * kRunBlocks;
  const int n = std::min(kRunBlocks, blocks_for(tile.pos + tile.positions) - first);
  std::array<TieredHead, kRunBlocks> blocks;
  for (int b = 0; b < n; ++b) {
    blocks[static_cast<std::size_t>(b)] = head_at(layer, part.kv_head, tile, first + b);
  }
  const QueryTile queries = queries_of(layer, part);
  if (memory.tile != part.tile || memory.kv_head != part.kv_head) {
    code_queries(memory.coded, queries, keys_rotated_);
    memory.tile = part.tile;
    memory.kv_head = part.kv_head;
  }
  attend_tiered_run(state, queries, memory.coded,
                    std::span(blocks).first(static_cast<std::size_t>(n)),
                    tile.pos + 1 - run * kRunPositions, ahead, memory.scratch);
}

void TieredAttention::merge(const TieredState& state, const TieredState& next, int queries) const {
  merge_run(state.codes, next.codes, queries);
  merge_run(state.rows, next.rows, queries);
}

void TieredAttention::finish(const Layer& layer, const AttentionPart& part,
                             const TieredState& state) const {
  const AttentionTile& tile = plan_.tile(part);
  finish_tiered_attention(layer.ctx.row(tile.row).data() + part.kv_head * heads_ * kHeadDim,
                          layer.ctx.cols, state, tile.positions, heads_, values_rotated_);
}

void TieredAttention::compute(const Layer& layer, const AttentionPart& part,
                              const TieredHead& ahead, PerThread& memory) {
  const AttentionTile& tile = plan_.tile(part);
  if (part.run != AttentionPart::kAllRuns) {
    attend_run_of(layer, part, part.run, state_of_run(tile, part.kv_head, part.run), ahead, memory);
    return;
  }
  const TieredState total = memory.total();
  for (int run = 0; run < tile.runs; ++run) {
    const bool last = run + 1 == tile.runs;
    const TieredHead following =
        last ? ahead : head_at(layer, part.kv_head, tile, (run + 1) * kRunBlocks);
    attend_run_of(layer, part, run, run == 0 ? total : memory.next(), following, memory);
    if (run > 0) merge(total, memory.next(), tile.positions * heads_);
  }
  finish(layer, part, total);
}

void TieredAttention::attend(int index, const Rows& ctx, const Rows& qkv) {
  const Layer layer = {.index = index, .ctx = ctx, .qkv = qkv};
  for (int t = 0; t < pool_.threads(); ++t) per_thread_[static_cast<std::size_t>(t)].tile = -1;
  const auto parts = plan_.parts();
  pool_.parallel_tasks(plan_.shares(), [&](int p, int thread) {
    const auto next = static_cast<std::size_t>(p) + 1;
    const AttentionPart& part = parts[next - 1];
    const TieredHead ahead = first_of(layer, next < parts.size() ? parts[next] : part);
    compute(layer, part, ahead, per_thread_[static_cast<std::size_t>(thread)]);
  });
  const auto joins = plan_.joins();
  pool_.parallel_for(static_cast<int>(joins.size()), [&](int begin, int end, int) {
    for (const AttentionPart& join :
         joins.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin))) {
      const AttentionTile& tile = plan_.tile(join);
      const TieredState total = state_of_run(tile, join.kv_head, 0);
      for (int run = 1; run < tile.runs; ++run) {
        merge(total, state_of_run(tile, join.kv_head, run), tile.positions * heads_);
      }
      finish(layer, join, total);
    }
  });
}

}  // namespace kipp::cpu
