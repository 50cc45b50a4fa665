// The inner loops of attention over codes: planes into bytes, and products of bytes.
//
// Products of bytes sum four neighbours into 32 bits. A side is laid out so that those four belong
// to what is summed: four channels of a key, [channel / 4][position][4]; four positions of a value,
// [position / 4][lane][4], where lane l is channel 64 a + 16 b + 4 c + d of
// l = 64 a + 16 c + 4 b + d: bytes are interleaved within blocks of 128 bits, and never cross them.
// Either is 32 lanes by steps of four, against the bytes of a query or of its weights in natural
// order.
//
// A row of 128 four-bit codes is 64 bytes, byte i holding channels i and i + 64, as low4 stores it;
// of hi2 and mid2 the same is made, where byte i holds channels i, i + 32, i + 64 and i + 96 in two
// bits each.
//
// Included once per target; no include guard.

#include <hwy/highway.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/code_attention.h"
#include "backend/cpu/attention_tile-inl.h"
#include "kvquant/codec.h"

HWY_BEFORE_NAMESPACE();
namespace kipp::cpu::HWY_NAMESPACE {
namespace {

inline constexpr int kPackedRow = kHeadDim / 4;  // bytes of a row of hi2 or mid2
inline constexpr int kNibbleRow = kHeadDim / 2;
inline constexpr int kLanesAtOnce = kBlockPositions;  // 32-bit lanes of dot_bytes

// Which planes are behind the bytes at hand.
enum class Nibbles : std::uint8_t {
  top2,  // hi2
  top4,  // hi2 and mid2
  low4,
};

struct Planes {
  const std::uint8_t* a;  // hi2, or low4
  const std::uint8_t* b;  // mid2
};

#if HWY_TARGET == HWY_SCALAR

inline constexpr int kDotQueries = 1;

template <Nibbles kNibbles>
int nibble_at(const Planes& planes, int position, int channel) {
  if (kNibbles == Nibbles::low4) {
    return kvquant::get4(planes.a + position * kNibbleRow, kHeadDim, channel);
  }
  const int high = kvquant::get2(planes.a + position * kPackedRow, kHeadDim, channel);
  if (kNibbles == Nibbles::top2) return high;
  return 4 * high + kvquant::get2(planes.b + position * kPackedRow, kHeadDim, channel);
}

template <Nibbles kNibbles>
void unpack_keys(const Planes& planes, std::uint8_t* out) {
  for (int p = 0; p < kBlockPositions; ++p) {
    for (int c = 0; c < kHeadDim; ++c) {
      out[(c / 4 * kBlockPositions + p) * 4 + c % 4] =
          static_cast<std::uint8_t>(nibble_at<kNibbles>(planes, p, c));
    }
  }
}

template <Nibbles kNibbles>
void unpack_values(const Planes& planes, std::uint8_t* out) {
  for (int p = 0; p < kBlockPositions; ++p) {
    for (int c = 0; c < kHeadDim; ++c) {
      const int lane = c / 64 * 64 + c % 16 / 4 * 16 + c % 64 / 16 * 4 + c % 4;
      out[(p / 4 * kHeadDim + lane) * 4 + p % 4] =
          static_cast<std::uint8_t>(nibble_at<kNibbles>(planes, p, c));
    }
  }
}

template <int kQueries>
void dot_bytes(const std::uint8_t* codes, std::ptrdiff_t stride, int steps, const std::int8_t* high,
               const std::int8_t* low, std::ptrdiff_t query_bytes, std::int32_t* sums) {
  for (int q = 0; q < kQueries; ++q) {
    for (int l = 0; l < kLanesAtOnce; ++l) {
      std::int32_t sum = 0;
      for (int s = 0; s < steps; ++s) {
        for (int i = 0; i < 4; ++i) {
          const int at = 4 * s + i;
          sum += codes[s * stride + l * 4 + i] *
                 (256 * high[q * query_bytes + at] + low[q * query_bytes + at]);
        }
      }
      sums[q * kLanesAtOnce + l] = sum;
    }
  }
}

inline void hadamard(float* row) { kvquant::hadamard(row, kHeadDim); }

#else

using Bytes = hn::Repartition<std::uint8_t, Tag>;
using SignedBytes = hn::Repartition<std::int8_t, Tag>;
using Words = hn::Repartition<std::int16_t, Tag>;
using ByteVec = hn::Vec<Bytes>;
using IntVec = hn::Vec<IntTag>;

inline constexpr int kVecBytes = static_cast<int>(hn::MaxLanes(Bytes()));

// Queries in registers at once, each with two sums of all lanes.
#if HWY_TARGET == HWY_AVX3_DL
inline constexpr int kDotQueries = 6;
#elif HWY_TARGET == HWY_AVX3
inline constexpr int kDotQueries = 3;
#else
inline constexpr int kDotQueries = 1;
#endif

HWY_INLINE ByteVec mask_of(int byte) { return hn::Set(Bytes(), static_cast<std::uint8_t>(byte)); }

// Of bytes whose bits that would cross into a neighbour are masked before or after.
template <int kBits>
HWY_INLINE ByteVec shift_right(ByteVec v) {
  return hn::BitCast(Bytes(), hn::ShiftRight<kBits>(hn::BitCast(BitsTag(), v)));
}
template <int kBits>
HWY_INLINE ByteVec shift_left(ByteVec v) {
  return hn::BitCast(Bytes(), hn::ShiftLeft<kBits>(hn::BitCast(BitsTag(), v)));
}

struct Halves {
  ByteVec first, second;  // bytes 0 to 31 of nibble rows, and bytes 32 to 63
};

// From the same bytes of packed rows.
template <Nibbles kNibbles>
HWY_INLINE Halves nibbles_of(ByteVec high, ByteVec mid) {
  const ByteVec even = mask_of(0x33);
  if constexpr (kNibbles == Nibbles::top2) {
    return {hn::And(high, even), hn::And(shift_right<2>(high), even)};
  } else {
    return {hn::Or(hn::And(mid, even), shift_left<2>(hn::And(high, even))),
            hn::Or(hn::And(shift_right<2>(mid), even), hn::AndNot(even, high))};
  }
}

// 16 bytes of every fourth row: block b of 128 bits is from row 4 b.
template <class D>
HWY_INLINE hn::Vec<D> every_fourth(D d, const std::uint8_t* row, std::ptrdiff_t row_bytes) {
  if constexpr (hn::MaxLanes(D()) == 16) {
    return hn::LoadU(d, row);
  } else {
    const hn::Half<D> half;
    const auto later = static_cast<std::ptrdiff_t>(hn::MaxLanes(half)) / 4 * row_bytes;
    return hn::Combine(d, every_fourth(half, row + later, row_bytes),
                       every_fourth(half, row, row_bytes));
  }
}

// out[i] = bytes 4 i to 4 i + 3 of kWidth rows: 16 bytes of each are read.
HWY_INLINE void turn_rows(const std::uint8_t* rows, std::ptrdiff_t row_bytes, ByteVec (&out)[4]) {
  const BitsTag d;
  const hn::Repartition<std::uint64_t, BitsTag> two;
  hn::Vec<BitsTag> row[4];
  for (int i = 0; i < 4; ++i) {
    row[i] = hn::BitCast(d, every_fourth(Bytes(), rows + i * row_bytes, row_bytes));
  }
  const auto ab_low = hn::BitCast(two, hn::InterleaveLower(row[0], row[1]));
  const auto ab_high = hn::BitCast(two, hn::InterleaveUpper(d, row[0], row[1]));
  const auto ce_low = hn::BitCast(two, hn::InterleaveLower(row[2], row[3]));
  const auto ce_high = hn::BitCast(two, hn::InterleaveUpper(d, row[2], row[3]));
  out[0] = hn::BitCast(Bytes(), hn::InterleaveLower(ab_low, ce_low));
  out[1] = hn::BitCast(Bytes(), hn::InterleaveUpper(two, ab_low, ce_low));
  out[2] = hn::BitCast(Bytes(), hn::InterleaveLower(ab_high, ce_high));
  out[3] = hn::BitCast(Bytes(), hn::InterleaveUpper(two, ab_high, ce_high));
}

// The codes of nibbles that hold channels c and c + 64.
HWY_INLINE void split_nibbles(ByteVec nibbles, std::uint8_t* low, std::uint8_t* high) {
  const ByteVec four = mask_of(0x0f);
  hn::Store(hn::And(nibbles, four), Bytes(), low);
  hn::Store(hn::And(shift_right<4>(nibbles), four), Bytes(), high);
}

template <Nibbles kNibbles>
void unpack_keys(const Planes& planes, std::uint8_t* out) {
  // Bytes 4 n to 4 n + 3 of kWidth nibble rows from p on.
  const auto keep = [&](ByteVec nibbles, int n, int p) HWY_ATTR {
    std::uint8_t* at = out + (n * kBlockPositions + p) * 4;
    split_nibbles(nibbles, at, at + kNibbleRow / 4 * kBlockPositions * 4);
  };
  for (int p = 0; p < kBlockPositions; p += kWidth) {
    if constexpr (kNibbles == Nibbles::low4) {
      for (int j = 0; j < kNibbleRow / 16; ++j) {
        ByteVec turned[4];
        turn_rows(planes.a + p * kNibbleRow + 16 * j, kNibbleRow, turned);
        for (int i = 0; i < 4; ++i) keep(turned[i], 4 * j + i, p);
      }
    } else {
      for (int j = 0; j < kPackedRow / 16; ++j) {
        ByteVec high[4], mid[4];
        turn_rows(planes.a + p * kPackedRow + 16 * j, kPackedRow, high);
        if constexpr (kNibbles == Nibbles::top4) {
          turn_rows(planes.b + p * kPackedRow + 16 * j, kPackedRow, mid);
        }
        for (int i = 0; i < 4; ++i) {
          const Halves both =
              nibbles_of<kNibbles>(high[i], kNibbles == Nibbles::top4 ? mid[i] : high[i]);
          keep(both.first, 4 * j + i, p);
          keep(both.second, kPackedRow / 4 + 4 * j + i, p);
        }
      }
    }
  }
}

// kVecBytes bytes, from `at` on, of the nibble row of a position.
template <Nibbles kNibbles>
HWY_INLINE ByteVec nibble_row(const Planes& planes, int position, int at) {
  const Bytes d;
  if constexpr (kNibbles == Nibbles::low4) {
    return hn::LoadU(d, planes.a + position * kNibbleRow + at);
  } else if constexpr (kVecBytes == kNibbleRow) {
    // Both halves at once: the second is shifted where the first is not.
    const hn::Half<Bytes> half;
    const hn::Repartition<std::uint64_t, Bytes> wide;
    const ByteVec even = mask_of(0x33);
    const auto twice = [&](const std::uint8_t* row) HWY_ATTR {
      const auto once = hn::LoadU(half, row);
      return hn::Combine(d, once, once);
    };
    alignas(64) static constexpr std::uint64_t kRight[8] = {0, 0, 0, 0, 2, 2, 2, 2};
    alignas(64) static constexpr std::uint64_t kLeft[8] = {2, 2, 2, 2, 0, 0, 0, 0};
    const ByteVec high = twice(planes.a + position * kPackedRow);
    if constexpr (kNibbles == Nibbles::top2) {
      const auto moved = hn::Shr(hn::BitCast(wide, high), hn::Load(wide, kRight));
      return hn::And(hn::BitCast(d, moved), even);
    } else {
      const ByteVec mid = twice(planes.b + position * kPackedRow);
      const auto low = hn::Shr(hn::BitCast(wide, mid), hn::Load(wide, kRight));
      const auto up = hn::Shl(hn::BitCast(wide, high), hn::Load(wide, kLeft));
      return hn::Or(hn::And(hn::BitCast(d, low), even), hn::AndNot(even, hn::BitCast(d, up)));
    }
  } else {
    const int from = at % kPackedRow;
    const ByteVec high = hn::LoadU(d, planes.a + position * kPackedRow + from);
    const ByteVec mid =
        kNibbles == Nibbles::top4 ? hn::LoadU(d, planes.b + position * kPackedRow + from) : high;
    const Halves both = nibbles_of<kNibbles>(high, mid);
    return at < kPackedRow ? both.first : both.second;
  }
}

template <Nibbles kNibbles>
void unpack_values(const Planes& planes, std::uint8_t* out) {
  const Bytes d;
  const hn::Repartition<std::uint16_t, Bytes> pairs;
  constexpr int kHalfLanes = kHeadDim / 2;
  for (int p = 0; p < kBlockPositions; p += 4) {
    std::uint8_t* quad = out + p * kHeadDim;
    for (int at = 0; at < kNibbleRow; at += kVecBytes) {
      const ByteVec row[4] = {
          nibble_row<kNibbles>(planes, p, at), nibble_row<kNibbles>(planes, p + 1, at),
          nibble_row<kNibbles>(planes, p + 2, at), nibble_row<kNibbles>(planes, p + 3, at)};
      const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(row[0], row[1]));
      const auto ab_high = hn::BitCast(pairs, hn::InterleaveUpper(d, row[0], row[1]));
      const auto ce_low = hn::BitCast(pairs, hn::InterleaveLower(row[2], row[3]));
      const auto ce_high = hn::BitCast(pairs, hn::InterleaveUpper(d, row[2], row[3]));
      const hn::Vec<decltype(pairs)> quads[4] = {
          hn::InterleaveLower(ab_low, ce_low), hn::InterleaveUpper(pairs, ab_low, ce_low),
          hn::InterleaveLower(ab_high, ce_high), hn::InterleaveUpper(pairs, ab_high, ce_high)};
      for (int k = 0; k < 4; ++k) {
        std::uint8_t* to = quad + k * kNibbleRow + at;
        split_nibbles(hn::BitCast(d, quads[k]), to, to + kHalfLanes * 4);
      }
    }
  }
}

#if HWY_TARGET == HWY_AVX3_DL

// acc + the sums of four products. Highway 1.0.3 takes this target's instructions for those of
// another extension, so the compiler would not inline the intrinsic.
HWY_INLINE IntVec add_products(IntVec acc, ByteVec codes, IntVec four) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc.raw) : "v"(codes.raw), "v"(four.raw));
  return acc;
}

