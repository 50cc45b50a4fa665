#include "backend/cpu/matmul_pack.h"

#include <array>
#include <cstdint>
#include <cstring>

#include "backend/cpu/matmul_layout.h"

namespace kipp::cpu {

namespace {

using RowPointers = std::array<const std::byte*, kPanelRows>;  // null past the last row

RowPointers rows_of(const StackedMatrix& matrix, int panel) {
  RowPointers rows = {};
  int part_at = 0;
  for (const MatrixView& part : matrix.views()) {
    for (int i = 0; i < kPanelRows; ++i) {
      const int row = panel * kPanelRows + i - part_at;
      if (row >= 0 && row < part.rows) rows[static_cast<std::size_t>(i)] = part.row(row).data();
    }
    part_at += part.rows;
  }
  return rows;
}

// Words of one row, one to a line.
template <int kCount>
void scatter_words(const std::byte* in, std::byte* out) {
  for (int i = 0; i < kCount; ++i) std::memcpy(out + line_at(i, 0), in + 4 * i, 4);
}

// Swaps the bits of `word` under `mask` with those `shift` above.
constexpr std::uint32_t swap_bits(std::uint32_t word, int shift, std::uint32_t mask) {
  const std::uint32_t change = ((word >> shift) ^ word) & mask;
  return word ^ change ^ (change << shift);
}

// From the artifact's nibbles (byte i of a block: column i below, i + 16 above) to pairs: nibble
// 4, 1, 5, 2, 6, 3 become 1 to 6.
void scatter_nibbles(const std::byte* in, std::byte* out) {
  std::uint32_t words[kWords];
  std::memcpy(words, in, sizeof(words));
  for (std::uint32_t& word : words) {
    word = swap_bits(word, 4, 0x00f000f0);
    word = swap_bits(word, 12, 0x0000f0f0);
  }
  for (int i = 0; i < kWords; ++i) std::memcpy(out + line_at(i, 0), &words[i], 4);
}

// One block of one row. `halves` is where its scale goes, `codes` the row's lane in the first line
// of its strip.
template <Scheme kScheme>
void pack_row(const std::byte* in, std::byte* halves, std::byte* codes) {
  if constexpr (kScheme == Scheme::bf16) {
    scatter_words<kPairs>(in, codes);
  } else if constexpr (kScheme == Scheme::q8_0) {
    std::memcpy(halves, in, 2);
    for (int p = 0; p < kPairs; ++p) {
      std::memcpy(codes + line_at(p / 2, 0) + p % 2 * (kLineBytes / 2), in + 2 + 2 * p, 2);
    }
  } else if constexpr (kScheme == Scheme::scale4_gs32) {
    std::memcpy(halves, in, 2);
    scatter_nibbles(in + 2, codes);
  } else {
    std::memcpy(halves, in, 2);
    std::memcpy(halves + 2 * kPanelRows, in + 2, 2);
    scatter_nibbles(in + 4, codes);
  }
}

template <Scheme kScheme>
void pack(const RowPointers& rows, int begin, int end, std::byte* out) {
  constexpr BlockLayout kLayout = block_layout(kScheme);
  constexpr auto kRowBlock = static_cast<std::ptrdiff_t>(row_bytes(kScheme, kQuantBlock));
  constexpr int kLaneBytes = kScheme == Scheme::q8_0 ? 2 : 4;
  for (int strip = 0; strip < kStrips; ++strip) {
    for (int b = begin; b < end; ++b) {  // 16 rows read side by side, which a core can prefetch
      std::byte* block = out + (b - begin) * kLayout.bytes;
      std::byte* codes = block + kLayout.codes_at + line_at(0, strip);
      for (int i = 0; i < kStripRows; ++i) {
        const int row = strip * kStripRows + i;
        const std::byte* in = rows[static_cast<std::size_t>(row)];
        if (in == nullptr) continue;
        pack_row<kScheme>(in + b * kRowBlock, block + 2 * row, codes + i * kLaneBytes);
      }
    }
  }
}

}  // namespace

void pack_blocks(const StackedMatrix& matrix, int panel, int begin, int end, std::byte* out) {
  const Scheme scheme = matrix.parts[0].scheme;
  const RowPointers rows = rows_of(matrix, panel);
  if (rows.back() == nullptr) {
    std::memset(out, 0, static_cast<std::size_t>(block_layout(scheme).bytes * (end - begin)));
  }
  switch (scheme) {
    case Scheme::bf16:
      return pack<Scheme::bf16>(rows, begin, end, out);
    case Scheme::q8_0:
      return pack<Scheme::q8_0>(rows, begin, end, out);
    case Scheme::affine4_gs32:
      return pack<Scheme::affine4_gs32>(rows, begin, end, out);
    case Scheme::scale4_gs32:
      return pack<Scheme::scale4_gs32>(rows, begin, end, out);
  }
}

std::size_t packed_bytes(const StackedMatrix& matrix) {
  return static_cast<std::size_t>(panel_bytes(matrix.parts[0].scheme, matrix.cols()) *
                                  panels_of(matrix.rows()));
}

void pack_panels(const StackedMatrix& matrix, int begin, int end, std::span<std::byte> out) {
  const std::ptrdiff_t bytes = panel_bytes(matrix.parts[0].scheme, matrix.cols());
  for (int panel = begin; panel < end; ++panel) {
    pack_blocks(matrix, panel, 0, matrix.cols() / kQuantBlock, out.data() + panel * bytes);
  }
}

}  // namespace kipp::cpu
