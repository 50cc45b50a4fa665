// The inner loops of attention over codes: planes into bytes, and products of bytes.
//
// Products of bytes sum four neighbours into 32 bits, so a side is laid out with four neighbours of
// what is summed over side by side: four channels of a key, [channel / 4][position][4], or four
// positions of a value, [position / 4][lane][4]. The other factor is the bytes of a query, or of
// its weights, in natural order.
//
// A row of 128 four-bit codes is 64 bytes, byte i holding channels i and i + 64, as low4 stores it;
// of hi2 and mid2, where byte i holds channels i, i + 32, i + 64 and i + 96 in two bits each, the
// same is made. Such nibbles are what is laid out; they are split where they are used, in the
// shadow of the products. Lane 32 c + 16 a + 4 b + d of values is channel 64 a + 16 b + 4 c + d:
// bytes are interleaved within blocks of 128 bits and never cross them.
//
// Included once per target; no include guard.

#include <hwy/highway.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/attention_tile-inl.h"
#include "backend/cpu/code_attention.h"
#include "kvquant/codec.h"

HWY_BEFORE_NAMESPACE();
namespace kipp::cpu::HWY_NAMESPACE {
namespace {

inline constexpr int kPackedRow = kHeadDim / 4;  // bytes of a row of hi2 or mid2
inline constexpr int kNibbleRow = kHeadDim / 2;
inline constexpr int kLanesAtOnce = kBlockPositions;  // 32-bit lanes of a product
static_assert(kLanesAtOnce == kLanes);
inline constexpr int kValueChunks = kHeadDim / kLanesAtOnce;

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

// Asks for the lines of what is read later, a few at a time in slots along the work on a block. In
// bursts they would fill the queue of outstanding loads and hold up what is at hand (Zen 4,
// 2026-11-30, two queries, keys and values of int4 out of memory: 890 ns a block if lines of keys
// are asked for along the products of keys and those of values along those of values, 460 as here,
// and 370 with all in the second-level cache; BF16 rows 790 and 580). Spread over all slots instead
// of over the first half of them: 2 to 7 % more tokens a second at a depth of 16,384, in three
// turns.
class Lines {
 public:
  // Of the work on a block of codes: a quarter each for unpacking and multiplying keys and values.
  static constexpr int kSlots = 64;
  static constexpr int kOfPart = kSlots / 4;

  Lines() {}  // nothing
  explicit Lines(const TieredHead& next) {
    add(next.keys);
    add(next.values);
    for (unsigned r = 0; r < ranges_; ++r) lines_ += left_[r];
  }

  HWY_INLINE void take(int slots) {
    for (due_ += slots * lines_; due_ >= kSlots && range_ < ranges_; due_ -= kSlots) {
      fetch_line(at_[range_]);
      at_[range_] += kLine;
      if (--left_[range_] == 0) ++range_;
    }
  }

 private:
  void add(const TieredSide& side) {
    if (side.rows != nullptr) return;  // the kernels of rows have their own way
    constexpr int kPacked = kBlockPositions * kPackedRow / static_cast<int>(kLine);
    add(side.codes.scales, 1);
    add(side.codes.offsets, 1);
    add(side.codes.hi2, kPacked);
    if (side.codes.mid2 != nullptr) add(side.codes.mid2, kPacked);
    if (side.codes.low4 != nullptr) add(side.codes.low4, 2 * kPacked);
  }
  void add(const void* at, int lines) {
    at_[ranges_] = static_cast<const std::byte*>(at);
    left_[ranges_++] = lines;
  }

