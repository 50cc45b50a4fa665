#include "backend/reference/reference_backend.h"

#include <algorithm>
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
  for (const BlockCopy& copy : copies) {
    assert(copy.from >= 0 && copy.from < state_->kv.blocks());
    assert(copy.to >= 0 && copy.to < state_->kv.blocks());
    std::ranges::copy(state_->kv.block(copy.from), state_->kv.block(copy.to).begin());
  }
}

std::size_t ReferenceBackend::block_bytes() const {
  return state_ == nullptr ? 0 : state_->kv.block_bytes();
}

Result<void> ReferenceBackend::read_block(BlockId block, std::span<std::byte> out) {
  KIPP_TRY_ASSIGN(bytes, block_of_size(block, out.size()));
  std::ranges::copy(bytes, out.begin());
  return {};
}

Result<void> ReferenceBackend::write_block(BlockId block, std::span<const std::byte> in) {
  KIPP_TRY_ASSIGN(bytes, block_of_size(block, in.size()));
  std::ranges::copy(in, bytes.begin());
  return {};
}

Result<std::span<std::byte>> ReferenceBackend::block_of_size(BlockId block, std::size_t bytes) {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "block: no artifact is loaded");
  if (block < 0 || block >= state_->kv.blocks()) {
    return fail(ErrorCode::invalid, "block: expected one from 0 to {}, found {}",
                state_->kv.blocks() - 1, block);
  }
  if (bytes != state_->kv.block_bytes()) {
    return fail(ErrorCode::invalid, "block {}: expected {} bytes, found {}", block,
                state_->kv.block_bytes(), bytes);
  }
  return state_->kv.block(block);
}

}  // namespace kipp::reference
