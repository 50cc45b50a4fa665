// The one kernel of every product, for whatever vector width the target has: a few strips of rows
// times a few tokens in registers, along the columns of a panel.
//
// The sum of one output:
//   bf16     acc = fma(w, x, acc) over all columns
//   q8_0     per block p = fma(q, x, p) over its 32 columns from 0; acc = fma(scale, p, acc)
//   scale4   the same from p = -8 * sum of the block's x, since the codes are 8 too large
//   affine4  the same from 0, then acc = fma(bias, sum of the block's x, acc)
// A scale is thus multiplied once per block instead of once per weight. acc is kept in memory
// between runs of columns, which is exact.
//
// Included once per target; no include guard.

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/matmul_layout.h"

HWY_BEFORE_NAMESPACE();
namespace kipp::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Df = hn::CappedTag<float, kStripRows>;
using Di = hn::RebindToSigned<Df>;
using Du = hn::RebindToUnsigned<Df>;
using Vf = hn::Vec<Df>;
using Vu = hn::Vec<Du>;

inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(Df()));
inline constexpr int kVectorsPerStrip = kStripRows / kLanes;

// Vectors of sums that a compiler keeps in registers beside weights and inputs. With 12 of 16,
// GCC 12 moved some to memory and bf16 fell from 86 to 62 % of the multiply-add peak on AVX2.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_ARCH_ARM_A64
inline constexpr int kSumVectors = 24;
#else
inline constexpr int kSumVectors = 10;
#endif

// Strips a kernel takes at once: as many as the sums of its tokens leave room for.
constexpr int strips_at_once(int tokens) {
  int strips = kStrips;
  while (strips > 1 && strips * kVectorsPerStrip * tokens > kSumVectors) strips /= 2;
  return strips;
}

// Hides from the compiler that a pointer is still the same, so that what it points to is loaded
// again instead of being kept: a load is cheap, a sum driven out of its register is not.
template <class T>
HWY_INLINE const T* again(const T* pointer) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  asm("" : "+r"(pointer));
#endif
  return pointer;
}

// Masks of the codes of a 4-bit word. In memory: as constants GCC would keep all seven in
// registers.
struct CodeMasks {
  alignas(64) std::uint32_t lanes[kCodesPerWord][kStripRows];
};
inline constexpr CodeMasks kCodeMasks = [] {
  CodeMasks masks = {};
  for (int nibble = 0; nibble < kCodesPerWord; ++nibble) {
    for (std::uint32_t& lane : masks.lanes[nibble]) lane = 0xfu << (4 * nibble);
  }
  return masks;
}();

// One tile: where it reads and writes.
struct Tile {
  const std::byte* block;  // the panel's first block of the chunk
  int strip;               // the first of strips_at_once(tokens)
  int n_blocks;
  const float* x;        // [n_blocks * 32][tokens], columns in the order of column_of()
  const float* sums;     // [n_blocks][tokens], 4-bit schemes
  float* acc;            // [strips][acc_tokens][kStripRows], moved to the first token
  int acc_tokens;        // tokens of the run
  std::ptrdiff_t ahead;  // how far ahead of what is read the next weights are asked for
};

template <Scheme kScheme, int kTokens>
struct Kernel {
  static constexpr BlockLayout kLayout = block_layout(kScheme);
  static constexpr int kAtOnce = strips_at_once(kTokens);
  static constexpr int kVectors = kAtOnce * kVectorsPerStrip;
  using Sums = Vf[static_cast<std::size_t>(kVectors)][static_cast<std::size_t>(kTokens)];

  static HWY_INLINE float* acc_at(const Tile& tile, int v, int t) {
    return tile.acc + ((v / kVectorsPerStrip) * tile.acc_tokens + t) * kStripRows +
           v % kVectorsPerStrip * kLanes;
  }

  // Where lane 0 of vector v finds its code in row `row` of the strips' codes, `size` bytes each.
  static HWY_INLINE const std::byte* code_at(const std::byte* codes, int v, int row, int size) {
    return codes + (v / kVectorsPerStrip) * kLayout.strip_bytes +
           (row * kStripRows + v % kVectorsPerStrip * kLanes) * size;
  }

