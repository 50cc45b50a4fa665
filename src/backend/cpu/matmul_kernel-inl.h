// The one kernel of every product, for whatever vector width the target has: a few strips of rows
// times a few tokens in registers, along the columns of a panel.
//
// The sum of one output:
//   bf16       acc = fma(w, x, acc) over all columns
//   quantized  per block p = sum of code * integer of x, exact in 32 bits;
//              acc = fma(scale of w, p * scale of x, acc);
//              affine4 then acc = fma(bias of w, sum of x, acc)
// acc is kept in memory between chunks of columns, which is exact.
//
// Why integers: a pair of 16-bit products and their sum are two instructions for sixteen weights
// where FP32 takes a conversion and a multiply-add for eight. On AVX2 (EPYC 9004, one core, 512
// tokens) that is 112, 104 and 110 % of the FP32 multiply-add peak for q8_0, affine4 and scale4
// instead of 79, 75 and 78, and 49, 26 and 24 GB/s of packed weights from cache for one token
// instead of 30, 17 and 16, which two cores of a slower machine could not have fed. Inputs lose
// what 16 bits per block of 32 cost: NMSE near 2e-9.
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
using Vi = hn::Vec<Di>;
using Vu = hn::Vec<Du>;

inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(Df()));
inline constexpr int kVectorsPerStrip = kStripRows / kLanes;

// Vectors of sums that a compiler keeps in registers beside weights and inputs. With 12 of 16,
// GCC 12 moved some to memory and bf16 fell from 86 to 62 % of the multiply-add peak on AVX2.
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
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

// Targets without vector instructions, whose pairs of products Highway adds in other lanes.
#undef KIPP_PLAIN_LANES
#define KIPP_PLAIN_LANES (HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128)

// Keeps GCC from adding integers in an order of its own, for which registers do not suffice.
template <class V>
HWY_INLINE V in_order(V sum) {
#if HWY_ARCH_X86 && !KIPP_PLAIN_LANES && HWY_COMPILER_GCC_ACTUAL
  asm("" : "+v"(sum.raw));
#endif
  return sum;
}

// How two 16-bit products are added to a 32-bit sum: `fused` is one instruction of AVX-512 VNNI,
// which Highway 1.0.3 has only for CPUs that know its AVX form too.
enum class PairAdd { plain, fused };

// sum + low(w) * low(x) + high(w) * high(x) of the 16-bit halves of each lane.
template <PairAdd kPairAdd>
HWY_INLINE Vi add_pairs(Vi sum, Vi w, Vi x) {
#if KIPP_PLAIN_LANES
  const auto low = [](Vi v) { return hn::ShiftRight<16>(hn::ShiftLeft<16>(v)); };
  return sum + low(w) * low(x) + hn::ShiftRight<16>(w) * hn::ShiftRight<16>(x);
#elif HWY_ARCH_X86
  if constexpr (kPairAdd == PairAdd::fused) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(w.raw), "v"(x.raw));
    return sum;
  }
  const hn::RepartitionToNarrow<Di> d16;
  Vi unused = sum;
  return in_order(
      hn::ReorderWidenMulAccumulate(Di(), hn::BitCast(d16, w), hn::BitCast(d16, x), sum, unused));
#else
  const hn::RepartitionToNarrow<Di> d16;
  Vi odd = hn::Zero(Di());
  const Vi even = hn::ReorderWidenMulAccumulate(Di(), hn::BitCast(d16, w), hn::BitCast(d16, x),
                                                hn::Zero(Di()), odd);
  return sum + hn::RearrangeToOddPlusEven(even, odd);
#endif
}

// Two int8 of each lane's row as two int16.
HWY_INLINE Vi widen(const std::byte* at) {
  const auto* codes = reinterpret_cast<const std::int8_t*>(at);
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(Di(), static_cast<std::int32_t>(static_cast<std::uint32_t>(codes[1]) << 16 |
                                                 static_cast<std::uint16_t>(codes[0])));
#else
  const hn::RepartitionToNarrow<Di> d16;
  const hn::Rebind<std::int8_t, decltype(d16)> d8;
  return hn::BitCast(Di(), hn::PromoteTo(d16, hn::Load(d8, codes)));
#endif
}

// One tile: where it reads and writes.
struct Tile {
  const std::byte* block;  // the panel's first block of the chunk
  int strip;               // the first of strips_at_once(tokens)
  int n_blocks;
  const float* x;             // bf16: [n_blocks * 32][tokens]
  const std::int32_t* pairs;  // quantized: [n_blocks * 16][tokens], two int16 each
  const BlockInput* inputs;   // quantized: [n_blocks][tokens]
  float* acc;                 // [strips][acc_tokens][kStripRows], moved to the first token
  int acc_tokens;             // tokens of the run
  std::ptrdiff_t ahead;       // how far ahead of what is read the next weights are asked for
};

