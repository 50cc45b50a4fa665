// The projections and the head: out = W in (or +=), for any number of rows. Weights are operand A
// of the tensor cores (16 outputs per instruction), tokens operand B (8 per instruction).
//
// One order of additions, whatever the rows. The inputs' columns are cut into at most kSlices
// slices of whole tiles, a function of the width alone; within a slice tiles are added in ascending
// order (multiply_tile), slices in ascending order after that. An element of an accumulator depends
// on its own row of A and column of B only, so a token has the same bits in column 0 of the few-row
// kernel and in column 77 of a tile. That is what makes a batch, a chunk and a single token
// bit-equal.
//
// few_rows_kernel, up to kFewRows tokens: a block owns 16 outputs, each of its 8 warps one slice;
// the partial sums meet in shared memory. Weights stream past registers only, 16 (4-bit: 8) bytes a
// lane, and the first of them are on their way before the kernel that makes the inputs has ended.
//   Bytes decide: W once from memory, in from L2. At 4.2 TB/s a multiprocessor of an H200 gets 18
//   bytes of W per cycle; 700 ns of latency want 23 KB in flight there. kAhead tiles per warp times
//   24 resident warps are 96 KB (bf16, q8_0) or 36 to 48 KB (4-bit). 8B, bf16: qkv 50 MB
//   12 us, attn_out 34 MB 8 us, gate_up 201 MB 48 us, down 101 MB 24 us, head 1.24 GB 296 us: 3.6
//   ms in 36 layers, 276 tok/s before gaps. Instructions per tile and warp (SASS, two terms): bf16
//   33 for 1,024 bytes, q8_0 75 for 512, 4-bit 55 to 65 for 256. At 18 bytes per cycle four
//   schedulers have 228, 114 and 57 slots: 4-bit is bound by instructions, at about 0.8 of the
//   bandwidth, where its target is.
// tile_kernel, more tokens: 128 outputs by 32, 64 or 128 tokens a block, operands through a ring in
//   shared memory, weights dequantized between shared memory and tensor core. 64x32 per warp: 16
//   instructions per tile and term against 4 + 4 loads of 16 bytes. mma.sync reaches about 60 % of
//   what wgmma does on Hopper, so at best 450 TFLOP/s here, and half of that with two terms: at
//   512 rows of 8B (7.7 TFLOP) 17 ms with one term, 34 ms with two. wgmma is the step after this
//   one. Where there are too few tiles for the processors, slices go to different blocks and a
//   second kernel adds them up.
// ptxas (nvcc 13.0; sm_80, sm_90): few_rows takes 63 to 80 registers, tile
//   96 to 255. Nothing is spilled but 4 bytes by few_rows (q8_0, sm_80) and, where 128 tokens meet
//   a quantized matrix and two accumulators of 64 leave little room, 8 to 32 bytes per thread.
//
// Nothing of this has run on a GPU yet: times are predictions. The emulated build is tested against
// double-precision loops (tests/unit/cuda_kernels_test.cc).
#include "backend/cuda/weight_layout.h"

