#include "backend/cpu/cpu_backend.h"

#include <cassert>
#include <thread>
#include <utility>
#include <variant>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/packed_weights.h"
#include "backend/paged_kv.h"
#include "backend/tiered_kv.h"
#include "model/forward.h"
#include "model/memory.h"
#include "model/step_plan.h"

namespace kipp::cpu {

namespace {

constexpr int kMostThreads = 1024;
constexpr OpsLimits kLimits = {.max_step_tokens = kMaxStepTokens, .max_logit_rows = kMaxLogitRows};

Result<int> thread_count(int asked) {
  if (asked < 0 || asked > kMostThreads) {
    return fail(ErrorCode::invalid, "threads: expected 1 to {}, or 0 for one per core, found {}",
                kMostThreads, asked);
  }
  return asked != 0 ? asked : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

MemoryNeed memory_of(const Artifact& artifact, const KvConfig& kv, const LoadOptions& options,
                     int threads) {
  const ModelConfig& config = artifact.config();
  const std::size_t of_blocks =
      static_cast<std::size_t>(kv.blocks) * kv_block_bytes(config, element_bytes(kv.store));
  return {.kv_bytes = kv.store == KvStore::tiered
                          ? TieredKv::bytes_needed(config, kv, kLimits.max_step_tokens)
                          : of_blocks,
          .scratch_bytes = CpuOps::bytes_needed(config, kLimits, kv, threads),
          .weight_bytes = options.weights == WeightStore::packed
                              ? PackedWeights::bytes_needed(artifact.weights())
                              : 0};
}

using Cache = std::variant<PagedKv, TieredKv>;

Result<Cache> create_cache(const ModelConfig& config, const KvConfig& kv) {
  if (kv.store == KvStore::tiered) {
    KIPP_TRY_ASSIGN(tiered, TieredKv::create(config, kv, kLimits.max_step_tokens));
    return Cache(std::move(tiered));
  }
  KIPP_TRY_ASSIGN(paged, PagedKv::create(config, kv));
  return Cache(std::move(paged));
}

}  // namespace

// In the order of dependence; made in place, since the ops refer to the cache and the pool.
struct CpuBackend::State {
  std::unique_ptr<ThreadPool> pool;
  PackedWeights weights;
  Cache kv;
  StepPlanner planner;
  std::unique_ptr<CpuOps> ops;

  TieredKv* tiered() { return std::get_if<TieredKv>(&kv); }
};

CpuBackend::CpuBackend() = default;
CpuBackend::~CpuBackend() = default;

Result<void> CpuBackend::load(const Artifact& artifact, const KvConfig& kv,
                              const LoadOptions& options) {
  if (state_ != nullptr) return fail(ErrorCode::invalid, "load: this backend is loaded already");
  if (kv.blocks < 1) {
    return fail(ErrorCode::invalid, "kv.blocks: expected at least 1, found {}", kv.blocks);
  }
  KIPP_TRY_ASSIGN(threads, thread_count(options.threads));
  KIPP_TRY(check_memory(memory_of(artifact, kv, options, threads), kv.blocks, available_memory()));
  KIPP_TRY_ASSIGN(pool, ThreadPool::create(threads));
  KIPP_TRY_ASSIGN(cache, create_cache(artifact.config(), kv));
  KIPP_TRY_ASSIGN(
      weights, PackedWeights::create(artifact.weights(), options.weights, *pool, options.progress));
  std::unique_ptr<State> state(
      new State{.pool = std::move(pool),
                .weights = std::move(weights),
                .kv = std::move(cache),
                .planner = StepPlanner({.max_step_tokens = kLimits.max_step_tokens,
                                        .max_logit_rows = kLimits.max_logit_rows,
                                        .kv_blocks = kv.blocks,
                                        .context_length = artifact.config().context_length}),
                .ops = nullptr});
  const auto create_ops = [&](auto& of) {
    return CpuOps::create(artifact.config(), kLimits, of, *state->pool);
  };
  KIPP_TRY_ASSIGN(ops, std::visit(create_ops, state->kv));
  state->ops = std::move(ops);
  state_ = std::move(state);
  info_.threads = threads;
  return {};
}

Result<LogitsView> CpuBackend::eval(std::span<const EvalItem> items) {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "eval: no artifact is loaded");
  KIPP_TRY_ASSIGN(step, state_->planner.plan(items));
  if (TieredKv* tiered = state_->tiered()) KIPP_TRY(tiered->begin_step(*step));
  forward(*state_->ops, state_->weights.get(), *step);
  KIPP_TRY(state_->ops->stored());
  const Rows& logits = state_->ops->buffers().logits;
  return LogitsView{.data = logits.data, .rows = logits.rows};
}

void CpuBackend::copy_blocks(std::span<const BlockCopy> copies) {
  assert(state_ != nullptr);
  std::visit([&](auto& cache) { cache.copy(copies); }, state_->kv);
}

void CpuBackend::hold_planes(std::span<const PlaneChange> changes) {
  assert(state_ != nullptr);
  if (TieredKv* tiered = state_->tiered()) tiered->hold(changes);
}

void CpuBackend::move_planes(BlockId from, BlockId to, PlaneBits planes) {
  assert(state_ != nullptr);
  if (TieredKv* tiered = state_->tiered()) tiered->move(from, to, planes);
}

std::size_t CpuBackend::block_bytes() const {
  if (state_ == nullptr) return 0;
  const TieredKv* tiered = state_->tiered();
  return tiered != nullptr ? tiered->block_bytes(tiered->all_planes())
                           : std::get<PagedKv>(state_->kv).block_bytes();
}

std::size_t CpuBackend::block_bytes(PlaneBits planes) const {
  const TieredKv* tiered = state_ == nullptr ? nullptr : state_->tiered();
  return tiered != nullptr ? tiered->block_bytes(planes) : block_bytes();
}

Result<void> CpuBackend::read_block(BlockId block, std::span<std::byte> out) {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "block: no artifact is loaded");
  return std::visit([&](auto& cache) { return cache.read(block, out); }, state_->kv);
}

Result<void> CpuBackend::write_block(BlockId block, std::span<const std::byte> in) {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "block: no artifact is loaded");
  return std::visit([&](auto& cache) { return cache.write(block, in); }, state_->kv);
}

}  // namespace kipp::cpu
