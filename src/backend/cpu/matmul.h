// Products with weights that were packed at load. The rows of a matrix are the lanes of the
// vectors, so an output never meets its neighbours: it is one chain of fused multiply-adds over the
// columns (bf16), or over blocks of 32 columns whose own sums are exact (the quantized schemes,
// whose inputs are rounded to 16-bit integers per block; matmul_kernel-inl.h says how and why). The
// order is fixed by the scheme and the number of columns alone. That makes batch 1, any batch, any
// split into calls, any thread count and both kinds of PackedMatrix equal bit for bit, and all CPU
// targets that have fused multiply-add agree too, whatever their vector width. SSE4 and plain
// scalar code have none and differ from them by rounding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/huge_buffer.h"
#include "base/thread_pool.h"
#include "base/types.h"
#include "model/weights.h"

namespace kipp::cpu {

inline constexpr int kPanelRows = 64;

// Activations, [rows, cols] row major without gaps.
struct Rows {
  float* data = nullptr;
  int rows = 0;
  int cols = 0;

  std::span<float> row(int r) const {
    return {data + static_cast<std::size_t>(r) * static_cast<std::size_t>(cols),
            static_cast<std::size_t>(cols)};
  }
};

// A (stacked) matrix in the order the kernels read, or, when weights stay mapped, views of the
// artifact that are packed tile by tile while they are used. Both give the same bits.
struct PackedMatrix {
  Scheme scheme = Scheme::bf16;
  int rows = 0;
  int cols = 0;                       // a multiple of kQuantBlock
  const std::byte* panels = nullptr;  // packed_bytes() bytes, 64-byte aligned; null: mapped
  StackedMatrix mapped = {};          // used when panels is null
};

constexpr int panels_of(int rows) { return (rows + kPanelRows - 1) / kPanelRows; }

// Bytes of the packed form: the artifact's bytes per weight, rows rounded up to whole panels.
std::size_t packed_bytes(const StackedMatrix& matrix);

// Packs panels [begin, end) into `out`, the whole matrix's packed memory, 64-byte aligned. Rows
// that fill up the last panel are zero. Panels may be packed by different threads at once.
void pack_panels(const StackedMatrix& matrix, int begin, int end, std::span<std::byte> out);

enum class Write : bool { set, add };

// Scratch of matmul; sized at load, so that a step allocates nothing. One matmul at a time.
class MatmulScratch {
 public:
  // The largest products it will serve: in.rows <= max_tokens, in.cols <= max_cols, and pools of at
  // most `threads`.
  static Result<MatmulScratch> create(int threads, int max_tokens, int max_cols);

  // What lies where: matmul_job.h.
  std::byte* inputs() const { return inputs_; }
  std::byte* block_inputs() const { return block_inputs_; }
  float* outputs(int thread) const;      // one panel of the tokens of a run
  std::byte* weights(int thread) const;  // a packed chunk of one panel, for mapped weights

 private:
  HugeBuffer memory_;
  std::byte* inputs_ = nullptr;
  std::byte* block_inputs_ = nullptr;
  std::byte* threads_ = nullptr;
};

// out[t] = w in[t], or out[t] + w in[t]. out.cols == w.rows, in.cols == w.cols, out.rows ==
// in.rows; out and in do not overlap.
void matmul(ThreadPool& pool, const MatmulScratch& scratch, const Rows& out, const Rows& in,
            const PackedMatrix& w, Write write);

}  // namespace kipp::cpu