  static constexpr int kMostRanges = kvquant::kSides * 5;
  const std::byte* at_[kMostRanges];
  int left_[kMostRanges];
  unsigned ranges_ = 0;
  unsigned range_ = 0;  // at hand
  int lines_ = 0;       // in all
  int due_ = 0;         // kSlots for each line
};

#if HWY_TARGET == HWY_SCALAR

inline constexpr int kDotQueries = 1;

// Channels c and c + 64.
template <Nibbles kNibbles>
std::uint8_t nibbles_at(const Planes& planes, int position, int c) {
  if (kNibbles == Nibbles::low4) return planes.a[position * kNibbleRow + c];
  const auto code = [&](int channel) {
    const int high = kvquant::get2(planes.a + position * kPackedRow, kHeadDim, channel);
    if (kNibbles == Nibbles::top2) return high;
    return 4 * high + kvquant::get2(planes.b + position * kPackedRow, kHeadDim, channel);
  };
  return static_cast<std::uint8_t>(code(c) | code(c + kNibbleRow) << 4);
}

template <Nibbles kNibbles>
void unpack_keys(const Planes& planes, std::uint8_t* out, Lines& lines) {
  lines.take(Lines::kOfPart);
  for (int p = 0; p < kBlockPositions; ++p) {
    for (int c = 0; c < kNibbleRow; ++c) {
      out[(c / 4 * kBlockPositions + p) * 4 + c % 4] = nibbles_at<kNibbles>(planes, p, c);
    }
  }
}

template <Nibbles kNibbles>
void unpack_four_values(const Planes& planes, int first, std::uint8_t* out) {
  for (int p = first; p < first + 4; ++p) {
    for (int c = 0; c < kNibbleRow; ++c) {
      const int lane = c % 16 / 4 * 16 + c / 16 * 4 + c % 4;
      out[(p / 4 * kNibbleRow + lane) * 4 + p % 4] = nibbles_at<kNibbles>(planes, p, c);
    }
  }
}

// Four codes by four bytes of a query.
inline std::int32_t product(const std::uint8_t* codes, int shift, const std::int8_t* high,
                            const std::int8_t* low) {
  std::int32_t sum = 0;
  for (int i = 0; i < 4; ++i) sum += (codes[i] >> shift & 15) * (256 * high[i] + low[i]);
  return sum;
}

template <int kQueries>
void dot_keys(const std::uint8_t* nibbles, const std::int8_t* high, const std::int8_t* low,
              std::int32_t* sums, Lines& lines) {
  lines.take(Lines::kOfPart);
  for (int p = 0; p < kBlockPositions; ++p) {
    sums[p] = 0;
    for (int c = 0; c < kNibbleRow; c += 4) {
      const std::uint8_t* at = nibbles + (c / 4 * kBlockPositions + p) * 4;
      sums[p] += product(at, 0, high + c, low + c) +
                 product(at, 4, high + kNibbleRow + c, low + kNibbleRow + c);
    }
  }
}

template <int kQueries>
void dot_values(const std::uint8_t* nibbles, int chunk, const std::int8_t* high,
                const std::int8_t* low, std::int32_t* sums, Lines& lines) {
  lines.take(Lines::kOfPart / kValueChunks);
  std::fill_n(sums, kLanesAtOnce, 0);
  for (int p = 0; p < kBlockPositions; p += 4) {
    for (int l = 0; l < kLanesAtOnce; ++l) {
      const std::uint8_t* at = nibbles + (p / 4 * kNibbleRow + 16 * chunk + l % 16) * 4;
      sums[l] += product(at, l / 16 * 4, high + p, low + p);
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

// Queries in registers at once, each with two sums of all lanes. With VNNI the codes of int8 are
// multiplied whole; the others sum in 16 bits at first and take them four bits at a time.
#if HWY_TARGET == HWY_AVX3_DL
inline constexpr int kDotQueries = 6;
#else
inline constexpr int kDotQueries = HWY_TARGET == HWY_AVX3 ? 3 : 1;
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

template <Nibbles kNibbles>
void unpack_keys(const Planes& planes, std::uint8_t* out, Lines& lines) {
  // Bytes 4 n to 4 n + 3 of kWidth nibble rows from p on.
  const auto keep = [&](ByteVec nibbles, int n, int p) HWY_ATTR {
    hn::Store(nibbles, Bytes(), out + (n * kBlockPositions + p) * 4);
  };
  for (int p = 0; p < kBlockPositions; p += kWidth) {
    constexpr int kSlotsAtOnce = Lines::kOfPart * kWidth / kBlockPositions;
    if constexpr (kNibbles == Nibbles::low4) {
      lines.take(kSlotsAtOnce);
      for (int j = 0; j < kNibbleRow / 16; ++j) {
        ByteVec turned[4];
        turn_rows(planes.a + p * kNibbleRow + 16 * j, kNibbleRow, turned);
        for (int i = 0; i < 4; ++i) keep(turned[i], 4 * j + i, p);
      }
    } else {
      for (int j = 0; j < kPackedRow / 16; ++j) {
        lines.take(kSlotsAtOnce / (kPackedRow / 16));
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

// Positions p to p + 3.
template <Nibbles kNibbles>
HWY_INLINE void unpack_four_values(const Planes& planes, int p, std::uint8_t* out) {
  const Bytes d;
  const hn::Repartition<std::uint16_t, Bytes> pairs;
  std::uint8_t* four = out + p * kNibbleRow;
  for (int at = 0; at < kNibbleRow; at += kVecBytes) {
    const ByteVec row[4] = {
        nibble_row<kNibbles>(planes, p, at), nibble_row<kNibbles>(planes, p + 1, at),
        nibble_row<kNibbles>(planes, p + 2, at), nibble_row<kNibbles>(planes, p + 3, at)};
    const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(row[0], row[1]));
    const auto ab_high = hn::BitCast(pairs, hn::InterleaveUpper(d, row[0], row[1]));
    const auto ce_low = hn::BitCast(pairs, hn::InterleaveLower(row[2], row[3]));
    const auto ce_high = hn::BitCast(pairs, hn::InterleaveUpper(d, row[2], row[3]));
    const hn::Vec<decltype(pairs)> fours[4] = {
        hn::InterleaveLower(ab_low, ce_low), hn::InterleaveUpper(pairs, ab_low, ce_low),
        hn::InterleaveLower(ab_high, ce_high), hn::InterleaveUpper(pairs, ab_high, ce_high)};
    for (int k = 0; k < 4; ++k) {
      hn::Store(hn::BitCast(d, fours[k]), d, four + k * kNibbleRow + at);
    }
  }
}

HWY_INLINE ByteVec low_nibbles(ByteVec v) { return hn::And(v, mask_of(0x0f)); }
HWY_INLINE ByteVec high_nibbles(ByteVec v) { return low_nibbles(shift_right<4>(v)); }

// What a step of a product reads: the codes of all lanes for kFours fours of what is summed over,
// of which the first is number `step` of the query's and the others follow kNextFour later.
struct KeyNibbles {
  static constexpr int kSteps = kNibbleRow / 4;
  static constexpr int kFours = 2;
  static constexpr int kNextFour = kSteps;
  static HWY_INLINE void load(const std::uint8_t* codes, int step,
                              ByteVec (&code)[kFours][kVectors]) {
    for (int v = 0; v < kVectors; ++v) {
      const ByteVec both = hn::Load(Bytes(), codes + step * kLanesAtOnce * 4 + v * kVecBytes);
      code[0][v] = low_nibbles(both);
      code[1][v] = high_nibbles(both);
    }
  }
};
struct KeyBytes {
  static constexpr int kSteps = kHeadDim / 4;
  static constexpr int kFours = 1;
  static constexpr int kNextFour = 0;
  static HWY_INLINE void load(const std::uint8_t* codes, int step,
                              ByteVec (&code)[kFours][kVectors]) {
    for (int v = 0; v < kVectors; ++v) {
      code[0][v] = hn::Load(Bytes(), codes + step * kLanesAtOnce * 4 + v * kVecBytes);
    }
  }
};
// One chunk of 32 lanes.
struct ValueNibbles {
  static constexpr int kSteps = kBlockPositions / 4;
  static constexpr int kFours = 1;
  static constexpr int kNextFour = 0;
  static HWY_INLINE void load(const std::uint8_t* codes, int step,
                              ByteVec (&code)[kFours][kVectors]) {
    constexpr int kHalf = kVectors / 2;
    for (int v = 0; v < kHalf; ++v) {
      const ByteVec both = hn::Load(Bytes(), codes + step * kNibbleRow * 4 + v * kVecBytes);
      code[0][v] = low_nibbles(both);
      code[0][v + kHalf] = high_nibbles(both);
    }
  }
};
struct ValueBytes {
  static constexpr int kSteps = kBlockPositions / 4;
  static constexpr int kFours = 1;
  static constexpr int kNextFour = 0;
  static HWY_INLINE void load(const std::uint8_t* codes, int step,
                              ByteVec (&code)[kFours][kVectors]) {
    for (int v = 0; v < kVectors; ++v) {
      code[0][v] = hn::Load(Bytes(), codes + step * kHeadDim * 4 + v * kVecBytes);
    }
  }
};

HWY_INLINE IntVec four_bytes(const std::int8_t* at) {
  std::int32_t four;
  std::memcpy(&four, at, sizeof(four));
  return hn::Set(IntTag(), four);
}

#if HWY_TARGET == HWY_AVX3_DL

// Codes of int8 from their nibbles: of each step's lanes first the channels, or lanes, of the low
// nibbles and then those of the high ones, kLater bytes on.
template <int kStepBytes, int kLater, int kOutStep>
void whole_bytes(const std::uint8_t* top, const std::uint8_t* low, std::uint8_t* out) {
  const Bytes d;
  for (int s = 0; s < kBlockPositions * kNibbleRow / kStepBytes; ++s) {
    for (int at = 0; at < kStepBytes; at += kVecBytes) {
      const ByteVec t = hn::Load(d, top + s * kStepBytes + at);
      const ByteVec l = hn::Load(d, low + s * kStepBytes + at);
      std::uint8_t* to = out + s * kOutStep + at;
      hn::Store(hn::Or(shift_left<4>(low_nibbles(t)), low_nibbles(l)), d, to);
      hn::Store(hn::Or(hn::AndNot(mask_of(0x0f), t), high_nibbles(l)), d, to + kLater);
    }
  }
}

// acc + the sums of four products. Highway 1.0.3 takes this target's instructions for those of
// another extension, so the compiler would not inline the intrinsic.
HWY_INLINE IntVec add_products(IntVec acc, ByteVec codes, IntVec four) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc.raw) : "v"(codes.raw), "v"(four.raw));
  return acc;
}

// sums[q] = sum over fours of codes by the integers 256 * high + low of query q: [kLanesAtOnce].
// Calls beside(step) on the way.
template <class Codes, int kQueries, class Beside>
HWY_INLINE void dot(const std::uint8_t* codes, const std::int8_t* high, const std::int8_t* low,
                    std::ptrdiff_t query_bytes, std::int32_t* sums, const Beside& beside) {
  const IntTag d;
  IntVec of_high[kQueries][kVectors], of_low[kQueries][kVectors];
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) of_high[q][v] = of_low[q][v] = hn::Zero(d);
  }
  for (int s = 0; s < Codes::kSteps; ++s) {
    ByteVec code[Codes::kFours][kVectors];
    Codes::load(codes, s, code);
    beside(s);
    for (int f = 0; f < Codes::kFours; ++f) {
      const std::ptrdiff_t at = 4 * (s + f * Codes::kNextFour);
      for (int q = 0; q < kQueries; ++q) {
        const IntVec h = four_bytes(high + q * query_bytes + at);
        const IntVec l = four_bytes(low + q * query_bytes + at);
        for (int v = 0; v < kVectors; ++v) {
          of_high[q][v] = add_products(of_high[q][v], code[f][v], h);
          of_low[q][v] = add_products(of_low[q][v], code[f][v], l);
        }
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
#if HWY_TARGET == HWY_AVX3
  return hn::Vec<Words>{_mm512_maddubs_epi16(codes.raw, four.raw)};
#elif HWY_TARGET == HWY_AVX2
  return hn::Vec<Words>{_mm256_maddubs_epi16(codes.raw, four.raw)};
#elif HWY_TARGET == HWY_SSE4
  return hn::Vec<Words>{_mm_maddubs_epi16(codes.raw, four.raw)};
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

// As above.
template <class Codes, int kQueries, class Beside>
HWY_INLINE void dot(const std::uint8_t* codes, const std::int8_t* high, const std::int8_t* low,
                    std::ptrdiff_t query_bytes, std::int32_t* sums, const Beside& beside) {
  constexpr int kStepsOfWords = 8 / Codes::kFours;  // 8 * 2 * 15 * 128 < 2^15
  const IntTag d;
  std::fill_n(sums, kQueries * kLanesAtOnce, 0);
  for (int first = 0; first < Codes::kSteps; first += kStepsOfWords) {
    hn::Vec<Words> of_high[kQueries][kVectors], of_low[kQueries][kVectors];
    for (int q = 0; q < kQueries; ++q) {
      for (int v = 0; v < kVectors; ++v) of_high[q][v] = of_low[q][v] = hn::Zero(Words());
    }
    for (int s = first; s < first + kStepsOfWords; ++s) {
      ByteVec code[Codes::kFours][kVectors];
      Codes::load(codes, s, code);
      beside(s);
      for (int f = 0; f < Codes::kFours; ++f) {
        const std::ptrdiff_t at = 4 * (s + f * Codes::kNextFour);
        for (int q = 0; q < kQueries; ++q) {
          const auto h = hn::BitCast(SignedBytes(), four_bytes(high + q * query_bytes + at));
          const auto l = hn::BitCast(SignedBytes(), four_bytes(low + q * query_bytes + at));
          for (int v = 0; v < kVectors; ++v) {
            of_high[q][v] = hn::Add(of_high[q][v], pair_products(code[f][v], h));
            of_low[q][v] = hn::Add(of_low[q][v], pair_products(code[f][v], l));
          }
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

template <class Codes, int kQueries>
HWY_INLINE void dot_of_keys(const std::uint8_t* codes, const std::int8_t* high,
                            const std::int8_t* low, std::int32_t* sums, Lines& lines) {
  constexpr int kEvery = Codes::kSteps / Lines::kOfPart;
  dot<Codes, kQueries>(codes, high, low, kHeadDim, sums, [&](int step) HWY_ATTR {
    if (step % kEvery == 0) lines.take(1);
  });
}
template <class Codes, int kQueries>
HWY_INLINE void dot_of_values(const std::uint8_t* codes, const std::int8_t* high,
                              const std::int8_t* low, std::int32_t* sums, Lines& lines) {
  dot<Codes, kQueries>(codes, high, low, kBlockPositions, sums, [&](int step) HWY_ATTR {
    constexpr int kOfChunk = Lines::kOfPart / kValueChunks;
    constexpr int kEvery = Codes::kSteps / kOfChunk;
    if (step % kEvery == 0) lines.take(1);
  });
}

template <int kQueries>
HWY_INLINE void dot_keys(const std::uint8_t* nibbles, const std::int8_t* high,
                         const std::int8_t* low, std::int32_t* sums, Lines& lines) {
  dot_of_keys<KeyNibbles, kQueries>(nibbles, high, low, sums, lines);
}
template <int kQueries>
HWY_INLINE void dot_values(const std::uint8_t* nibbles, int chunk, const std::int8_t* high,
                           const std::int8_t* low, std::int32_t* sums, Lines& lines) {
  dot_of_values<ValueNibbles, kQueries>(nibbles + chunk * kNibbleRow, high, low, sums, lines);
}

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

}  // namespace
}  // namespace kipp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