template <int kQueries>
HWY_INLINE void dot_bytes(const std::uint8_t* codes, std::ptrdiff_t stride, int steps,
                          const std::int8_t* high, const std::int8_t* low,
                          std::ptrdiff_t query_bytes, std::int32_t* sums) {
  const IntTag d;
  IntVec of_high[kQueries][kVectors], of_low[kQueries][kVectors];
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) of_high[q][v] = of_low[q][v] = hn::Zero(d);
  }
  for (int s = 0; s < steps; ++s) {
    ByteVec code[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      code[v] = hn::Load(Bytes(), codes + s * stride + v * kVecBytes);
    }
    for (int q = 0; q < kQueries; ++q) {
      std::int32_t four[2];
      std::memcpy(&four[0], high + q * query_bytes + 4 * s, 4);
      std::memcpy(&four[1], low + q * query_bytes + 4 * s, 4);
      const IntVec h = hn::Set(d, four[0]);
      const IntVec l = hn::Set(d, four[1]);
      for (int v = 0; v < kVectors; ++v) {
        of_high[q][v] = add_products(of_high[q][v], code[v], h);
        of_low[q][v] = add_products(of_low[q][v], code[v], l);
      }
    }
  }
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(hn::Add(hn::ShiftLeft<8>(of_high[q][v]), of_low[q][v]), d,
                sums + q * kLanesAtOnce + v * kWidth);
    }
  }
}

