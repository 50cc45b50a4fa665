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

// Vectors of sums that fit beside weights and inputs.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_ARCH_ARM_A64
inline constexpr int kSumVectors = 24;
#else
inline constexpr int kSumVectors = 12;
#endif

// Strips a kernel takes at once: as many as the sums of its tokens leave room for.
constexpr int strips_at_once(int tokens) {
  int strips = kStrips;
  while (strips > 1 && strips * kVectorsPerStrip * tokens > kSumVectors) strips /= 2;
  return strips;
}

// One tile: where it reads and writes.
struct Tile {
  const std::byte* block;  // the panel's first block of the run
  int strip;               // the first of strips_at_once(tokens)
  int n_blocks;
  const float* x;     // [n_blocks * 32][tokens], columns in the order of column_of()
  const float* sums;  // [n_blocks][tokens], 4-bit schemes
  float* acc;         // [strips][acc_tokens][kStripRows], moved to the first token
  int acc_tokens;
};

template <Scheme kScheme, int kTokens>
struct Kernel {
  static constexpr BlockLayout kLayout = block_layout(kScheme);
  static constexpr int kAtOnce = strips_at_once(kTokens);
  static constexpr int kVectors = kAtOnce * kVectorsPerStrip;
  using Weights = Vf[static_cast<std::size_t>(kVectors)];
  using Sums = Vf[static_cast<std::size_t>(kVectors)][static_cast<std::size_t>(kTokens)];

  static HWY_INLINE float* acc_at(const Tile& tile, int v, int t) {
    return tile.acc + ((v / kVectorsPerStrip) * tile.acc_tokens + t) * kStripRows +
           v % kVectorsPerStrip * kLanes;
  }

  // The words of vector v at `row` rows of words into the codes of each strip.
  static HWY_INLINE Vu words(const std::byte* codes, int v, int row) {
    const auto* at = codes + (v / kVectorsPerStrip) * kLayout.strip_bytes;
    return hn::Load(Du(), reinterpret_cast<const std::uint32_t*>(at) + row * kStripRows +
                              v % kVectorsPerStrip * kLanes);
  }

  static HWY_INLINE Vf halves(const std::byte* block, int v) {
    const hn::Rebind<hwy::float16_t, Df> d16;
    return hn::PromoteTo(
        Df(), hn::Load(d16, reinterpret_cast<const hwy::float16_t*>(block) + v * kLanes));
  }

  static HWY_INLINE void multiply(Sums& sum, const Weights& w, const float* x) {
    for (int t = 0; t < kTokens; ++t) {
      const Vf input = hn::Set(Df(), x[t]);
      for (int v = 0; v < kVectors; ++v) sum[v][t] = hn::MulAdd(w[v], input, sum[v][t]);
    }
  }

  static HWY_INLINE void add_bf16(Sums& sum, const std::byte* codes, const float* x) {
    const Vu high = hn::Set(Du(), 0xffff0000u);
    for (int pair = 0; pair < kQuantBlock / 2; ++pair) {
      Weights even;
      Weights odd;
      for (int v = 0; v < kVectors; ++v) {
        const Vu both = words(codes, v, pair);
        even[v] = hn::BitCast(Df(), hn::ShiftLeft<16>(both));
        odd[v] = hn::BitCast(Df(), hn::And(both, high));
      }
      multiply(sum, even, x + 2 * pair * kTokens);
      multiply(sum, odd, x + (2 * pair + 1) * kTokens);
    }
  }

  static HWY_INLINE void add_q8(Sums& sum, const std::byte* codes, const float* x) {
    const hn::Rebind<std::int8_t, Df> d8;
    for (int c = 0; c < kQuantBlock; ++c) {
      Weights w;
      for (int v = 0; v < kVectors; ++v) {
        const auto* at = reinterpret_cast<const std::int8_t*>(codes) +
                         (v / kVectorsPerStrip) * kLayout.strip_bytes + c * kStripRows +
                         v % kVectorsPerStrip * kLanes;
        w[v] = hn::ConvertTo(Df(), hn::PromoteTo(Di(), hn::Load(d8, at)));
      }
      multiply(sum, w, x + c * kTokens);
    }
  }

  template <int kNibble>
  static HWY_INLINE void add_nibble(Sums& sum, const std::byte* codes, int word, const float* x) {
    Weights w;
    for (int v = 0; v < kVectors; ++v) {
      const Vu all = words(codes, v, word);
      const Vu code = kNibble == kCodesPerWord - 1
                          ? hn::ShiftRight<28>(all)
                          : hn::And(all, hn::Set(Du(), std::uint32_t{0xf} << (4 * kNibble)));
      w[v] = hn::ConvertTo(Df(), hn::BitCast(Di(), code));
    }
    multiply(sum, w, x + (word * kCodesPerWord + kNibble) * kTokens);
  }

  static HWY_INLINE void add_q4(Sums& sum, const std::byte* codes, const float* x) {
    for (int word = 0; word < kWords; ++word) {
      add_nibble<0>(sum, codes, word, x);
      add_nibble<1>(sum, codes, word, x);
      add_nibble<2>(sum, codes, word, x);
      add_nibble<3>(sum, codes, word, x);
      add_nibble<4>(sum, codes, word, x);
      add_nibble<5>(sum, codes, word, x);
      add_nibble<6>(sum, codes, word, x);
      add_nibble<7>(sum, codes, word, x);
    }
  }

  static HWY_INLINE void add_codes(Sums& sum, const std::byte* codes, const float* x) {
    if constexpr (kScheme == Scheme::bf16) {
      add_bf16(sum, codes, x);
    } else if constexpr (kScheme == Scheme::q8_0) {
      add_q8(sum, codes, x);
    } else {
      add_q4(sum, codes, x);
    }
  }

  static HWY_INLINE void load_acc(Sums& sum, const Tile& tile) {
    for (int v = 0; v < kVectors; ++v) {
      for (int t = 0; t < kTokens; ++t) sum[v][t] = hn::Load(Df(), acc_at(tile, v, t));
    }
  }

  // Every column continues the chains.
  static HWY_INLINE void run_plain(const Tile& tile) {
    Sums sum;
    load_acc(sum, tile);
    const std::byte* codes = tile.block + tile.strip * kLayout.strip_bytes;
    const float* x = tile.x;
    for (int b = 0; b < tile.n_blocks; ++b) {
      add_codes(sum, codes, x);
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
      add_codes(part, block + kLayout.codes_at + tile.strip * kLayout.strip_bytes, x);
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