namespace kipp::cuda {

namespace {

constexpr int kSlices = 8;
constexpr int kTokensOfMma = 8;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kFewRows = 8;
static_assert(kWarps == kSlices);

constexpr int slice_tiles(int cols) { return (cols / kTileCols + kSlices - 1) / kSlices; }

// Slices that hold anything.
constexpr int slices_of(int cols) {
  const int tiles = cols / kTileCols;
  return (tiles + slice_tiles(cols) - 1) / slice_tiles(cols);
}

struct Product {
  DeviceMatrix w;
  SplitRows in;
  F32Rows out;
  Write write;
  float* partial;  // [slices, rows, outputs] of the tile kernel when slices are cut, else null
};

KIPP_DEVICE void write_out(const Product& p, int token, int output, float value) {
  float* to = p.out.data + at(token, p.out.cols) + output;
  *to = p.write == Write::add ? *to + value : value;
}

template <int kTerms>
KIPP_DEVICE LaneInputs load_inputs(const SplitRows& in, int token, int tile_col, int lane) {
  LaneInputs inputs = {};
  if (token < in.rows) {
    const std::uint16_t* row = in.data + at(token, 2 * in.cols) + tile_col * kTileCols;
    inputs.hi = load<Words4>(row + lane % 4 * 8);
    if constexpr (kTerms == 2) inputs.lo = load<Words4>(row + in.cols + lane % 4 * 8);
  }
  return inputs;
}

struct FewRowsShared {
  float partial[kSlices][kTokensOfMma][kTileRows];
};

// Tiles on their way per warp: what 80 registers hold, so that three blocks share a multiprocessor.
template <Scheme scheme>
constexpr int kAhead = scheme == Scheme::bf16           ? 4
                       : scheme == Scheme::affine4_gs32 ? 6
                                                        : 8;

template <Scheme scheme, int kTerms>
KIPP_KERNEL void KIPP_LAUNCH_BOUNDS(kThreads, 3) few_rows_kernel(Product p) {
  auto& shared = shared_as<FewRowsShared>();
  constexpr int kGroup = kAhead<scheme>;
  const int lane = lane_index();
  const int tiles = p.w.cols / kTileCols;
  const int begin = warp_index() * slice_tiles(p.w.cols);
  const int end = begin + slice_tiles(p.w.cols) < tiles ? begin + slice_tiles(p.w.cols) : tiles;
  const std::size_t row_of_tiles = at(block_x(), tiles);
  const std::uint8_t* weights = p.w.weights + row_of_tiles * TileBytes<scheme>::kWeights;
  const std::uint8_t* scales = p.w.scales + row_of_tiles * TileBytes<scheme>::kScales;
  const auto load_tile = [&](int tile) {
    return load_lane<scheme, true>(
        weights + static_cast<std::size_t>(tile) * TileBytes<scheme>::kWeights,
        scales + static_cast<std::size_t>(tile) * TileBytes<scheme>::kScales, lane);
  };
  float acc[4] = {};
  const auto add_tile = [&](const LaneWeights<scheme>& w, int tile) {
    const LaneInputs in = load_inputs<kTerms>(p.in, lane / 4, tile, lane);
    float sums[2] = {};
    input_sums<scheme, kTerms>(sums, in);
    multiply_tile<scheme, kTerms>(acc, operands_of<scheme>(w), scales_of<scheme>(w), in, sums);
  };
  // kGroup tiles are on their way at any time; the first before the inputs
  // exist.
  LaneWeights<scheme> held[count(kGroup)];
  KIPP_UNROLL
  for (int i = 0; i < kGroup; ++i) {
    if (begin + i < end) held[i] = load_tile(begin + i);
  }
  let_next_start();
  wait_for_previous();
  for (int tile = begin; tile < end; tile += kGroup) {
    KIPP_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      if (tile + i >= end) break;
      add_tile(held[i], tile + i);
      if (tile + i + kGroup < end) held[i] = load_tile(tile + i + kGroup);
    }
  }

  KIPP_UNROLL
  for (int c = 0; c < 4; ++c) {
    shared.partial[warp_index()][lane % 4 * 2 + c % 2][lane / 4 + c / 2 * 8] = acc[c];
  }
  sync_block();
  if (thread_index() >= kTokensOfMma * kTileRows) return;
  const int token = thread_index() / kTileRows;
  const int output = block_x() * kTileRows + thread_index() % kTileRows;
  if (token >= p.in.rows || output >= p.w.rows) return;
  const auto part = [&](int slice) {
    return shared.partial[slice][token][thread_index() % kTileRows];
  };
  float sum = 0.0f;
  for (int slice = 0; slice < slices_of(p.w.cols); ++slice) sum += part(slice);
  write_out(p, token, output, sum);
}

constexpr int kBlockOutputs = 128;
constexpr int kBlockTiles = kBlockOutputs / kTileRows;
constexpr int kStages = 4;
constexpr int kWarpsAcross = 4;  // over the tokens of a block; 2 over its outputs
constexpr int kWarpTiles = kBlockTiles / 2;

constexpr int block_tokens(int warp_columns) { return kWarpsAcross * kTokensOfMma * warp_columns; }

// One step of 32 columns: what global memory holds, in the same order.
template <Scheme scheme, int kColumns, int kTerms>
struct Stage {
  alignas(16) std::uint8_t weights[kBlockTiles][TileBytes<scheme>::kWeights];
  alignas(16) std::uint16_t inputs[count(kTerms)][count(block_tokens(kColumns))][kTileCols];
  alignas(16) std::uint8_t
      scales[kBlockTiles][TileBytes<scheme>::kScales == 0 ? 16 : TileBytes<scheme>::kScales];
};

template <Scheme scheme, int kColumns, int kTerms>
struct TileShared {
  Stage<scheme, kColumns, kTerms> stages[kStages];
};

// Copies of one block's operands. Offsets of a block fit into 32 bits,
// pointers would take registers that the accumulators need.
template <Scheme scheme, int kColumns, int kTerms>
class TileLoader {
 public:
  KIPP_DEVICE TileLoader(const Product& p, int first_tile_row, int first_token)
      : tiles_(p.w.cols / kTileCols),
        tile_rows_(tiles_of(p.w.rows) - first_tile_row),
        weights_(p.w.weights + at(first_tile_row, tiles_) * TileBytes<scheme>::kWeights),
        scales_(p.w.scales + at(first_tile_row, tiles_) * TileBytes<scheme>::kScales),
        cols_(p.in.cols),
        tokens_(p.in.rows - first_token),
        inputs_(p.in.data + at(first_token, 2 * p.in.cols)) {}