template <Scheme kScheme, int kTokens, PairAdd kPairAdd>
struct Kernel {
  static constexpr BlockLayout kLayout = block_layout(kScheme);
  static constexpr int kAtOnce = strips_at_once(kTokens);
  static constexpr int kVectors = kAtOnce * kVectorsPerStrip;
  template <class V>
  using Weights = V[static_cast<std::size_t>(kVectors)];
  template <class V>
  using Inputs = V[static_cast<std::size_t>(kTokens)];
  template <class V>
  using Sums = V[static_cast<std::size_t>(kVectors)][static_cast<std::size_t>(kTokens)];

  static HWY_INLINE float* acc_at(const Tile& tile, int v, int t) {
    return tile.acc + ((v / kVectorsPerStrip) * tile.acc_tokens + t) * kStripRows +
           v % kVectorsPerStrip * kLanes;
  }

  // The share of vector v in a line; `lines` is the line of the first strip.
  static HWY_INLINE const std::byte* in_line(const std::byte* lines, int v) {
    return lines + (v / kVectorsPerStrip) * kLineBytes + v % kVectorsPerStrip * (4 * kLanes);
  }
  static HWY_INLINE Vu words(const std::byte* lines, int v) {
    return hn::Load(Du(), reinterpret_cast<const std::uint32_t*>(in_line(lines, v)));
  }

  static HWY_INLINE Vf halves(const std::byte* strip, int v) {
    const hn::Rebind<hwy::float16_t, Df> d16;
    return hn::PromoteTo(
        Df(), hn::Load(d16, reinterpret_cast<const hwy::float16_t*>(strip) + v * kLanes));
  }

  static HWY_INLINE void add(Vf& sum, Vf w, Vf x) { sum = hn::MulAdd(w, x, sum); }
  static HWY_INLINE void add(Vi& sum, Vi w, Vi x) { sum = add_pairs<kPairAdd>(sum, w, x); }
  static HWY_INLINE Vf broadcast(float x) { return hn::Set(Df(), x); }
  static HWY_INLINE Vi broadcast(std::int32_t x) { return hn::Set(Di(), x); }

  // One column, or pair of columns: weight(v) times the inputs x. Of weights and inputs the fewer
  // stay in registers.
  template <class V, class X, class Weight>
  static HWY_INLINE void add_column(Sums<V>& sum, const X* x, const Weight& weight) {
    if constexpr (kTokens <= kVectors) {
      Inputs<V> input;
      for (int t = 0; t < kTokens; ++t) input[t] = broadcast(x[t]);
      for (int v = 0; v < kVectors; ++v) {
        const V w = weight(v);
        for (int t = 0; t < kTokens; ++t) add(sum[v][t], w, input[t]);
      }
    } else {
      Weights<V> w;
      for (int v = 0; v < kVectors; ++v) w[v] = weight(v);
      for (int t = 0; t < kTokens; ++t) {
        const V input = broadcast(x[t]);
        for (int v = 0; v < kVectors; ++v) add(sum[v][t], w[v], input);
      }
    }
  }

  // Asks for what will be read tile.ahead bytes further on. Without it the hardware brought bf16
  // from memory at a third of the bandwidth. All strips at once read in order and want the
  // first-level cache; fewer come back for the others, so the whole chunk must wait in the second.
  static HWY_INLINE void ask_for_line(const std::byte* line) {
    if constexpr (kAtOnce == kStrips) {
      hwy::Prefetch(line);
    } else {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
      __builtin_prefetch(line, 0, 2);
#endif
    }
  }

  static HWY_INLINE void ask_for(const std::byte* lines) {
    for (int strip = 0; strip < kAtOnce; ++strip) ask_for_line(lines + strip * kLineBytes);
  }

  // A line holds the halves of two strips.
  static HWY_INLINE void ask_for_halves(const std::byte* block, std::ptrdiff_t ahead) {
    for (std::ptrdiff_t at = 0; at < kLayout.codes_at; at += kLineBytes) {
      if (kAtOnce == kStrips || at % (2 * kPanelRows) == 0) ask_for_line(block + ahead + at);
    }
  }

  static HWY_INLINE void add_bf16(Sums<Vf>& sum, const std::byte* lines, const float* x,
                                  std::ptrdiff_t ahead) {
    const Vu high = hn::Set(Du(), 0xffff0000u);
    for (int pair = 0; pair < kPairs; ++pair) {
      ask_for(lines + ahead);
      add_column<Vf>(sum, x, [&](int v) HWY_ATTR {
        return hn::BitCast(Df(), hn::ShiftLeft<16>(words(lines, v)));
      });
      lines = again(lines);
      add_column<Vf>(sum, x + kTokens, [&](int v) HWY_ATTR {
        return hn::BitCast(Df(), hn::And(words(lines, v), high));
      });
      lines += line_at(1, 0);
      x += 2 * kTokens;
    }
  }

