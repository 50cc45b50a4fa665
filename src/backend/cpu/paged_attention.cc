#include "backend/cpu/paged_attention.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kipp::cpu {

namespace {

AttentionPlan::Limits plan_limits(const ModelConfig& config, int kv_blocks, int threads,
                                  int max_step_tokens) {
  return {.query_heads_per_kv_head = config.queries_per_kv_head(),
          .cached = kBlockPositions * std::min(kv_blocks, blocks_for(config.context_length)),
          .max_step_tokens = max_step_tokens,
          .threads = threads};
}

}  // namespace

struct PagedAttention::PerThread {
  AttentionScratch scratch;
  TileState total, next;
};

std::size_t PagedAttention::bytes_needed(const ModelConfig& config, int kv_blocks, int threads) {
  return AttentionPlan::bytes_needed(plan_limits(config, kv_blocks, threads, 0)) +
         static_cast<std::size_t>(threads) * sizeof(PerThread);
}

Result<std::unique_ptr<PagedAttention>> PagedAttention::create(const ModelConfig& config,
                                                               PagedKv& kv, ThreadPool& pool,
                                                               int max_step_tokens) {
  KIPP_TRY_ASSIGN(plan, AttentionPlan::create(
                            plan_limits(config, kv.blocks(), pool.threads(), max_step_tokens)));
  std::unique_ptr<PagedAttention> attention(new PagedAttention(config, kv, pool, std::move(plan)));
  attention->per_thread_ =
      std::make_unique_for_overwrite<PerThread[]>(static_cast<std::size_t>(pool.threads()));
  return attention;
}

PagedAttention::PagedAttention(const ModelConfig& config, PagedKv& kv, ThreadPool& pool,
                               AttentionPlan plan)
    : heads_(config.queries_per_kv_head()), kv_(kv), pool_(pool), plan_(std::move(plan)) {}

PagedAttention::~PagedAttention() = default;

void PagedAttention::begin_step(const StepPlan& step) {
  step_ = &step;
  plan_.begin_step(step);
}

KvHead PagedAttention::kv_head_at(int layer, int kv_head, const AttentionTile& tile, int block) {
  const BlockId id = step_->table(tile.item)[static_cast<std::size_t>(block)];
  const auto bytes = [](auto* at) { return reinterpret_cast<const std::byte*>(at); };
  if (kv_.store() == KvStore::bf16) {
    return {.keys = bytes(kv_.keys<std::uint16_t>(id, layer, kv_head)),
            .values = bytes(kv_.values<std::uint16_t>(id, layer, kv_head))};
  }
  return {.keys = bytes(kv_.keys<float>(id, layer, kv_head)),
          .values = bytes(kv_.values<float>(id, layer, kv_head))};
}

KvHead PagedAttention::first_of(int layer, const AttentionPart& part) {
  const int run = part.run == AttentionPart::kAllRuns ? 0 : part.run;
  return kv_head_at(layer, part.kv_head, plan_.tile(part), run * kRunBlocks);
}

void PagedAttention::attend_run_of(const AttentionPart& part, int run, int layer, const Rows& qkv,
                                   const AttentionState& state, const KvHead& ahead,
                                   AttentionScratch& scratch) {
  const AttentionTile& tile = plan_.tile(part);
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

void PagedAttention::finish(const AttentionTile& tile, int kv_head, const AttentionState& state,
                            const Rows& ctx) const {
  finish_attention(ctx.row(tile.row).data() + kv_head * heads_ * kHeadDim, ctx.cols, state,
                   tile.positions, heads_);
}

void PagedAttention::compute(const AttentionPart& part, int layer, const Rows& ctx, const Rows& qkv,
                             const KvHead& ahead, PerThread& memory) {
  const AttentionTile& tile = plan_.tile(part);
  if (part.run != AttentionPart::kAllRuns) {
    attend_run_of(part, part.run, layer, qkv, plan_.state_of_run(tile, part.kv_head, part.run),
                  ahead, memory.scratch);
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
  const auto parts = plan_.parts();
  pool_.parallel_tasks(plan_.shares(), [&](int p, int thread) {
    const auto next = static_cast<std::size_t>(p) + 1;
    const AttentionPart& part = parts[next - 1];
    const KvHead ahead = first_of(layer, next < parts.size() ? parts[next] : part);
    compute(part, layer, ctx, qkv, ahead, per_thread_[static_cast<std::size_t>(thread)]);
  });
  const auto joins = plan_.joins();
  pool_.parallel_for(static_cast<int>(joins.size()), [&](int begin, int end, int) {
    for (const AttentionPart& join :
         joins.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin))) {
      const AttentionTile& tile = plan_.tile(join);
      const AttentionState total = plan_.state_of_run(tile, join.kv_head, 0);
      for (int run = 1; run < tile.runs; ++run) {
        merge_run(total, plan_.state_of_run(tile, join.kv_head, run), tile.positions * heads_);
      }
      finish(tile, join.kv_head, total, ctx);
    }
  });
}

}  // namespace kipp::cpu