  // Starts the copies of one step of columns, by all threads of the block.
  KIPP_DEVICE void start(Stage<scheme, kColumns, kTerms>& stage, int tile_col) const {
    copy_tiles<TileBytes<scheme>::kWeights>(&stage.weights[0][0], weights_, tile_col);
    if constexpr (TileBytes<scheme>::kScales != 0) {
      copy_tiles<TileBytes<scheme>::kScales>(&stage.scales[0][0], scales_, tile_col);
    }
    constexpr int kChunks = kTileCols / 8;  // of 16 bytes
    constexpr int kCopies = kTerms * block_tokens(kColumns) * kChunks;
    KIPP_UNROLL
    for (int i = 0; i < (kCopies + kThreads - 1) / kThreads; ++i) {
      const int copy = i * kThreads + thread_index();
      if (kCopies % kThreads != 0 && copy >= kCopies) break;
      const int chunk = copy % kChunks;
      const int token = copy / kChunks % block_tokens(kColumns);
      const int term = copy / kChunks / block_tokens(kColumns);
      const int offset = (2 * token + term) * cols_ + tile_col * kTileCols + chunk * 8;
      copy_async16(&stage.inputs[term][token][chunk * 8], inputs_ + offset, token < tokens_);
    }
  }

 private:
  template <int kBytes>
  KIPP_DEVICE void copy_tiles(std::uint8_t* to, const std::uint8_t* from, int tile_col) const {
    constexpr int kCopies = kBlockTiles * kBytes / 16;
    KIPP_UNROLL
    for (int i = 0; i < (kCopies + kThreads - 1) / kThreads; ++i) {
      const int copy = i * kThreads + thread_index();
      if (kCopies % kThreads != 0 && copy >= kCopies) break;
      const int tile_row = copy / (kBytes / 16);
      const int offset = (tile_row * tiles_ + tile_col) * kBytes + copy % (kBytes / 16) * 16;
      copy_async16(to + copy * 16, from + offset, tile_row < tile_rows_);
    }
  }