  static HWY_INLINE Vu words(const std::byte* codes, int v, int row) {
    return hn::Load(Du(), reinterpret_cast<const std::uint32_t*>(code_at(codes, v, row, 4)));
  }

  static HWY_INLINE Vf halves(const std::byte* strip, int v) {
    const hn::Rebind<hwy::float16_t, Df> d16;
    return hn::PromoteTo(
        Df(), hn::Load(d16, reinterpret_cast<const hwy::float16_t*>(strip) + v * kLanes));
  }

  // One column: weight(v) times the inputs x. Of weights and inputs the fewer stay in registers.
  template <class Weight>
  static HWY_INLINE void add_column(Sums& sum, const float* x, const Weight& weight) {
    if constexpr (kTokens <= kVectors) {
      Vf input[static_cast<std::size_t>(kTokens)];
      for (int t = 0; t < kTokens; ++t) input[t] = hn::Set(Df(), x[t]);
      for (int v = 0; v < kVectors; ++v) {
        const Vf w = weight(v);
        for (int t = 0; t < kTokens; ++t) sum[v][t] = hn::MulAdd(w, input[t], sum[v][t]);
      }
    } else {
      Vf w[static_cast<std::size_t>(kVectors)];
      for (int v = 0; v < kVectors; ++v) w[v] = weight(v);
      for (int t = 0; t < kTokens; ++t) {
        const Vf input = hn::Set(Df(), x[t]);
        for (int v = 0; v < kVectors; ++v) sum[v][t] = hn::MulAdd(w[v], input, sum[v][t]);
      }
    }
  }

  // Step `step` of kSteps through a block: asks for this tile's share of the block that lies ahead.
  // Without it the hardware, which sees several streams, brought bf16 from memory at a third of the
  // bandwidth. All strips at once read in order and want the first-level cache; fewer come back for
  // the others, so the whole chunk must wait in the second.
  template <int kSteps>
  static HWY_INLINE void ask(const std::byte* ahead, int step) {
    constexpr int kLines = static_cast<int>(kLayout.bytes) / 64 * kAtOnce / kStrips;
    constexpr int kLinesPerStep = (kLines + kSteps - 1) / kSteps;
    for (int i = 0; i < kLinesPerStep; ++i) {
      const std::byte* line = ahead + (step * kLinesPerStep + i) * 64;
      if constexpr (kAtOnce == kStrips) {
        hwy::Prefetch(line);
      } else {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
        __builtin_prefetch(line, 0, 2);
#endif
      }
    }
  }

  static HWY_INLINE void add_bf16(Sums& sum, const std::byte* codes, const float* x,
                                  const std::byte* ahead) {
    const Vu high = hn::Set(Du(), 0xffff0000u);
    for (int pair = 0; pair < kQuantBlock / 2; ++pair) {
      ask<kQuantBlock / 2>(ahead, pair);
      add_column(sum, x + 2 * pair * kTokens, [&](int v) HWY_ATTR {
        return hn::BitCast(Df(), hn::ShiftLeft<16>(words(codes, v, pair)));
      });
      codes = again(codes);
      add_column(sum, x + (2 * pair + 1) * kTokens, [&](int v) HWY_ATTR {
        return hn::BitCast(Df(), hn::And(words(codes, v, pair), high));
      });
    }
  }

  static HWY_INLINE void add_q8(Sums& sum, const std::byte* codes, const float* x,
                                const std::byte* ahead) {
    for (int c = 0; c < kQuantBlock; ++c) {
      ask<kQuantBlock>(ahead, c);
      add_column(sum, x + c * kTokens, [&](int v) HWY_ATTR {
        const hn::Rebind<std::int8_t, Df> d8;
        const auto* at = reinterpret_cast<const std::int8_t*>(code_at(codes, v, c, 1));
        return hn::ConvertTo(Df(), hn::PromoteTo(Di(), hn::Load(d8, at)));
      });
    }
  }

