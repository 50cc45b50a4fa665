// The fast backend for CPUs: packed weights, a thread pool, kernels for whatever vector width the
// machine has. Bit-equal to itself however work is cut and on any number of threads.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace kipp::cpu {

inline constexpr int kMaxStepTokens = 512;
// A row of logits takes 608 KB; 128 of them are enough to verify drafts and to score a text in
// pieces that use the weights well.
inline constexpr int kMaxLogitRows = 128;

class CpuBackend final : public Backend {
 public:
  CpuBackend();
  ~CpuBackend() override;

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

 private:
  struct State;

  BackendInfo info_{
      .name = "cpu", .max_step_tokens = kMaxStepTokens, .max_logit_rows = kMaxLogitRows};
  std::unique_ptr<State> state_;  // empty until load
};

}  // namespace kipp::cpu
