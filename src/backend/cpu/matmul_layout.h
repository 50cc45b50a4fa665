// Where a weight lies in a packed panel, and an input in scratch: what the packer, the kernels and
// the laying out of inputs share.
//
// A panel is kPanelRows rows; its blocks of 32 columns follow each other, so a product streams
// memory from end to end. A block holds, without gaps and in this order:
//
//   scales  [kPanelRows] fp16                quantized schemes
//   biases  [kPanelRows] fp16                affine4_gs32
//   codes   lines of 64 bytes, the four strips of kStripRows rows in turn: [lines][strips][64]
//     bf16     16 lines: a pair of columns, [rows] u32, the even column in the low half
//     q8_0     8 lines: two pairs of columns, [2][rows] two int8, the even column first
//     4-bit    4 lines: a word, [rows] u32; nibbles n and n + 4 are the columns pair_at(word, n)
//
// A kernel that takes all strips reads a block from end to end, one that takes fewer reads whole
// lines. A strip is one vector of 512 bits, two of 256 or four of 128: kernels of any width read
// the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/matmul.h"
#include "model/weights.h"

namespace kipp::cpu {

inline constexpr int kStripRows = 16;
inline constexpr int kStrips = kPanelRows / kStripRows;

inline constexpr int kLineBytes = 64;

// Offsets are signed, as pointer arithmetic is.
struct BlockLayout {
  std::ptrdiff_t codes_at = 0;  // scales, then biases, lie before
  std::ptrdiff_t bytes = 0;     // of the whole block: a multiple of kLineBytes
};

constexpr BlockLayout block_layout(Scheme scheme) {
  constexpr std::ptrdiff_t kHalves = kPanelRows * 2;  // one fp16 per row
  const std::ptrdiff_t codes_at = scheme == Scheme::bf16           ? 0
                                  : scheme == Scheme::affine4_gs32 ? 2 * kHalves
                                                                   : kHalves;
  return {.codes_at = codes_at,
          .bytes = kPanelRows * static_cast<std::ptrdiff_t>(row_bytes(scheme, kQuantBlock))};
}

// Where a strip's line begins, from the codes of the block on.
constexpr int line_at(int line, int strip) { return (line * kStrips + strip) * kLineBytes; }

constexpr std::ptrdiff_t panel_bytes(Scheme scheme, int cols) {
  return block_layout(scheme).bytes * (cols / kQuantBlock);
}

inline constexpr int kPairs = kQuantBlock / 2;  // of columns in a block
inline constexpr int kWords = 4;                // of 4-bit codes in a row of a block
inline constexpr int kPairsPerWord = kPairs / kWords;

// Words of an artifact's 4-bit block hold columns 4 w .. 4 w + 3 and, above them in each byte,
// those 16 further on; a packed word holds the two pairs of the former first.
constexpr int pair_at(int word, int n) { return 2 * word + n % 2 + n / 2 * (kPairs / 2); }

// The inputs of one token in one block, as quantized schemes take them: 32 integers of 16 bits, and
// this.
struct BlockInput {
  float scale;          // x = scale * integer
  float sum;            // of these x, for the biases of affine4_gs32
  std::int32_t offset;  // -8 * sum of the integers, for the codes of scale4_gs32
};

}  // namespace kipp::cpu