  template <int kNibble>
  static HWY_INLINE void add_nibble(Sums& sum, const std::byte* codes, int word, const float* x) {
    const Vu mask = hn::Load(Du(), again(kCodeMasks.lanes[kNibble]));
    add_column(sum, x + (word * kCodesPerWord + kNibble) * kTokens, [&](int v) HWY_ATTR {
      const Vu all = words(codes, v, word);
      const Vu code = kNibble == kTopNibble ? hn::ShiftRight<28>(all) : hn::And(all, mask);
      return hn::ConvertTo(Df(), hn::BitCast(Di(), code));
    });
  }

  template <int... kNibbles>
  static HWY_INLINE void add_word(Sums& sum, const std::byte* codes, int word, const float* x,
                                  std::integer_sequence<int, kNibbles...>) {
    ((add_nibble<kNibbles>(sum, codes, word, x), codes = again(codes)), ...);
  }

  static HWY_INLINE void add_q4(Sums& sum, const std::byte* codes, const float* x,
                                const std::byte* ahead) {
    for (int word = 0; word < kWords; ++word) {
      ask<kWords>(ahead, word);
      add_word(sum, codes, word, x, std::make_integer_sequence<int, kCodesPerWord>());
    }
  }

  static HWY_INLINE void add_codes(Sums& sum, const std::byte* codes, const float* x,
                                   const std::byte* ahead) {
    if constexpr (kScheme == Scheme::bf16) {
      add_bf16(sum, codes, x, ahead);
    } else if constexpr (kScheme == Scheme::q8_0) {
      add_q8(sum, codes, x, ahead);
    } else {
      add_q4(sum, codes, x, ahead);
    }
  }

  // Every column continues the chains.
  static HWY_INLINE void run_plain(const Tile& tile) {
    Sums sum;
    for (int v = 0; v < kVectors; ++v) {
      for (int t = 0; t < kTokens; ++t) sum[v][t] = hn::Load(Df(), acc_at(tile, v, t));
    }
    const std::byte* codes = tile.block + tile.strip * kLayout.strip_bytes;
    const float* x = tile.x;
    for (int b = 0; b < tile.n_blocks; ++b) {
      add_codes(sum, codes, x, codes + tile.ahead);
      codes += kLayout.bytes;
      x += kQuantBlock * kTokens;
    }
    for (int v = 0; v < kVectors; ++v) {
      for (int t = 0; t < kTokens; ++t) hn::Store(sum[v][t], Df(), acc_at(tile, v, t));
    }
  }

  // Every block has chains of its own, which its scale joins to the sums.
  static HWY_INLINE void run_blocks(const Tile& tile) {
    const std::byte* block = tile.block;
    const float* x = tile.x;
    const float* sums = tile.sums;
    for (int b = 0; b < tile.n_blocks; ++b) {
      Sums part;
      for (int t = 0; t < kTokens; ++t) {
        const Vf begin =
            kScheme == Scheme::scale4_gs32 ? hn::Set(Df(), -8.0f * sums[t]) : hn::Zero(Df());
        for (int v = 0; v < kVectors; ++v) part[v][t] = begin;
      }
      add_codes(part, block + kLayout.codes_at + tile.strip * kLayout.strip_bytes, x,
                block + tile.ahead + tile.strip * (kLayout.bytes / kStrips));
      const std::byte* scales = block + tile.strip * kStripRows * 2;
      for (int v = 0; v < kVectors; ++v) {
        const Vf scale = halves(scales, v);
        for (int t = 0; t < kTokens; ++t) {
          float* at = acc_at(tile, v, t);
          Vf sum = hn::MulAdd(scale, part[v][t], hn::Load(Df(), at));
          if constexpr (kScheme == Scheme::affine4_gs32) {
            sum = hn::MulAdd(halves(scales + 2 * kPanelRows, v), hn::Set(Df(), sums[t]), sum);
          }
          hn::Store(sum, Df(), at);
        }
      }
      block += kLayout.bytes;
      x += kQuantBlock * kTokens;
      sums += kTokens;
    }
  }

  static HWY_NOINLINE void run(const Tile& tile) {
    if constexpr (kScheme == Scheme::bf16) {
      run_plain(tile);
    } else {
      run_blocks(tile);
    }
  }
};

}  // namespace kipp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
