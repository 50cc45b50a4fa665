// The order in which kernels read weights, and how a lane turns what it read into operands of the
// tensor cores. A matrix is cut into tiles of 16 rows by 32 columns, one row of tiles after the
// other, so that a warp that walks along its rows reads one contiguous stream and every load of a
// warp is contiguous, whatever the scheme.
//
// Within a tile lane (group, pair) owns columns 8 pair .. 8 pair + 7 of rows group and group + 8.
// An mma wants other columns of a lane, but a dot product may take its columns in any order as long
// as both operands take the same: instruction i of the two that a tile needs takes elements
// 4 i .. 4 i + 3 of each lane's eight, and activations are taken likewise (eight consecutive BF16,
// one 16-byte load).
//
//   scheme        bytes of a tile: weights                            scales, [group 0..7] of
//   bf16          1024: [row group, row group + 8][lane][8 BF16]      -
//   q8_0           512: [lane][row group: 8 int8, row group + 8]      fp16 of both rows
//   affine4_gs32   256: [lane][row group: 8 nibbles, row group + 8]   fp16 scales of both, biases
//   scale4_gs32    256: likewise                                      fp16 of both rows
// The low half of a word of nibbles holds the even elements, the high half the odd ones, so that
// one shift and mask give a pair.
#pragma once

#include "backend/cuda/device_code.h"

namespace kipp::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kTileCols = 32;
static_assert(kTileCols == kQuantBlock);

constexpr int tiles_of(int rows) { return (rows + kTileRows - 1) / kTileRows; }

template <Scheme scheme>
struct TileBytes;
template <>
struct TileBytes<Scheme::bf16> {
  static constexpr int kWeights = 1024;
  static constexpr int kScales = 0;
};
template <>
struct TileBytes<Scheme::q8_0> {
  static constexpr int kWeights = 512;
  static constexpr int kScales = 32;
};
template <>
struct TileBytes<Scheme::affine4_gs32> {
  static constexpr int kWeights = 256;
  static constexpr int kScales = 64;
};
template <>
struct TileBytes<Scheme::scale4_gs32> {
  static constexpr int kWeights = 256;
  static constexpr int kScales = 32;
};

// What one lane reads of a tile: from the matrix, or from a tile copied to shared memory.
template <Scheme scheme>
struct LaneWeights {
  Words2 weights;  // 4-bit schemes
  Words2 scales;
};
template <>
struct LaneWeights<Scheme::q8_0> {
  Words4 weights;
  Words2 scales;
};
template <>
struct LaneWeights<Scheme::bf16> {
  Words4 row, row_8;
};

template <Scheme scheme, bool kStreaming>
KIPP_DEVICE LaneWeights<scheme> load_lane(const std::uint8_t* weights, const std::uint8_t* scales,
                                          int lane) {
  LaneWeights<scheme> out;
  if constexpr (scheme == Scheme::bf16) {
    if constexpr (kStreaming) {
      out.row = load_streaming<Words4>(weights + lane * 16);
      out.row_8 = load_streaming<Words4>(weights + 512 + lane * 16);
    } else {
      out.row = load<Words4>(weights + lane * 16);
      out.row_8 = load<Words4>(weights + 512 + lane * 16);
    }
  } else {
    using Weights = decltype(out.weights);
    const std::uint8_t* from = weights + lane * static_cast<int>(sizeof(Weights));
    if constexpr (kStreaming) {
      out.weights = load_streaming<Weights>(from);
    } else {
      out.weights = load<Weights>(from);
    }
    if constexpr (scheme == Scheme::affine4_gs32) {
      out.scales = load<Words2>(scales + lane / 4 * 8);
    } else {
      out.scales = {{load<std::uint32_t>(scales + lane / 4 * 4), 0}};
    }
  }
  return out;
}

// Both operands of a tile: exact BF16 values, q or q - 8 where weights are quantized.
struct TileOperands {
  std::uint32_t a[2][4];
};

// Bytes as the high halves of floats: 2^23 + (q + 128) less 2^23 + 128 is q, which needs 8 bits.
KIPP_DEVICE std::uint32_t q8_pair(std::uint32_t biased, int first) {
  const float magic = 8388736.0f;  // 2^23 + 128
  const float low = byte_above_2_23(biased, first) - magic;
  const float high = byte_above_2_23(biased, first + 1) - magic;
  return high_halves(float_to_bits(low), float_to_bits(high));
}
// BF16 128 + q less 136.
KIPP_DEVICE std::uint32_t q4_pair(std::uint32_t nibbles, int pair) {
  return sub_bf16(and_or(nibbles >> (4 * pair), 0x000f000fu, 0x43004300u), 0x43084308u);
}