#else

// Sums of two products, in 16 bits: codes are below 16, so that eight of them fit.
HWY_INLINE hn::Vec<Words> pair_products(ByteVec codes, hn::Vec<SignedBytes> four) {
#if HWY_ARCH_X86
#if HWY_TARGET == HWY_AVX3
  return hn::Vec<Words>{_mm512_maddubs_epi16(codes.raw, four.raw)};
#elif HWY_TARGET == HWY_AVX2
  return hn::Vec<Words>{_mm256_maddubs_epi16(codes.raw, four.raw)};
#else
  return hn::Vec<Words>{_mm_maddubs_epi16(codes.raw, four.raw)};
#endif
#else
  const Words d;
  const auto code = hn::BitCast(d, codes);
  const auto factor = hn::BitCast(d, four);
  const auto even = hn::Mul(hn::And(code, hn::Set(d, std::int16_t{0xff})),
                            hn::ShiftRight<8>(hn::ShiftLeft<8>(factor)));
  return hn::Add(even, hn::Mul(hn::ShiftRight<8>(code), hn::ShiftRight<8>(factor)));
#endif
}

HWY_INLINE IntVec add_pairs(hn::Vec<Words> words) {
  const auto both = hn::BitCast(IntTag(), words);
  return hn::Add(hn::ShiftRight<16>(hn::ShiftLeft<16>(both)), hn::ShiftRight<16>(both));
}

