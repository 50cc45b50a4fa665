// All weights that a step multiplies with, in the order the kernels read: packed at load into one
// buffer of huge pages, or views of the artifact that matmul packs piece by piece as it goes.
#pragma once

#include <functional>

#include "backend/backend.h"
#include "backend/cpu/matmul.h"
#include "base/huge_buffer.h"
#include "base/thread_pool.h"
#include "model/weights.h"

namespace kipp::cpu {

class PackedWeights {
 public:
  // Bytes of all matrices in packed form.
  static std::size_t bytes_needed(const Qwen3Weights<StackedMatrix>& weights);

  // `weights` are the artifact's, which must outlive the result: norms and the embedding stay
  // there. `progress` is called from this thread.
  static Result<PackedWeights> create(const Qwen3Weights<StackedMatrix>& weights, WeightStore store,
                                      ThreadPool& pool, const LoadProgress& progress);

  const Qwen3Weights<PackedMatrix>& get() const { return weights_; }

 private:
  HugeBuffer memory_;
  Qwen3Weights<PackedMatrix> weights_;
};

}  // namespace kipp::cpu
