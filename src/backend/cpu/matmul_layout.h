// Where a weight lies in a packed panel: the one place that the packer, the kernels and the tests
// share.
//
// A panel is kPanelRows rows; its blocks of 32 columns follow each other, so a product streams
// memory from end to end. A block holds, without gaps and in this order:
//
//   scales  [kPanelRows] fp16                quantized schemes
//   biases  [kPanelRows] fp16                affine4_gs32
//   codes   [strips of kStripRows rows]
//     bf16     [16 pairs of columns][rows] u32: the even column in the low half
//     q8_0     [32 columns][rows] int8
//     4-bit    [4 words][rows] u32: the words of the artifact's block as they are, eight codes each
//
// A strip is one vector of 512 bits, two of 256 or four of 128: kernels of any width read the same
// bytes.
#pragma once

#include <array>
#include <cstddef>

#include "backend/cpu/matmul.h"
#include "model/weights.h"

namespace kipp::cpu {

inline constexpr int kStripRows = 16;
inline constexpr int kStrips = kPanelRows / kStripRows;

// Offsets are signed, as pointer arithmetic is.
struct BlockLayout {
  std::ptrdiff_t codes_at = 0;     // scales, then biases, lie before
  std::ptrdiff_t strip_bytes = 0;  // codes of one strip
  std::ptrdiff_t bytes = 0;        // of the whole block: a multiple of 64
};

constexpr BlockLayout block_layout(Scheme scheme) {
  constexpr std::ptrdiff_t kHalves = kPanelRows * 2;  // one fp16 per row
  const std::ptrdiff_t codes_at = scheme == Scheme::bf16           ? 0
                                  : scheme == Scheme::affine4_gs32 ? 2 * kHalves
                                                                   : kHalves;
  const auto bytes = kPanelRows * static_cast<std::ptrdiff_t>(row_bytes(scheme, kQuantBlock));
  return {.codes_at = codes_at, .strip_bytes = (bytes - codes_at) / kStrips, .bytes = bytes};
}

constexpr std::ptrdiff_t panel_bytes(Scheme scheme, int cols) {
  return block_layout(scheme).bytes * (cols / kQuantBlock);
}

constexpr bool four_bit(Scheme scheme) {
  return scheme == Scheme::affine4_gs32 || scheme == Scheme::scale4_gs32;
}

inline constexpr int kWords = 4;         // of 4-bit codes in a row of a block
inline constexpr int kCodesPerWord = 8;  // 4-bit codes
inline constexpr int kTopNibble = kCodesPerWord - 1;

// The columns of a block in the order in which a kernel adds them. Byte i of an artifact's 4-bit
// block holds column i below and column i + 16 above, which gives the nibbles of its words.
constexpr int column_of(Scheme scheme, int step) {
  if (!four_bit(scheme)) return step;
  return step / kCodesPerWord * kWords + step % kCodesPerWord / 2 + step % 2 * (kQuantBlock / 2);
}

// A 4-bit code is masked where it stands in its word, which makes it code * 16^nibble; the input of
// its column is divided by that power beforehand. Both are exact, and a kernel is spared the shift.
// The top nibble is shifted down instead, since the mask would leave the sign bit set.
constexpr float input_factor(Scheme scheme, int step) {
  if (!four_bit(scheme) || step % kCodesPerWord == kTopNibble) return 1.0f;
  return 1.0f / static_cast<float>(1 << (4 * (step % kCodesPerWord)));
}

}  // namespace kipp::cpu
