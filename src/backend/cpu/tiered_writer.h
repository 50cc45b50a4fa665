// Keys and values of a step on their way into bit planes: rows first, then, of the blocks whose
// last position the step writes, the codes, head by head over the threads.
#pragma once

#include <memory>

#include "backend/cpu/matmul.h"
#include "backend/tiered_kv.h"
#include "base/thread_pool.h"
#include "kvquant/cpu_simd.h"
#include "model/step_plan.h"

namespace kipp::cpu {

class TieredWriter {
 public:
  static std::size_t bytes_needed(int threads);
  // kv and pool outlive the object.
  TieredWriter(const ModelConfig& config, TieredKv& kv, ThreadPool& pool);

  // The cache has begun the step, which must outlive its write() calls.
  void begin_step(const StepPlan& step);
  // The rows' keys and values, [q | k | v] = qkv[r].
  void write(int layer, const Rows& qkv);
  // Why keys or values of this step could not be coded, if so: its logits then mean nothing.
  const Result<void>& coded() const { return coded_; }

 private:
  struct PerThread;

  void write_row(int layer, int row, const Rows& qkv);
  void make_codes(int layer);

  const int keys_at_;  // in a row of qkv
  TieredKv& kv_;
  ThreadPool& pool_;
  kvquant::CpuSimdBackend kvquant_;
  std::unique_ptr<EncodeScratch[]> scratch_;  // [threads]
  std::unique_ptr<Result<void>[]> refused_;   // [threads] the last that one met
  Result<void> coded_;
  const StepPlan* step_ = nullptr;
};

}  // namespace kipp::cpu
