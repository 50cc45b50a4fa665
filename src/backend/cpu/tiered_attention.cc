#include "backend/cpu/tiered_attention.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kipp::cpu {

using kvquant::BitWidth;
using kvquant::Side;

namespace {

constexpr int kChains = 2;  // of values from codes and of values from rows
constexpr int kNone = -1;

AttentionPlan::Limits plan_limits(const ModelConfig& config, int kv_blocks, int threads,
                                  int max_step_tokens) {
  return {.query_heads_per_kv_head = config.queries_per_kv_head(),
          .cached = kBlockPositions * std::min(kv_blocks, blocks_for(config.context_length)),
          .max_step_tokens = max_step_tokens,
          .threads = threads,
          .chains = kChains,
          .runs_before_heads = true,
          .tiles_end_at_blocks = true};
}

}  // namespace

struct TieredAttention::PerThread {
  TieredScratch scratch;
  CodedQueries coded[kKvHeads];
  int tile_of_coded[kKvHeads];  // whose queries they are, or kNone
  TileState codes, rows, next_codes, next_rows;

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

TieredAttention::Ahead TieredAttention::ahead_of(const Layer& layer, const AttentionPart& part,
                                                 int run) const {
  static_assert(kRunBlocks == kKvHeads);
  const AttentionTile& tile = plan_.tile(part);
  const int last = (tile.pos + tile.positions - 1) / kBlockPositions;
  const bool all_heads = part.run != AttentionPart::kAllRuns;
  Ahead ahead;
  for (int i = 0; i < kRunBlocks; ++i) {
    const int head = all_heads ? i : part.kv_head;
    const int block = run * kRunBlocks + (all_heads ? part.kv_head : i);
    ahead[static_cast<std::size_t>(i)] = head_at(layer, head, tile, std::min(block, last));
  }
  return ahead;
}

TieredAttention::Ahead TieredAttention::ahead_of_part(const Layer& layer, std::size_t index) const {
  const auto parts = plan_.parts();
  AttentionPart part = parts[index];
  const bool all_heads = part.run != AttentionPart::kAllRuns;
  const std::size_t next = index + static_cast<std::size_t>(all_heads ? kKvHeads : 1);
  if (next < parts.size()) part = parts[next];
  return ahead_of(layer, part, std::max(part.run, 0));
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
                                    const TieredState& state, const Ahead& ahead,
                                    PerThread& memory) {
  const AttentionTile& tile = plan_.tile(part);
  const int first = run * kRunBlocks;
  const int n = std::min(kRunBlocks, blocks_for(tile.pos + tile.positions) - first);
  std::array<TieredHead, kRunBlocks> blocks;
  for (int b = 0; b < n; ++b) {
    blocks[static_cast<std::size_t>(b)] = head_at(layer, part.kv_head, tile, first + b);
  }
  const QueryTile queries = queries_of(layer, part);
  if (memory.tile_of_coded[part.kv_head] != part.tile) {
    code_queries(memory.coded[part.kv_head], queries, keys_rotated_);
    memory.tile_of_coded[part.kv_head] = part.tile;
  }
  attend_tiered_run(state, queries, memory.coded[part.kv_head],
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

void TieredAttention::compute(const Layer& layer, const AttentionPart& part, const Ahead& ahead,
                              PerThread& memory) {
  const AttentionTile& tile = plan_.tile(part);
  if (part.run != AttentionPart::kAllRuns) {
    attend_run_of(layer, part, part.run, state_of_run(tile, part.kv_head, part.run), ahead, memory);
    return;
  }
  const TieredState total = memory.total();
  for (int run = 0; run < tile.runs; ++run) {
    const bool last = run + 1 == tile.runs;
    const Ahead following = last ? ahead : ahead_of(layer, part, run + 1);
    attend_run_of(layer, part, run, run == 0 ? total : memory.next(), following, memory);
    if (run > 0) merge(total, memory.next(), tile.positions * heads_);
  }
  finish(layer, part, total);
}

void TieredAttention::attend(int layer_index, const Rows& ctx, const Rows& qkv) {
  const Layer layer = {.index = layer_index, .ctx = ctx, .qkv = qkv};
  for (int t = 0; t < pool_.threads(); ++t) {
    std::ranges::fill(per_thread_[static_cast<std::size_t>(t)].tile_of_coded, kNone);
  }
  const auto parts = plan_.parts();
  pool_.parallel_tasks(plan_.shares(), [&](int p, int thread) {
    const auto index = static_cast<std::size_t>(p);
    compute(layer, parts[index], ahead_of_part(layer, index),
            per_thread_[static_cast<std::size_t>(thread)]);
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
