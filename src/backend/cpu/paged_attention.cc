#include "backend/cpu/paged_attention.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace kipp::cpu {

namespace {

// Rows whose runs can be kept apart at the full depth of the cache, and more at less: enough for
// every thread of a large machine, since steps of more rows have tiles enough to share.
constexpr int kSplitRows = 8;
// A part should be no more than this share of a thread's work, or the others wait for it.
constexpr int kPartsPerThread = 4;
// Reading a key and its value and turning the key costs about what three queries cost to use them
// (Zen 4, 2026-11-30: 2.7 us a run of 256 positions, and 0.9 to 1.3 us for each query).
constexpr std::int64_t kReadCost = 3;

constexpr std::size_t kLineFloats = 16;

constexpr std::size_t state_floats_of(int queries) {
  const auto n = static_cast<std::size_t>(queries);
  return n * kHeadDim + (2 * n + kLineFloats - 1) / kLineFloats * kLineFloats;
}

std::size_t split_floats(const ModelConfig& config, int kv_blocks) {
  const int cached = kBlockPositions * std::min(kv_blocks, blocks_for(config.context_length));
  return static_cast<std::size_t>(kSplitRows) * static_cast<std::size_t>(runs_for(cached)) *
         kKvHeads * state_floats_of(config.queries_per_kv_head());
}

struct alignas(64) TileState {
  float out[kTileQueries * kHeadDim];
  float greatest[kTileQueries];
  float sum[kTileQueries];

  AttentionState view() { return {.out = out, .greatest = greatest, .sum = sum}; }
};

}  // namespace

struct PagedAttention::PerThread {
  AttentionScratch scratch;
  TileState total, next;
};

std::size_t PagedAttention::bytes_needed(const ModelConfig& config, int kv_blocks, int threads) {
  return split_floats(config, kv_blocks) * sizeof(float) +
         static_cast<std::size_t>(threads) * sizeof(PerThread);
}

Result<std::unique_ptr<PagedAttention>> PagedAttention::create(const ModelConfig& config,
                                                               PagedKv& kv, ThreadPool& pool,
                                                               int max_step_tokens) {
  std::unique_ptr<PagedAttention> attention(new PagedAttention(config, kv, pool));
  const std::size_t floats = split_floats(config, kv.blocks());
  KIPP_TRY_ASSIGN(states, HugeBuffer::create(floats * sizeof(float)));
  attention->states_ = std::move(states);
  const auto threads = static_cast<std::size_t>(pool.threads());
  attention->per_thread_ = std::make_unique_for_overwrite<PerThread[]>(threads);
  const auto rows = static_cast<std::size_t>(max_step_tokens);
  const std::size_t split_parts = floats / state_floats_of(config.queries_per_kv_head());
  attention->tiles_.reserve(rows);
  attention->parts_.reserve(rows * kKvHeads + split_parts);
  attention->joins_.reserve(split_parts);
  attention->share_begin_.resize(threads + 1);
  return attention;
}

PagedAttention::PagedAttention(const ModelConfig& config, PagedKv& kv, ThreadPool& pool)
    : heads_(config.queries_per_kv_head()), kv_(kv), pool_(pool) {
  assert(heads_ <= kTileQueries);
}

PagedAttention::~PagedAttention() = default;

void PagedAttention::begin_step(const StepPlan& step) {
  step_ = &step;
  cut_into_tiles(step);
  cut_into_parts();
  share_parts();
}

void PagedAttention::cut_into_tiles(const StepPlan& step) {
  const int most = kTileQueries / heads_;
  tiles_.clear();
  for (int row = 0, n; row < step.rows(); row += n) {
    const auto at = static_cast<std::size_t>(row);
    const int item = step.item_of_row[at];
    n = 1;
    while (n < most && row + n < step.rows() &&
           step.item_of_row[static_cast<std::size_t>(row + n)] == item) {
      ++n;
    }
    const int pos = step.positions[at];
    tiles_.push_back(
        {.item = item, .row = row, .pos = pos, .positions = n, .runs = runs_for(pos + n)});
  }
}

