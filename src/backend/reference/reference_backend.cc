#include "backend/reference/reference_backend.h"

#include <cassert>
#include <utility>

#include "model/forward.h"
#include "model/memory.h"

namespace kipp::reference {

ReferenceBackend::State::State(const Artifact& from, PagedKv cache)
    : artifact(from),
      kv(std::move(cache)),
      ops(from.config(), kv, kMaxStepTokens),
      planner({.max_step_tokens = kMaxStepTokens,
               .max_logit_rows = kMaxStepTokens,
               .kv_blocks = kv.blocks(),
               .context_length = from.config().context_length}) {}

Result<void> ReferenceBackend::load(const Artifact& artifact, const KvConfig& kv,
                                    const LoadOptions&) {
  if (state_ != nullptr) return fail(ErrorCode::invalid, "load: this backend is loaded already");
  if (kv.blocks < 1) {
    return fail(ErrorCode::invalid, "kv.blocks: expected at least 1, found {}", kv.blocks);
  }
  KIPP_TRY(check_memory(memory_needed(artifact.config(), kv.blocks, element_bytes(kv.store),
                                      kMaxStepTokens, kMaxStepTokens),
                        kv.blocks, available_memory()));
  KIPP_TRY_ASSIGN(cache, PagedKv::create(artifact.config(), kv));
  state_ = std::make_unique<State>(artifact, std::move(cache));
  return {};
}

Result<LogitsView> ReferenceBackend::eval(std::span<const EvalItem> items) {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "eval: no artifact is loaded");
  KIPP_TRY_ASSIGN(step, state_->planner.plan(items));
  forward(state_->ops, state_->artifact.weights(), *step);
  const Rows& logits = state_->ops.buffers().logits;
  return LogitsView{.data = logits.data, .rows = logits.rows};
}

void ReferenceBackend::copy_blocks(std::span<const BlockCopy> copies) {
  assert(state_ != nullptr);
  state_->kv.copy(copies);
}

std::size_t ReferenceBackend::block_bytes() const {
  return state_ == nullptr ? 0 : state_->kv.block_bytes();
}

Result<void> ReferenceBackend::read_block(BlockId block, std::span<std::byte> out) {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "block: no artifact is loaded");
  return state_->kv.read(block, out);
}

Result<void> ReferenceBackend::write_block(BlockId block, std::span<const std::byte> in) {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "block: no artifact is loaded");
  return state_->kv.write(block, in);
}

}  // namespace kipp::reference
