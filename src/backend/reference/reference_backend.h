// The reference backend: the truth that every other backend is measured against. Readable before
// fast.
#pragma once

#include <memory>
#include <variant>

#include "backend/backend.h"
#include "backend/paged_kv.h"
#include "backend/reference/reference_ops.h"
#include "backend/tiered_kv.h"
#include "model/step_plan.h"

namespace kipp::reference {

inline constexpr int kMaxStepTokens = 512;

class ReferenceBackend final : public Backend {
 public:
  const BackendInfo& info() const override { return info_; }
  Result<void> load(const Artifact& artifact, const KvConfig& kv,
                    const LoadOptions& options = {}) override;
  Result<LogitsView> eval(std::span<const EvalItem> items) override;
  void copy_blocks(std::span<const BlockCopy> copies) override;
  void hold_planes(std::span<const PlaneChange> changes) override;
  void move_planes(BlockId from, BlockId to, PlaneBits planes) override;
  std::size_t block_bytes() const override;
  std::size_t block_bytes(PlaneBits planes) const override;
  Result<void> read_block(BlockId block, std::span<std::byte> out) override;
  Result<void> write_block(BlockId block, std::span<const std::byte> in) override;

  // Named intermediates of forward(), for tests and the oracle's comparison. Needs a loaded
  // backend.
  void set_tap(Tap tap) { state_->ops.set_tap(std::move(tap)); }

 private:
  using Cache = std::variant<PagedKv, TieredKv>;
  struct State {
    const Artifact& artifact;
    Cache kv;
    ReferenceOps ops;  // refers to kv
    StepPlanner planner;

    State(const Artifact& from, Cache cache);
  };

  BackendInfo info_{
      .name = "reference", .max_step_tokens = kMaxStepTokens, .max_logit_rows = kMaxStepTokens};
  std::unique_ptr<State> state_;  // empty until load
};

}  // namespace kipp::reference