std::int64_t PagedAttention::cost(const Tile& tile, int run) const {
  const int end = tile.pos + tile.positions;
  const int positions =
      run == Part::kAllRuns ? end : std::min(end - run * kRunPositions, kRunPositions);
  return static_cast<std::int64_t>(positions) * (kReadCost + tile.positions * heads_);
}

std::size_t PagedAttention::state_floats(const Tile& tile) const {
  return state_floats_of(tile.positions * heads_);
}

void PagedAttention::cut_into_parts() {
  std::int64_t total = 0;
  for (const Tile& tile : tiles_) total += kKvHeads * cost(tile, Part::kAllRuns);
  const std::int64_t large = total / (kPartsPerThread * pool_.threads());
  std::size_t states = 0;
  parts_.clear();
  joins_.clear();
  for (int t = 0; t < static_cast<int>(tiles_.size()); ++t) {
    Tile& tile = tiles_[static_cast<std::size_t>(t)];
    const std::size_t wanted = state_floats(tile) * kKvHeads * static_cast<std::size_t>(tile.runs);
    const bool split = pool_.threads() > 1 && tile.runs > 1 && cost(tile, Part::kAllRuns) > large &&
                       (states + wanted) * sizeof(float) <= states_.bytes().size();
    if (split) {
      tile.states = static_cast<std::ptrdiff_t>(states);
      states += wanted;
    }
    for (int g = 0; g < kKvHeads; ++g) {
      if (!split) {
        parts_.push_back({.tile = t, .kv_head = g, .run = Part::kAllRuns});
        continue;
      }
      for (int run = 0; run < tile.runs; ++run) {
        parts_.push_back({.tile = t, .kv_head = g, .run = run});
      }
      joins_.push_back({.tile = t, .kv_head = g, .run = Part::kAllRuns});
    }
  }
}

// Consecutive parts of about the same cost for each thread.
void PagedAttention::share_parts() {
  const auto cost_of = [&](const Part& part) {
    return cost(tiles_[static_cast<std::size_t>(part.tile)], part.run);
  };
  std::int64_t total = 0;
  for (const Part& part : parts_) total += cost_of(part);
  const int threads = pool_.threads();
  std::int64_t before = 0;
  int thread = 0;
  for (int p = 0; p < static_cast<int>(parts_.size()); ++p) {
    // A part belongs to the thread in whose share its middle lies.
    const std::int64_t own = cost_of(parts_[static_cast<std::size_t>(p)]);
    const std::int64_t middle = before + own / 2;
    while (middle * threads >= total * thread) share_begin_[static_cast<std::size_t>(thread++)] = p;
    before += own;
  }
  while (thread <= threads) {
    share_begin_[static_cast<std::size_t>(thread++)] = static_cast<int>(parts_.size());
  }
}

AttentionState PagedAttention::state_of_run(const Tile& tile, int kv_head, int run) {
  const auto index = static_cast<std::size_t>(kv_head * tile.runs + run);
  float* at =
      reinterpret_cast<float*>(states_.bytes().data()) + tile.states + state_floats(tile) * index;
  const int queries = tile.positions * heads_;
  float* greatest = at + queries * kHeadDim;
  return {.out = at, .greatest = greatest, .sum = greatest + queries};
}

KvHead PagedAttention::kv_head_at(int layer, int kv_head, const Tile& tile, int block) {
  const BlockId id = step_->table(tile.item)[static_cast<std::size_t>(block)];
  const auto bytes = [](auto* at) { return reinterpret_cast<const std::byte*>(at); };
  if (kv_.store() == KvStore::bf16) {
    return {.keys = bytes(kv_.keys<std::uint16_t>(id, layer, kv_head)),
            .values = bytes(kv_.values<std::uint16_t>(id, layer, kv_head))};
  }
  return {.keys = bytes(kv_.keys<float>(id, layer, kv_head)),
          .values = bytes(kv_.values<float>(id, layer, kv_head))};
}