  int tiles_;
  int tile_rows_;
  const std::uint8_t* weights_;
  const std::uint8_t* scales_;
  int cols_;
  int tokens_;
  const std::uint16_t* inputs_;
};

// `kColumns` groups of 8 tokens per warp.
template <Scheme scheme, int kColumns, int kTerms>
KIPP_KERNEL void KIPP_LAUNCH_BOUNDS(kThreads, 1) tile_kernel(Product p, int slices_per_block) {
  let_next_start();
  wait_for_previous();
  using Shared = TileShared<scheme, kColumns, kTerms>;
  auto& shared = shared_as<Shared>();
  const int lane = lane_index();
  const int first_tile_row = block_x() * kBlockTiles;
  const int first_token = block_y() * block_tokens(kColumns);
  const int warp_tile = warp_index() / kWarpsAcross * kWarpTiles;
  const int warp_token = warp_index() % kWarpsAcross * kTokensOfMma * kColumns;
  const TileLoader<scheme, kColumns, kTerms> loader(p, first_tile_row, first_token);

  const int tiles = p.w.cols / kTileCols;
  const int per_slice = slice_tiles(p.w.cols);
  const int begin = block_z() * slices_per_block * per_slice;
  const int cut = begin + slices_per_block * per_slice;
  const int end = cut < tiles ? cut : tiles;

  float total[kWarpTiles][count(kColumns)][4] = {};
  float acc[kWarpTiles][count(kColumns)][4] = {};
  const auto for_each = [&](auto&& use) {
    KIPP_UNROLL
    for (int m = 0; m < kWarpTiles; ++m) {
      KIPP_UNROLL
      for (int n = 0; n < kColumns; ++n) {
        KIPP_UNROLL
        for (int c = 0; c < 4; ++c) {
          const int output = (first_tile_row + warp_tile + m) * kTileRows + lane / 4 + c / 2 * 8;
          const int token = first_token + warp_token + n * kTokensOfMma + lane % 4 * 2 + c % 2;
          use(m, n, c, output, token);
        }
      }
    }
  };

  KIPP_UNROLL
  for (int s = 0; s < kStages - 1; ++s) {
    if (begin + s < end) loader.start(shared.stages[s], begin + s);
    commit_copies();
  }
  int left_in_slice = per_slice;
  int slice = block_z() * slices_per_block;
  for (int tile = begin; tile < end; ++tile) {
    wait_copies<kStages - 2>();
    sync_block();  // the copies of all threads are there, and the stage
                   // before this one is free
    const int ahead = tile + kStages - 1;
    if (ahead < end) loader.start(shared.stages[(ahead - begin) % kStages], ahead);
    commit_copies();

    const auto& stage = shared.stages[(tile - begin) % kStages];
    LaneInputs in[count(kColumns)];
    float sums[count(kColumns)][2] = {};
    KIPP_UNROLL
    for (int n = 0; n < kColumns; ++n) {
      const int token = warp_token + n * kTokensOfMma + lane / 4;
      in[n].hi = load<Words4>(&stage.inputs[0][token][lane % 4 * 8]);
      if constexpr (kTerms == 2) in[n].lo = load<Words4>(&stage.inputs[1][token][lane % 4 * 8]);
      input_sums<scheme, kTerms>(sums[n], in[n]);
    }
    KIPP_UNROLL
    for (int m = 0; m < kWarpTiles; ++m) {
      const auto raw =
          load_lane<scheme, false>(stage.weights[warp_tile + m], stage.scales[warp_tile + m], lane);
      const TileOperands w = operands_of<scheme>(raw);
      const TileScales scales = scales_of<scheme>(raw);
      KIPP_UNROLL
      for (int n = 0; n < kColumns; ++n) {
        multiply_tile<scheme, kTerms>(acc[m][n], w, scales, in[n], sums[n]);
      }
    }

    if (--left_in_slice == 0 || tile + 1 == end) {
      left_in_slice = per_slice;
      if (p.partial != nullptr) {
        for_each([&](int m, int n, int c, int output, int token) {
          if (output < p.w.rows && token < p.in.rows) {
            p.partial[at(slice * p.in.rows + token, p.w.rows) + static_cast<std::size_t>(output)] =
                acc[m][n][c];
          }
          acc[m][n][c] = 0.0f;
        });
      } else {
        for_each([&](int m, int n, int c, int, int) {
          total[m][n][c] += acc[m][n][c];
          acc[m][n][c] = 0.0f;
        });
      }
      ++slice;
    }
  }
  wait_copies<0>();
  if (p.partial != nullptr) return;
  for_each([&](int m, int n, int c, int output, int token) {
    if (output < p.w.rows && token < p.in.rows) write_out(p, token, output, total[m][n][c]);
  });
}

// Adds the slices that blocks computed apart.
KIPP_KERNEL void add_slices_kernel(Product p, int slices) {
  let_next_start();
  wait_for_previous();
  const int output = block_x() * kThreads + thread_index();
  if (output >= p.w.rows) return;
  const int token = block_y();
  const auto part = [&](int slice) {
    return p.partial[at(slice * p.in.rows + token, p.w.rows) + static_cast<std::size_t>(output)];
  };
  float sum = 0.0f;
  for (int slice = 0; slice < slices; ++slice) sum += part(slice);
  write_out(p, token, output, sum);
}

// Blocks that an H200 (132 processors) is to have at least, two to each.
constexpr int kWantedBlocks = 264;

struct TileShape {
  int columns;  // groups of 8 tokens per warp
  Grid grid;
  int slices_per_block;  // kSlices: not cut
};

TileShape tile_shape(int rows, int outputs, int slices) {
  TileShape shape;
  shape.columns = rows <= block_tokens(1) ? 1 : rows <= block_tokens(2) ? 2 : 4;
  const int tokens = block_tokens(shape.columns);
  shape.grid = {(outputs + kBlockOutputs - 1) / kBlockOutputs, (rows + tokens - 1) / tokens, 1};
  shape.slices_per_block = kSlices;
  while (shape.slices_per_block > 1 &&
         shape.grid.x * shape.grid.y * (kSlices / shape.slices_per_block) * 2 <= kWantedBlocks) {
    shape.slices_per_block /= 2;
  }
  shape.grid.z = (slices + shape.slices_per_block - 1) / shape.slices_per_block;
  return shape;
}

template <Scheme scheme, int kTerms>
LaunchCode launch_few(Stream stream, const Product& p) {
  return launch(few_rows_kernel<scheme, kTerms>, Grid{tiles_of(p.w.rows), 1, 1}, kThreads,
                sizeof(FewRowsShared), stream, p);
}

template <Scheme scheme, int kColumns, int kTerms>
LaunchCode launch_tile(Stream stream, const Product& p, const TileShape& shape) {
  return launch(tile_kernel<scheme, kColumns, kTerms>, shape.grid, kThreads,
                sizeof(TileShared<scheme, kColumns, kTerms>), stream, p, shape.slices_per_block);
}

template <Scheme scheme, int kTerms>
LaunchCode multiply(Stream stream, Product p, Scratch scratch) {
  if (p.in.rows <= kFewRows) return launch_few<scheme, kTerms>(stream, p);
  const int slices = slices_of(p.w.cols);
  const TileShape shape = tile_shape(p.in.rows, p.w.rows, slices);
  if (shape.grid.z > 1) {
    if (scratch.bytes < matmul_scratch_bytes(p.in.rows, p.w.rows)) return kInvalidShape;
    p.partial = static_cast<float*>(scratch.data);
  }
  const LaunchCode code = shape.columns == 1   ? launch_tile<scheme, 1, kTerms>(stream, p, shape)
                          : shape.columns == 2 ? launch_tile<scheme, 2, kTerms>(stream, p, shape)
                                               : launch_tile<scheme, 4, kTerms>(stream, p, shape);
  if (code != kLaunched || p.partial == nullptr) return code;
  const Grid grid{(p.w.rows + kThreads - 1) / kThreads, p.in.rows, 1};
  return launch(add_slices_kernel, grid, kThreads, 0, stream, p, slices);
}

template <Scheme scheme>
LaunchCode multiply(Stream stream, const Product& p, int terms, Scratch scratch) {
  return terms == 2 ? multiply<scheme, 2>(stream, p, scratch)
                    : multiply<scheme, 1>(stream, p, scratch);
}

}  // namespace

