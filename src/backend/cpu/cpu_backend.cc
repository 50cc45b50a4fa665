#include "backend/cpu/cpu_backend.h"

#include <cassert>
#include <thread>
#include <utility>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/packed_weights.h"
#include "backend/paged_kv.h"
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
  return {.kv_bytes =
              static_cast<std::size_t>(kv.blocks) * kv_block_bytes(config, element_bytes(kv.store)),
          .scratch_bytes = CpuOps::bytes_needed(config, kLimits, kv.blocks, threads),
          .weight_bytes = options.weights == WeightStore::packed
                              ? PackedWeights::bytes_needed(artifact.weights())
                              : 0};
}

}  // namespace

// In the order of dependence; made in place, since the ops refer to the cache and the pool.
struct CpuBackend::State {
  std::unique_ptr<ThreadPool> pool;
  PackedWeights weights;
  PagedKv kv;
  StepPlanner planner;
  std::unique_ptr<CpuOps> ops;
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
  KIPP_TRY_ASSIGN(cache, PagedKv::create(artifact.config(), kv));
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
  KIPP_TRY_ASSIGN(ops, CpuOps::create(artifact.config(), kLimits, state->kv, *state->pool));
  state->ops = std::move(ops);
  state_ = std::move(state);
  info_.threads = threads;
  return {};
}

Result<LogitsView> CpuBackend::eval(std::span<const EvalItem> items) {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "eval: no artifact is loaded");
  KIPP_TRY_ASSIGN(step, state_->planner.plan(items));
  forward(*state_->ops, state_->weights.get(), *step);
  const Rows& logits = state_->ops->buffers().logits;
  return LogitsView{.data = logits.data, .rows = logits.rows};
}

void CpuBackend::copy_blocks(std::span<const BlockCopy> copies) {
  assert(state_ != nullptr);
  state_->kv.copy(copies);
}

std::size_t CpuBackend::block_bytes() const {
  return state_ == nullptr ? 0 : state_->kv.block_bytes();
}

Result<void> CpuBackend::read_block(BlockId block, std::span<std::byte> out) {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "block: no artifact is loaded");
  return state_->kv.read(block, out);
}

Result<void> CpuBackend::write_block(BlockId block, std::span<const std::byte> in) {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "block: no artifact is loaded");
  return state_->kv.write(block, in);
}

}  // namespace kipp::cpu
