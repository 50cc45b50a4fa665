// The ops of a layer that touch each activation once: embedding rows, RMSNorm, the norm and
// rotation of queries and keys with the write into the cache, the gated unit, the choice of rows.
// Each is a few bytes per value and bound by its launch in a decode step (about 2 us; a step of 8B
// moves 16 KB per row here); at 512 rows of 8B silu_mul, the largest, moves 512 * 12288 * 12 bytes
// = 75 MB, 18 us at 4.2 TB/s. Nothing of this has run on a GPU yet; the emulated build of this file
// is tested.
#include "backend/cuda/weight_layout.h"
#include "model/config.h"

namespace kipp::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kMaxNormCols = 8192;
constexpr int kNormSteps = kMaxNormCols / (4 * kThreads);
constexpr int kHalf = kHeadDim / 2;

constexpr int blocks_of(std::size_t n, int per_block) {
  return static_cast<int>((n + static_cast<std::size_t>(per_block) - 1) /
                          static_cast<std::size_t>(per_block));
}

// One thread per lane's eight columns of a tile.
KIPP_KERNEL void embed_kernel(F32Rows out, const std::uint8_t* table, const Token* tokens) {
  let_next_start();
  wait_for_previous();
  const int part = block_x() * kThreads + thread_index();
  if (part >= out.cols / 8) return;
  const int token = tokens[block_y()];
  const int lane = token % 8 * 4 + part % 4;
  const std::size_t tile =
      at(token / kTileRows, out.cols / kTileCols) + static_cast<std::size_t>(part / 4);
  const auto w = load<Words4>(table + tile * TileBytes<Scheme::bf16>::kWeights +
                              token % kTileRows / 8 * 512 + lane * 16);
  float* to = out.data + at(block_y(), out.cols) + part * 8;
  KIPP_UNROLL
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t a = w.w[2 * half];
    const std::uint32_t b = w.w[2 * half + 1];
    store(to + 4 * half, Floats4{{bf16_low(a), bf16_high(a), bf16_low(b), bf16_high(b)}});
  }
}

// Four columns as split activations; `row` begins the row's 2 * cols BF16.
KIPP_DEVICE void store_split(std::uint16_t* row, int cols, int col, const float (&v)[4]) {
  const SplitPair a = split_bf16(v[0], v[1]);
  const SplitPair b = split_bf16(v[2], v[3]);
  store(row + col, Words2{{a.hi, b.hi}});
  store(row + cols + col, Words2{{a.lo, b.lo}});
}

struct NormShared {
  float sums[kWarps];
};

// One block per row, which it holds in registers: the output may overwrite the input.
KIPP_KERNEL void rms_norm_kernel(SplitRows out, F32Rows in, const float* weight) {
  let_next_start();
  wait_for_previous();
  auto& shared = shared_as<NormShared>();
  const float* from = in.data + at(block_x(), in.cols);
  Floats4 held[kNormSteps];
  float sum = 0.0f;
  KIPP_UNROLL
  for (int i = 0; i < kNormSteps; ++i) {
    const int col = (i * kThreads + thread_index()) * 4;
    if (col < in.cols) {
      held[i] = load<Floats4>(from + col);
      KIPP_UNROLL
      for (int j = 0; j < 4; ++j) sum = fma(held[i].f[j], held[i].f[j], sum);
    }
  }
  sum = warp_sum(sum);
  if (lane_index() == 0) shared.sums[warp_index()] = sum;
  sync_block();
  float total = shared.sums[0];
  KIPP_UNROLL
  for (int w = 1; w < kWarps; ++w) total += shared.sums[w];
  const float scale = 1.0f / sqrtf(total / static_cast<float>(in.cols) + kRmsEps);
  std::uint16_t* to = out.data + at(block_x(), 2 * out.cols);
  KIPP_UNROLL
  for (int i = 0; i < kNormSteps; ++i) {
    const int col = (i * kThreads + thread_index()) * 4;
    if (col < in.cols) {
      const auto w = load<Floats4>(weight + col);
      float v[4];
      KIPP_UNROLL
      for (int j = 0; j < 4; ++j) v[j] = held[i].f[j] * scale * w.f[j];
      store_split(to, out.cols, col, v);
    }
  }
}