std::size_t matmul_scratch_bytes(int rows, int out_cols) {
  if (rows <= kFewRows || tile_shape(rows, out_cols, kSlices).grid.z == 1) return 0;
  return at(kSlices * rows, out_cols) * sizeof(float);
}

LaunchCode matmul(Stream stream, F32Rows out, SplitRows in, const DeviceMatrix& w, Write write,
                  int terms, Scratch scratch) {
  if (in.cols != w.cols || out.cols != w.rows || in.rows != out.rows || w.rows <= 0 ||
      w.cols <= 0 || w.cols % kTileCols != 0 || (terms != 1 && terms != 2)) {
    return kInvalidShape;
  }
  if (in.rows == 0) return kLaunched;
  const Product product{w, in, out, write, nullptr};
  switch (w.scheme) {
    case Scheme::bf16:
      return multiply<Scheme::bf16>(stream, product, terms, scratch);
    case Scheme::q8_0:
      return multiply<Scheme::q8_0>(stream, product, terms, scratch);
    case Scheme::affine4_gs32:
      return multiply<Scheme::affine4_gs32>(stream, product, terms, scratch);
    case Scheme::scale4_gs32:
      return multiply<Scheme::scale4_gs32>(stream, product, terms, scratch);
  }
  return kInvalidShape;
}

}  // namespace kipp::cuda
