// Weights from the artifact's order into that of weight_layout.h, on the device: 16 GB pass in
// about 8 ms at 4 TB/s (read and written once), which the copy over PCIe hides. Nothing of this has
// run on a GPU yet; the emulated build of this file is tested.
#include "backend/cuda/weight_layout.h"

namespace kipp::cuda {

namespace {

constexpr int kPackThreads = 128;

// One thread per lane position: the eight columns of one row that a lane owns, so four threads of a
// row and tile hold its 32 weights.
struct PackJob {
  DeviceMatrix to;
  const std::uint8_t* stored;  // [n, row_bytes]
  int first;
  int n;
  std::size_t stored_row_bytes;
};

KIPP_DEVICE std::uint32_t half_word(const std::uint8_t* from) { return load<std::uint16_t>(from); }

template <Scheme scheme>
KIPP_KERNEL void pack_kernel(PackJob job) {
  let_next_start();
  wait_for_previous();
  const int blocks_of_row = job.to.cols / kTileCols;
  const int parts = blocks_of_row * 4;
  const int index = block_x() * kPackThreads + thread_index();
  const int stored_row = index / parts;
  const int part = index % parts;
  if (stored_row >= job.n) return;
  const int tile_col = part / 4;
  const int pair = part % 4;
  const int row = job.first + stored_row;
  const int group = row % 8;
  const int upper = row % kTileRows / 8;
  const int lane = group * 4 + pair;
  const std::size_t tile = at(row / kTileRows, blocks_of_row) + static_cast<std::size_t>(tile_col);
  const std::uint8_t* stored =
      job.stored + static_cast<std::size_t>(stored_row) * job.stored_row_bytes;
  std::uint8_t* weights = job.to.weights + tile * TileBytes<scheme>::kWeights;
  std::uint8_t* scales = job.to.scales + tile * TileBytes<scheme>::kScales;

  if constexpr (scheme == Scheme::bf16) {
    const std::uint8_t* from = stored + (tile_col * 4 + pair) * 16;
    Words4 out;
    KIPP_UNROLL
    for (int i = 0; i < 4; ++i) {
      out.w[i] = half_word(from + 4 * i) | (half_word(from + 4 * i + 2) << 16);
    }
    store(weights + upper * 512 + lane * 16, out);
  } else if constexpr (scheme == Scheme::q8_0) {
    const std::uint8_t* block = stored + static_cast<std::size_t>(tile_col) * 34;
    const std::uint8_t* from = block + 2 + pair * 8;
    Words2 out;
    KIPP_UNROLL
    for (int i = 0; i < 2; ++i) {
      out.w[i] = half_word(from + 4 * i) | (half_word(from + 4 * i + 2) << 16);
    }
    store(weights + lane * 16 + upper * 8, out);
    if (pair == 0) store(scales + group * 4 + upper * 2, load<std::uint16_t>(block));
  } else {
    constexpr bool kAffine = scheme == Scheme::affine4_gs32;
    const std::uint8_t* block = stored + static_cast<std::size_t>(tile_col) * (kAffine ? 20 : 18);
    const std::uint8_t* nibbles = block + (kAffine ? 4 : 2);
    // ggml keeps column c < 16 in the low nibble of byte c, column c + 16 in the high one.
    std::uint32_t word = 0;
    KIPP_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int col = pair * 8 + i;
      const std::uint32_t byte = nibbles[col % 16];
      const std::uint32_t q = col < 16 ? byte & 15u : byte >> 4;
      word |= q << (i / 2 * 4 + i % 2 * 16);
    }
    store(weights + lane * 8 + upper * 4, word);
    if (pair == 0) {
      std::uint8_t* to = scales + group * (kAffine ? 8 : 4) + upper * 2;
      store(to, load<std::uint16_t>(block));
      if constexpr (kAffine) store(to + 4, load<std::uint16_t>(block + 2));
    }
  }
}

}  // namespace

namespace {

std::size_t tile_count(int rows, int cols) { return at(tiles_of(rows), cols / kTileCols); }

}  // namespace

std::size_t packed_weight_bytes(Scheme scheme, int rows, int cols) {
  const std::size_t tiles = tile_count(rows, cols);
  switch (scheme) {
    case Scheme::bf16:
      return tiles * TileBytes<Scheme::bf16>::kWeights;
    case Scheme::q8_0:
      return tiles * TileBytes<Scheme::q8_0>::kWeights;
    case Scheme::affine4_gs32:
    case Scheme::scale4_gs32:
      return tiles * TileBytes<Scheme::scale4_gs32>::kWeights;
  }
  return 0;
}

std::size_t packed_scale_bytes(Scheme scheme, int rows, int cols) {
  const std::size_t tiles = tile_count(rows, cols);
  switch (scheme) {
    case Scheme::bf16:
      return 0;
    case Scheme::q8_0:
    case Scheme::scale4_gs32:
      return tiles * TileBytes<Scheme::scale4_gs32>::kScales;
    case Scheme::affine4_gs32:
      return tiles * TileBytes<Scheme::affine4_gs32>::kScales;
  }
  return 0;
}

LaunchCode pack_rows(Stream stream, const DeviceMatrix& to, int first, int n, const void* stored) {
  if (to.cols <= 0 || to.cols % kTileCols != 0 || first < 0 || n < 0 || n > to.rows - first) {
    return kInvalidShape;
  }
  const int parts = to.cols / kTileCols * 4;
  // So that the threads of a launch are counted in an int, up to 32,768 columns.
  constexpr int kRowsAtOnce = 1 << 17;
  PackJob job{to, static_cast<const std::uint8_t*>(stored), first, 0,
              row_bytes(to.scheme, to.cols)};
  for (int done = 0; done < n; done += job.n) {
    job.n = n - done < kRowsAtOnce ? n - done : kRowsAtOnce;
    const Grid grid{(parts * job.n + kPackThreads - 1) / kPackThreads, 1, 1};
    const auto kernel = to.scheme == Scheme::bf16           ? pack_kernel<Scheme::bf16>
                        : to.scheme == Scheme::q8_0         ? pack_kernel<Scheme::q8_0>
                        : to.scheme == Scheme::affine4_gs32 ? pack_kernel<Scheme::affine4_gs32>
                                                            : pack_kernel<Scheme::scale4_gs32>;
    if (const LaunchCode code = launch(kernel, grid, kPackThreads, 0, stream, job);
        code != kLaunched) {
      return code;
    }
    job.first += job.n;
    job.stored += static_cast<std::size_t>(job.n) * job.stored_row_bytes;
  }
  return kLaunched;
}

}  // namespace kipp::cuda