  static HWY_INLINE void add_q8(Sums<Vi>& sum, const std::byte* lines, const std::int32_t* x,
                                std::ptrdiff_t ahead) {
    for (int line = 0; line < kPairs / 2; ++line) {
      ask_for(lines + ahead);
      for (int half = 0; half < 2; ++half) {
        add_column<Vi>(sum, x, [&](int v) HWY_ATTR {
          return widen(lines + (v / kVectorsPerStrip) * kLineBytes + half * (kLineBytes / 2) +
                       v % kVectorsPerStrip * (2 * kLanes));
        });
        x += kTokens;
      }
      lines += line_at(1, 0);
    }
  }

  template <int kNibble>
  static HWY_INLINE void add_nibbles(Sums<Vi>& sum, const std::byte* lines, const std::int32_t* x) {
    const Vu mask = hn::Set(Du(), 0x000f000fu);
    add_column<Vi>(sum, x + pair_at(0, kNibble) * kTokens, [&](int v) HWY_ATTR {
      const Vu all = words(lines, v);
      return hn::BitCast(Di(),
                         hn::And(kNibble == 0 ? all : hn::ShiftRight<4 * kNibble>(all), mask));
    });
  }

  static HWY_INLINE void add_q4(Sums<Vi>& sum, const std::byte* lines, const std::int32_t* x,
                                std::ptrdiff_t ahead) {
    static_assert(kPairsPerWord == 4 && pair_at(1, 0) - pair_at(0, 0) == 2);
    for (int word = 0; word < kWords; ++word) {
      ask_for(lines + ahead);
      add_nibbles<0>(sum, lines, x);
      lines = again(lines);
      add_nibbles<1>(sum, lines, x);
      lines = again(lines);
      add_nibbles<2>(sum, lines, x);
      lines = again(lines);
      add_nibbles<3>(sum, lines, x);
      lines += line_at(1, 0);
      x += 2 * kTokens;
    }
  }

  static HWY_INLINE void run_bf16(const Tile& tile) {
    Sums<Vf> sum;
    for (int v = 0; v < kVectors; ++v) {
      for (int t = 0; t < kTokens; ++t) sum[v][t] = hn::Load(Df(), acc_at(tile, v, t));
    }
    const std::byte* block = tile.block;
    const float* x = tile.x;
    for (int b = 0; b < tile.n_blocks; ++b) {
      add_bf16(sum, block + line_at(0, tile.strip), x, tile.ahead);
      block += kLayout.bytes;
      x += kQuantBlock * kTokens;
    }
    for (int v = 0; v < kVectors; ++v) {
      for (int t = 0; t < kTokens; ++t) hn::Store(sum[v][t], Df(), acc_at(tile, v, t));
    }
  }

  static HWY_INLINE void run_quantized(const Tile& tile) {
    const std::byte* block = tile.block;
    const std::int32_t* x = tile.pairs;
    const BlockInput* input = tile.inputs;
    for (int b = 0; b < tile.n_blocks; ++b) {
      Sums<Vi> part;
      for (int t = 0; t < kTokens; ++t) {
        const Vi begin = broadcast(kScheme == Scheme::scale4_gs32 ? input[t].offset : 0);
        for (int v = 0; v < kVectors; ++v) part[v][t] = begin;
      }
      const std::byte* scales = block + tile.strip * kStripRows * 2;
      ask_for_halves(scales, tile.ahead);
      const std::byte* lines = block + kLayout.codes_at + line_at(0, tile.strip);
      if constexpr (kScheme == Scheme::q8_0) {
        add_q8(part, lines, x, tile.ahead);
      } else {
        add_q4(part, lines, x, tile.ahead);
      }
      join(tile, part, scales, input);
      block += kLayout.bytes;
      x += kPairs * kTokens;
      input += kTokens;
    }
  }

  // acc += scale * part (+ bias * sum of x)
  static HWY_INLINE void join(const Tile& tile, const Sums<Vi>& part, const std::byte* scales,
                              const BlockInput* input) {
    for (int v = 0; v < kVectors; ++v) {
      const Vf scale = halves(scales, v);
      for (int t = 0; t < kTokens; ++t) {
        float* at = acc_at(tile, v, t);
        const Vf value = hn::Mul(hn::ConvertTo(Df(), part[v][t]), broadcast(input[t].scale));
        Vf sum = hn::MulAdd(scale, value, hn::Load(Df(), at));
        if constexpr (kScheme == Scheme::affine4_gs32) {
          sum = hn::MulAdd(halves(scales + 2 * kPanelRows, v), broadcast(input[t].sum), sum);
        }
        hn::Store(sum, Df(), at);
      }
    }
  }

  static HWY_NOINLINE void run(const Tile& tile) {
    if constexpr (kScheme == Scheme::bf16) {
      run_bf16(tile);
    } else {
      run_quantized(tile);
    }
  }
};

}  // namespace kipp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