template <int kQueries>
HWY_INLINE void dot_bytes(const std::uint8_t* codes, std::ptrdiff_t stride, int steps,
                          const std::int8_t* high, const std::int8_t* low,
                          std::ptrdiff_t query_bytes, std::int32_t* sums) {
  constexpr int kSumsOfWords = 8;  // 8 * 2 * 15 * 128 < 2^15
  const IntTag d;
  std::fill_n(sums, kQueries * kLanesAtOnce, 0);
  for (int first = 0; first < steps; first += kSumsOfWords) {
    hn::Vec<Words> of_high[kQueries][kVectors], of_low[kQueries][kVectors];
    for (int q = 0; q < kQueries; ++q) {
      for (int v = 0; v < kVectors; ++v) of_high[q][v] = of_low[q][v] = hn::Zero(Words());
    }
    for (int s = first; s < first + kSumsOfWords; ++s) {
      ByteVec code[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        code[v] = hn::Load(Bytes(), codes + s * stride + v * kVecBytes);
      }
      for (int q = 0; q < kQueries; ++q) {
        std::int32_t four[2];
        std::memcpy(&four[0], high + q * query_bytes + 4 * s, 4);
        std::memcpy(&four[1], low + q * query_bytes + 4 * s, 4);
        const auto h = hn::BitCast(SignedBytes(), hn::Set(d, four[0]));
        const auto l = hn::BitCast(SignedBytes(), hn::Set(d, four[1]));
        for (int v = 0; v < kVectors; ++v) {
          of_high[q][v] = hn::Add(of_high[q][v], pair_products(code[v], h));
          of_low[q][v] = hn::Add(of_low[q][v], pair_products(code[v], l));
        }
      }
    }
    for (int q = 0; q < kQueries; ++q) {
      for (int v = 0; v < kVectors; ++v) {
        std::int32_t* at = sums + q * kLanesAtOnce + v * kWidth;
        const IntVec sum =
            hn::Add(hn::ShiftLeft<8>(add_pairs(of_high[q][v])), add_pairs(of_low[q][v]));
        hn::Store(hn::Add(hn::Load(d, at), sum), d, at);
      }
    }
  }
}