KvHead PagedAttention::first_of(int layer, const Part& part) {
  const int run = part.run == Part::kAllRuns ? 0 : part.run;
  return kv_head_at(layer, part.kv_head, tiles_[static_cast<std::size_t>(part.tile)],
                    run * kRunBlocks);
}

void PagedAttention::attend_run_of(const Part& part, int run, int layer, const Rows& qkv,
                                   const AttentionState& state, const KvHead& ahead,
                                   AttentionScratch& scratch) {
  const Tile& tile = tiles_[static_cast<std::size_t>(part.tile)];
  const int first = run * kRunBlocks;
  const int n = std::min(kRunBlocks, blocks_for(tile.pos + tile.positions) - first);
  std::array<KvHead, kRunBlocks> blocks;
  for (int b = 0; b < n; ++b) {
    blocks[static_cast<std::size_t>(b)] = kv_head_at(layer, part.kv_head, tile, first + b);
  }
  const QueryTile queries = {.first = qkv.row(tile.row).data() + part.kv_head * heads_ * kHeadDim,
                             .stride = qkv.cols,
                             .positions = tile.positions,
                             .heads = heads_};
  attend_run(state, queries, kv_.store(), std::span(blocks).first(static_cast<std::size_t>(n)),
             tile.pos + 1 - run * kRunPositions, ahead, scratch);
}

void PagedAttention::finish(const Tile& tile, int kv_head, const AttentionState& state,
                            const Rows& ctx) const {
  finish_attention(ctx.row(tile.row).data() + kv_head * heads_ * kHeadDim, ctx.cols, state,
                   tile.positions, heads_);
}

void PagedAttention::compute(const Part& part, int layer, const Rows& ctx, const Rows& qkv,
                             const KvHead& ahead, PerThread& memory) {
  const Tile& tile = tiles_[static_cast<std::size_t>(part.tile)];
  if (part.run != Part::kAllRuns) {
    attend_run_of(part, part.run, layer, qkv, state_of_run(tile, part.kv_head, part.run), ahead,
                  memory.scratch);
    return;
  }
  const AttentionState total = memory.total.view();
  const AttentionState next = memory.next.view();
  for (int run = 0; run < tile.runs; ++run) {
    const bool last = run + 1 == tile.runs;
    const KvHead following =
        last ? ahead : kv_head_at(layer, part.kv_head, tile, (run + 1) * kRunBlocks);
    attend_run_of(part, run, layer, qkv, run == 0 ? total : next, following, memory.scratch);
    if (run > 0) merge_run(total, next, tile.positions * heads_);
  }
  finish(tile, part.kv_head, total, ctx);
}

void PagedAttention::attend(int layer, const Rows& ctx, const Rows& qkv) {
  pool_.parallel_tasks(share_begin_, [&](int p, int thread) {
    const auto next = static_cast<std::size_t>(p) + 1;
    const Part& part = parts_[next - 1];
    const KvHead ahead = first_of(layer, next < parts_.size() ? parts_[next] : part);
    compute(part, layer, ctx, qkv, ahead, per_thread_[static_cast<std::size_t>(thread)]);
  });
  pool_.parallel_for(static_cast<int>(joins_.size()), [&](int begin, int end, int) {
    for (int j = begin; j < end; ++j) {
      const Part& join = joins_[static_cast<std::size_t>(j)];
      const Tile& tile = tiles_[static_cast<std::size_t>(join.tile)];
      const AttentionState total = state_of_run(tile, join.kv_head, 0);
      for (int run = 1; run < tile.runs; ++run) {
        merge_run(total, state_of_run(tile, join.kv_head, run), tile.positions * heads_);
      }
      finish(tile, join.kv_head, total, ctx);
    }
  });
}

}  // namespace kipp::cpu
