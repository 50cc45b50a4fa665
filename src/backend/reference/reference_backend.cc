#include "backend/reference/reference_backend.h"

#include <cassert>
#include <utility>

#include "model/forward.h"
#include "model/memory.h"

namespace kipp::reference {

namespace {

template <class Cache>
int blocks_of(const Cache& kv) {
  return std::visit([](const auto& cache) { return cache.blocks(); }, kv);
}

MemoryNeed memory_of(const ModelConfig& config, const KvConfig& kv) {
  MemoryNeed need =
      memory_needed(config, kv.blocks, element_bytes(kv.store), kMaxStepTokens, kMaxStepTokens);
  if (kv.store == KvStore::tiered)
    need.kv_bytes = TieredKv::bytes_needed(config, kv, kMaxStepTokens);
  return need;
}

}  // namespace

ReferenceBackend::State::State(const Artifact& from, Cache cache)
    : artifact(from),
      kv(std::move(cache)),
      ops(std::visit([&](auto& c) { return ReferenceOps(from.config(), c, kMaxStepTokens); }, kv)),
      planner({.max_step_tokens = kMaxStepTokens,
               .max_logit_rows = kMaxStepTokens,
               .kv_blocks = blocks_of(kv),
               .context_length = from.config().context_length}) {}

Result<void> ReferenceBackend::load(const Artifact& artifact, const KvConfig& kv,
                                    const LoadOptions&) {
  if (state_ != nullptr) return fail(ErrorCode::invalid, "load: this backend is loaded already");
  if (kv.blocks < 1) {
    return fail(ErrorCode::invalid, "kv.blocks: expected at least 1, found {}", kv.blocks);
  }
  const ModelConfig& config = artifact.config();
  KIPP_TRY(check_memory(memory_of(config, kv), kv.blocks, available_memory()));
  if (kv.store == KvStore::tiered) {
    KIPP_TRY_ASSIGN(cache, TieredKv::create(config, kv, kMaxStepTokens));
    state_ = std::make_unique<State>(artifact, std::move(cache));
  } else {
    KIPP_TRY_ASSIGN(cache, PagedKv::create(config, kv));
    state_ = std::make_unique<State>(artifact, std::move(cache));
  }
  return {};
}

Result<LogitsView> ReferenceBackend::eval(std::span<const EvalItem> items) {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "eval: no artifact is loaded");
  KIPP_TRY_ASSIGN(step, state_->planner.plan(items));
  if (auto* tiered = std::get_if<TieredKv>(&state_->kv)) KIPP_TRY(tiered->begin_step(*step));
  forward(state_->ops, state_->artifact.weights(), *step);
  KIPP_TRY(state_->ops.stored());
  const Rows& logits = state_->ops.buffers().logits;
  return LogitsView{.data = logits.data, .rows = logits.rows};
}

void ReferenceBackend::copy_blocks(std::span<const BlockCopy> copies) {
  assert(state_ != nullptr);
  std::visit([&](auto& cache) { cache.copy(copies); }, state_->kv);
}

void ReferenceBackend::hold_planes(std::span<const PlaneChange> changes) {
  assert(state_ != nullptr);
  if (auto* tiered = std::get_if<TieredKv>(&state_->kv)) tiered->hold(changes);
}

void ReferenceBackend::move_planes(BlockId from, BlockId to, PlaneBits planes) {
  assert(state_ != nullptr);
  if (auto* tiered = std::get_if<TieredKv>(&state_->kv)) tiered->move(from, to, planes);
}

std::size_t ReferenceBackend::block_bytes() const {
  if (state_ == nullptr) return 0;
  const auto* tiered = std::get_if<TieredKv>(&state_->kv);
  return tiered != nullptr ? tiered->block_bytes(tiered->all_planes())
                           : std::get<PagedKv>(state_->kv).block_bytes();
}

std::size_t ReferenceBackend::block_bytes(PlaneBits planes) const {
  const auto* tiered = state_ == nullptr ? nullptr : std::get_if<TieredKv>(&state_->kv);
  return tiered != nullptr ? tiered->block_bytes(planes) : block_bytes();
}

Result<void> ReferenceBackend::read_block(BlockId block, std::span<std::byte> out) {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "block: no artifact is loaded");
  return std::visit([&](auto& cache) { return cache.read(block, out); }, state_->kv);
}

Result<void> ReferenceBackend::write_block(BlockId block, std::span<const std::byte> in) {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "block: no artifact is loaded");
  return std::visit([&](auto& cache) { return cache.write(block, in); }, state_->kv);
}

}  // namespace kipp::reference