// One warp per head of a row: queries, then keys, then values. Lane l holds dimensions 2l, 2l + 1
// and those kHalf above, which rotation pairs with them.
KIPP_KERNEL void qk_norm_rope_append_kernel(F32Rows qkv, DeviceKv kv, int layer,
                                            const float* q_norm, const float* k_norm,
                                            const float* rotations, DeviceStep step) {
  let_next_start();
  wait_for_previous();
  const int query_heads = qkv.cols / kHeadDim - 2 * kKvHeads;
  const int head = block_x() * kWarps + warp_index();
  if (head >= query_heads + 2 * kKvHeads) return;  // a whole warp
  const int row = block_y();
  const int position = step.positions[row];
  const int dim = lane_index() * 2;
  float* from = qkv.data + at(row, qkv.cols) + head * kHeadDim;
  const auto low = load<Floats2>(from + dim);
  const auto high = load<Floats2>(from + kHalf + dim);
  float v[4] = {low.f[0], low.f[1], high.f[0], high.f[1]};

  if (head < query_heads + kKvHeads) {
    const float* norm = head < query_heads ? q_norm : k_norm;
    float sum = 0.0f;
    KIPP_UNROLL
    for (int j = 0; j < 4; ++j) sum = fma(v[j], v[j], sum);
    const float scale = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(kHeadDim) + kRmsEps);
    KIPP_UNROLL
    for (int j = 0; j < 4; ++j) v[j] = v[j] * scale * norm[dim + j / 2 * kHalf + j % 2];
    const float* angles = rotations + at(position, kHeadDim) + dim;
    KIPP_UNROLL
    for (int j = 0; j < 2; ++j) {
      const float cos = angles[j];
      const float sin = angles[kHalf + j];
      const float a = v[j];
      const float b = v[2 + j];
      v[j] = a * cos - b * sin;
      v[2 + j] = b * cos + a * sin;
    }
  }
  if (head < query_heads) {
    store(from + dim, Floats2{{v[0], v[1]}});
    store(from + kHalf + dim, Floats2{{v[2], v[3]}});
    return;
  }
  const int value = head >= query_heads + kKvHeads ? 1 : 0;
  const int kv_head = head - query_heads - value * kKvHeads;
  const int item = step.item_of_row[row];
  const BlockId block = step.blocks[step.block_begin[item] + position / kBlockPositions];
  std::uint16_t* to = kv.data + static_cast<std::size_t>(block) * kv.block_elements +
                      at((layer * 2 + value) * kKvHeads + kv_head, kBlockPositions * kHeadDim) +
                      position % kBlockPositions * kHeadDim;
  store(to + dim, pack_bf16(v[0], v[1]));
  store(to + kHalf + dim, pack_bf16(v[2], v[3]));
}

KIPP_KERNEL void silu_mul_kernel(SplitRows out, F32Rows in) {
  let_next_start();
  wait_for_previous();
  const int col = (block_x() * kThreads + thread_index()) * 4;
  if (col >= out.cols) return;
  const float* from = in.data + at(block_y(), in.cols);
  const auto gate = load<Floats4>(from + col);
  const auto up = load<Floats4>(from + out.cols + col);
  float v[4];
  KIPP_UNROLL
  for (int j = 0; j < 4; ++j) v[j] = gate.f[j] / (1.0f + exp_exact(-gate.f[j])) * up.f[j];
  store_split(out.data + at(block_y(), 2 * out.cols), out.cols, col, v);
}

KIPP_KERNEL void take_rows_kernel(F32Rows out, F32Rows in, const int* rows) {
  let_next_start();
  wait_for_previous();
  const int col = (block_x() * kThreads + thread_index()) * 4;
  if (col >= out.cols) return;
  const float* from = in.data + at(rows[block_y()], in.cols) + col;
  store(out.data + at(block_y(), out.cols) + col, load<Floats4>(from));
}

}  // namespace

LaunchCode embed(Stream stream, F32Rows out, const DeviceMatrix& table, const Token* tokens) {
  if (table.scheme != Scheme::bf16 || out.cols != table.cols || out.cols % kTileCols != 0) {
    return kInvalidShape;
  }
  if (out.rows == 0) return kLaunched;
  const Grid grid{blocks_of(static_cast<std::size_t>(out.cols / 8), kThreads), out.rows, 1};
  return launch(embed_kernel, grid, kThreads, 0, stream, out, table.weights, tokens);
}

LaunchCode rms_norm(Stream stream, SplitRows out, F32Rows in, const float* weight) {
  if (out.cols != in.cols || out.rows != in.rows || in.cols <= 0 || in.cols % 4 != 0 ||
      in.cols > kMaxNormCols) {
    return kInvalidShape;
  }
  if (in.rows == 0) return kLaunched;
  return launch(rms_norm_kernel, Grid{in.rows, 1, 1}, kThreads, sizeof(NormShared), stream, out, in,
                weight);
}

LaunchCode qk_norm_rope_append(Stream stream, F32Rows qkv, const DeviceKv& kv, int layer,
                               const float* q_norm, const float* k_norm, const float* rotations,
                               const DeviceStep& step) {
  if (qkv.cols % kHeadDim != 0 || qkv.cols <= 2 * kKvWidth || qkv.rows != step.rows) {
    return kInvalidShape;
  }
  if (qkv.rows == 0) return kLaunched;
  const Grid grid{blocks_of(static_cast<std::size_t>(qkv.cols / kHeadDim), kWarps), qkv.rows, 1};
  return launch(qk_norm_rope_append_kernel, grid, kThreads, 0, stream, qkv, kv, layer, q_norm,
                k_norm, rotations, step);
}

LaunchCode silu_mul(Stream stream, SplitRows out, F32Rows in) {
  if (in.cols != 2 * out.cols || in.rows != out.rows || out.cols % 4 != 0) return kInvalidShape;
  if (out.rows == 0) return kLaunched;
  const Grid grid{blocks_of(static_cast<std::size_t>(out.cols / 4), kThreads), out.rows, 1};
  return launch(silu_mul_kernel, grid, kThreads, 0, stream, out, in);
}

LaunchCode take_rows(Stream stream, F32Rows out, F32Rows in, const int* rows) {
  if (out.cols != in.cols || out.cols % 4 != 0) return kInvalidShape;
  if (out.rows == 0) return kLaunched;
  const Grid grid{blocks_of(static_cast<std::size_t>(out.cols / 4), kThreads), out.rows, 1};
  return launch(take_rows_kernel, grid, kThreads, 0, stream, out, in, rows);
}

}  // namespace kipp::cuda