template <Scheme scheme>
KIPP_DEVICE TileOperands operands_of(const LaneWeights<scheme>& lane) {
  TileOperands out;
  KIPP_UNROLL
  for (int i = 0; i < 2; ++i) {
    KIPP_UNROLL
    for (int half = 0; half < 2; ++half) {
      if constexpr (scheme == Scheme::bf16) {
        out.a[i][2 * half] = lane.row.w[2 * i + half];
        out.a[i][2 * half + 1] = lane.row_8.w[2 * i + half];
      } else if constexpr (scheme == Scheme::q8_0) {
        out.a[i][2 * half] = q8_pair(lane.weights.w[i] ^ 0x80808080u, 2 * half);
        out.a[i][2 * half + 1] = q8_pair(lane.weights.w[2 + i] ^ 0x80808080u, 2 * half);
      } else {
        out.a[i][2 * half] = q4_pair(lane.weights.w[0], 2 * i + half);
        out.a[i][2 * half + 1] = q4_pair(lane.weights.w[1], 2 * i + half);
      }
    }
  }
  return out;
}

// Scale and offset of a lane's two rows: value = scale * operand + offset.
struct TileScales {
  float scale[2];
  float offset[2];
};

template <Scheme scheme>
KIPP_DEVICE TileScales scales_of(const LaneWeights<scheme>& lane) {
  TileScales out = {{1.0f, 1.0f}, {0.0f, 0.0f}};
  if constexpr (scheme != Scheme::bf16) {
    KIPP_UNROLL
    for (int i = 0; i < 2; ++i) {
      out.scale[i] = f16_bits_to_float((lane.scales.w[0] >> (16 * i)) & 0xffffu);
      if constexpr (scheme == Scheme::affine4_gs32) {
        const float bias = f16_bits_to_float((lane.scales.w[1] >> (16 * i)) & 0xffffu);
        out.offset[i] = fma(8.0f, out.scale[i], bias);  // q = (q - 8) + 8
      }
    }
  }
  return out;
}

// Activations of one token for one tile, as a lane takes them: its eight of hi and of lo.
struct LaneInputs {
  Words4 hi, lo;
};

// acc += 16x32 tile times 32x8 inputs: the one order of additions of every projection. kTerms 1
// leaves lo out. `sums` are the columns' sums that input_sums() makes, for affine4_gs32 only.
template <Scheme scheme, int kTerms>
KIPP_DEVICE void multiply_tile(float (&acc)[4], const TileOperands& w, const TileScales& scales,
                               const LaneInputs& in, const float (&sums)[2]) {
  if constexpr (scheme == Scheme::bf16) {
    KIPP_UNROLL
    for (int i = 0; i < 2; ++i) {
      if constexpr (kTerms == 2) mma_bf16(acc, w.a[i], in.lo.w[2 * i], in.lo.w[2 * i + 1]);
      mma_bf16(acc, w.a[i], in.hi.w[2 * i], in.hi.w[2 * i + 1]);
    }
  } else {
    float block[4];
    const Words4& first = kTerms == 2 ? in.lo : in.hi;
    mma_bf16_first(block, w.a[0], first.w[0], first.w[1]);
    if constexpr (kTerms == 2) mma_bf16(block, w.a[0], in.hi.w[0], in.hi.w[1]);
    if constexpr (kTerms == 2) mma_bf16(block, w.a[1], in.lo.w[2], in.lo.w[3]);
    mma_bf16(block, w.a[1], in.hi.w[2], in.hi.w[3]);
    KIPP_UNROLL
    for (int c = 0; c < 4; ++c) {
      acc[c] = fma(scales.scale[c / 2], block[c], acc[c]);
      if constexpr (scheme == Scheme::affine4_gs32) {
        acc[c] = fma(scales.offset[c / 2], sums[c % 2], acc[c]);
      }
    }
  }
}

// The sums of 32 inputs of a lane's two tokens: a tile of ones times them, the same in every row.
template <Scheme scheme, int kTerms>
KIPP_DEVICE void input_sums(float (&sums)[2], const LaneInputs& in) {
  if constexpr (scheme == Scheme::affine4_gs32) {
    constexpr std::uint32_t kOnes = 0x3f803f80u;
    const std::uint32_t ones[4] = {kOnes, kOnes, kOnes, kOnes};
    float rows[4] = {};
    KIPP_UNROLL
    for (int i = 0; i < 2; ++i) {
      if constexpr (kTerms == 2) mma_bf16(rows, ones, in.lo.w[2 * i], in.lo.w[2 * i + 1]);
      mma_bf16(rows, ones, in.hi.w[2 * i], in.hi.w[2 * i + 1]);
    }
    sums[0] = rows[0];
    sums[1] = rows[1];
  }
}

}  // namespace kipp::cuda