#endif

// Lane l of the result is lane l ^ kDistance.
template <int kDistance>
HWY_INLINE Vec exchange(Vec v) {
  const Tag d;
  if constexpr (kDistance == 1) return hn::Reverse2(d, v);
  if constexpr (kDistance == 2) return hn::Shuffle1032(v);
#if HWY_CAP_GE512
  if constexpr (kDistance == 4) return hn::ReverseBlocks(d, hn::ConcatLowerUpper(d, v, v));
#endif
#if HWY_CAP_GE256
  return hn::ConcatLowerUpper(d, v, v);
#endif
}

// A stage of the transform within vectors: a + b where the lane's bit is clear, a - b where it is
// set.
template <int kDistance>
HWY_INLINE void hadamard_stage(Vec (&row)[kHeadDim / kWidth]) {
  if constexpr (kDistance < kWidth) {
    const Tag d;
    const auto bit = hn::And(hn::Iota(IntTag(), 0), hn::Set(IntTag(), kDistance));
    const Vec sign = hn::IfThenElse(hn::RebindMask(d, hn::Eq(bit, hn::Zero(IntTag()))),
                                    hn::Set(d, 1.0f), hn::Set(d, -1.0f));
    for (Vec& v : row) v = hn::Add(exchange<kDistance>(v), hn::Mul(v, sign));
  }
}

// As kvquant::hadamard, stage by stage and so bit by bit.
inline void hadamard(float* out) {
  constexpr int kVecs = kHeadDim / kWidth;
  const Tag d;
  Vec row[kVecs];
  for (int v = 0; v < kVecs; ++v) row[v] = hn::LoadU(d, out + v * kWidth);
  hadamard_stage<1>(row);
  hadamard_stage<2>(row);
  hadamard_stage<4>(row);
  hadamard_stage<8>(row);
  for (int half = 1; half < kVecs; half *= 2) {
    for (int start = 0; start < kVecs; start += 2 * half) {
      for (int v = start; v < start + half; ++v) {
        const Vec a = row[v];
        row[v] = hn::Add(a, row[v + half]);
        row[v + half] = hn::Sub(a, row[v + half]);
      }
    }
  }
  const Vec scale = hn::Set(d, kvquant::hadamard_scale(kHeadDim));
  for (int v = 0; v < kVecs; ++v) hn::StoreU(hn::Mul(row[v], scale), d, out + v * kWidth);
}

#endif

template <int kQueries>
void dot_share(int share, const std::uint8_t* codes, std::ptrdiff_t stride, int steps,
               const std::int8_t* high, const std::int8_t* low, std::ptrdiff_t query_bytes,
               std::int32_t* sums) {
  if constexpr (kQueries > 1) {
    if (share < kQueries) {
      return dot_share<kQueries - 1>(share, codes, stride, steps, high, low, query_bytes, sums);
    }
  }
  dot_bytes<kQueries>(codes, stride, steps, high, low, query_bytes, sums);
}

}  // namespace
}  // namespace kipp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
