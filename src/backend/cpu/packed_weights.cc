#include "backend/cpu/packed_weights.h"

#include <algorithm>
#include <cstdint>

namespace kipp::cpu {

namespace {

constexpr std::size_t kAlign = 64;
// Between two reports of progress, so that a large matrix does not stand still on the screen.
constexpr std::size_t kReportBytes = std::size_t{32} << 20;

std::size_t aligned_bytes(const StackedMatrix& matrix) {
  return (packed_bytes(matrix) + kAlign - 1) / kAlign * kAlign;
}

// Calls visit(matrix of `from`, matrix of `to`) for every matrix of a step, in its order.
template <class To, class Visit>
void for_each_matrix(const Qwen3Weights<StackedMatrix>& from, To& to, const Visit& visit) {
  for (std::size_t l = 0; l < from.layers.size(); ++l) {
    visit(from.layers[l].qkv, to.layers[l].qkv);
    visit(from.layers[l].attn_out, to.layers[l].attn_out);
    visit(from.layers[l].gate_up, to.layers[l].gate_up);
    visit(from.layers[l].down, to.layers[l].down);
  }
  visit(from.lm_head, to.lm_head);
}

// Packs matrices one after the other into one memory.
class Packer {
 public:
  Packer(std::span<std::byte> memory, ThreadPool& pool, const LoadProgress& progress)
      : memory_(memory), pool_(pool), progress_(progress) {
    report();
  }

  const std::byte* pack(const StackedMatrix& matrix) {
    const auto out = memory_.subspan(done_, aligned_bytes(matrix));
    const int panels = panels_of(matrix.rows());
    const std::size_t panel_bytes = packed_bytes(matrix) / static_cast<std::size_t>(panels);
    const int at_once = static_cast<int>(std::max<std::size_t>(1, kReportBytes / panel_bytes));
    const std::size_t before = done_;
    for (int first = 0; first < panels; first += at_once) {
      const int n = std::min(at_once, panels - first);
      pool_.parallel_for(n, [&](int begin, int end, int) {
        pack_panels(matrix, first + begin, first + end, out);
      });
      done_ = before + panel_bytes * static_cast<std::size_t>(first + n);
      report();
    }
    done_ = before + out.size();
    return out.data();
  }

 private:
  void report() const {
    if (progress_) progress_(done_, memory_.size());
  }

  std::span<std::byte> memory_;
  ThreadPool& pool_;
  const LoadProgress& progress_;
  std::size_t done_ = 0;
};

}  // namespace

std::size_t PackedWeights::bytes_needed(const Qwen3Weights<StackedMatrix>& weights) {
  std::size_t bytes = 0;
  for_each_matrix(weights, weights, [&](const StackedMatrix& matrix, const auto&) {
    bytes += aligned_bytes(matrix);
  });
  return bytes;
}

Result<PackedWeights> PackedWeights::create(const Qwen3Weights<StackedMatrix>& weights,
                                            WeightStore store, ThreadPool& pool,
                                            const LoadProgress& progress) {
  PackedWeights packed;
  Qwen3Weights<PackedMatrix>& to = packed.weights_;
  to.embed = weights.embed;
  to.final_norm = weights.final_norm;
  for (const LayerWeights<StackedMatrix>& layer : weights.layers) {
    to.layers.push_back({.attn_norm = layer.attn_norm,
                         .qkv = {},
                         .q_norm = layer.q_norm,
                         .k_norm = layer.k_norm,
                         .attn_out = {},
                         .mlp_norm = layer.mlp_norm,
                         .gate_up = {},
                         .down = {}});
  }
  for_each_matrix(weights, to, [](const StackedMatrix& matrix, PackedMatrix& out) {
    out = {.scheme = matrix.parts[0].scheme,
           .rows = matrix.rows(),
           .cols = matrix.cols(),
           .panels = nullptr,
           .mapped = matrix};
  });
  if (store == WeightStore::mapped) return packed;
  KIPP_TRY_ASSIGN(memory, HugeBuffer::create(bytes_needed(weights)));
  packed.memory_ = std::move(memory);
  Packer packer(packed.memory_.bytes(), pool, progress);
  for_each_matrix(weights, to, [&](const StackedMatrix& matrix, PackedMatrix& out) {
    out.panels = packer.pack(matrix);
  });
  return packed;
}

}  // namespace kipp::cpu
