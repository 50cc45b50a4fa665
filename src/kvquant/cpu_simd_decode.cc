// The SIMD backend's way out: planes to FP32 rows. A head's row is unpacked to one byte a channel,
// which stays in the first cache level, and made into numbers, rotated and written from there.
#include "kvquant/cpu_simd.h"
#include "kvquant/cpu_simd_targets-inl.h"

#include <cstring>
#include <span>
#include <utility>

#include "kvquant/codec.h"
#include "kvquant/cpu_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvquant/cpu_simd_decode.cc"
#include "hwy/foreach_target.h"
// What follows must come after foreach_target.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#if HWY_TARGET != HWY_SCALAR
#include "kvquant/cpu_simd_vector-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace kvquant {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR

// One lane at a time is what the oracle does.
Status dequantize(const BlockLayout& layout, const KvBlock& block, Tier tier, int first, int count,
                  std::span<float> k, std::span<float> v, bool) {
  return CpuRefBackend().dequantize_for_attention(layout, block, tier, first, count, k, v);
}

#else

// --- codes

// One row of each plane that a read needs.
struct PackedRow {
  const std::uint8_t *hi2, *mid2, *low4;
};

template <int kPlanesRead>
KVQUANT_HOT void prefetch(const PackedRow& row) {
  hwy::Prefetch(row.hi2);
  if constexpr (kPlanesRead >= 2) hwy::Prefetch(row.mid2);
  if constexpr (kPlanesRead >= 3) hwy::Prefetch(row.low4);
}

template <int kBy, class D>
KVQUANT_HOT hn::Vec<D> shifted_down(D d, hn::Vec<D> bytes) {
  const hn::Repartition<std::uint16_t, D> d16;
  return hn::BitCast(d, hn::ShiftRight<kBy>(hn::BitCast(d16, bytes)));
}

// The top two or four bits of codes: low nibbles belong to quarters 0 (even) and 1 (odd) of the
// row, high nibbles to quarters 2 and 3.
template <class D>
struct Nibbles {
  hn::Vec<D> even, odd;
};

template <int kPlanesRead, class D>
KVQUANT_HOT Nibbles<D> nibbles(D d, const PackedRow& from, size_t i) {
  const auto pairs = hn::Set(d, 0x33);
  const auto hi = hn::LoadU(d, from.hi2 + i);
  const auto even = hn::And(hi, pairs);
  const auto odd = hn::And(shifted_down<2>(d, hi), pairs);
  if constexpr (kPlanesRead == 1) {
    return {even, odd};
  } else {
    const auto mid = hn::LoadU(d, from.mid2 + i);
    return {hn::Or(up<2>(d, even), hn::And(mid, pairs)),
            hn::Or(up<2>(d, odd), hn::And(shifted_down<2>(d, mid), pairs))};
  }
}

// Four vectors of codes, one for each quarter of a row.
template <class D>
struct Quarters {
  hn::Vec<D> q0, q1, q2, q3;
};

template <int kPlanesRead, class D>
KVQUANT_HOT Quarters<D> unpack(D d, const PackedRow& from, size_t quarter, size_t i) {
  const auto [even, odd] = nibbles<kPlanesRead>(d, from, i);
  const auto low = hn::Set(d, 0x0f);
  if constexpr (kPlanesRead < 3) {
    return {hn::And(even, low), hn::And(odd, low), hn::And(shifted_down<4>(d, even), low),
            hn::And(shifted_down<4>(d, odd), low)};
  } else {
    const auto low02 = hn::LoadU(d, from.low4 + i);
    const auto low13 = hn::LoadU(d, from.low4 + quarter + i);
    return {hn::Or(hn::AndNot(low, up<4>(d, even)), hn::And(low02, low)),
            hn::Or(hn::AndNot(low, up<4>(d, odd)), hn::And(low13, low)),
            hn::Or(hn::AndNot(low, even), hn::And(shifted_down<4>(d, low02), low)),
            hn::Or(hn::AndNot(low, odd), hn::And(shifted_down<4>(d, low13), low))};
  }
}

// Lanes [at, at + kLanes) of a vector of bytes; `at` is known where this is inlined.
template <class D>
KVQUANT_HOT hn::Vec<Bytes> part_of(D d, hn::Vec<D> v, size_t at) {
  constexpr size_t kSize = hn::MaxLanes(d);
  if constexpr (kSize == kLanes) {
    return v;
  } else {
    const hn::Half<D> half;
    if (at < kSize / 2) return part_of(half, hn::LowerHalf(half, v), at);
    return part_of(half, hn::UpperHalf(half, v), at - kSize / 2);
  }
}

// How a row's codes are held while it is decoded. load() takes them from the planes;
// operator()(channel) gives a vector of them. In registers, where the row is exactly four vectors
// of D; channels are known where this is inlined.
template <int kPlanesRead, class D>
class FixedCodes {
 public:
  static constexpr int planes() { return kPlanesRead; }
  static constexpr size_t width() { return 4 * kQuarter; }

  KVQUANT_HOT void load(const PackedRow& from, size_t) {
    const D d;
    if constexpr (kPlanesRead == 3) {
      bytes_ = unpack<3>(d, from, kQuarter, 0);
      return;
    }
    const Nibbles<D> both = nibbles<(kPlanesRead == 1 ? 1 : 2)>(d, from, 0);
    for (size_t part = 0; part < kParts; ++part) {
      const size_t at = part * kLanes;
      even_[part] = hn::PromoteTo(Ints(), part_of(d, both.even, at));
      odd_[part] = hn::PromoteTo(Ints(), part_of(d, both.odd, at));
    }
  }

  KVQUANT_HOT hn::Vec<Ints> operator()(size_t c) const {
    const size_t at = c % kQuarter;
    const bool odd = c / kQuarter % 2 != 0;
    const bool high = c / kQuarter >= 2;
    if constexpr (kPlanesRead == 3) {
      const auto& bytes = high ? (odd ? bytes_.q3 : bytes_.q2) : (odd ? bytes_.q1 : bytes_.q0);
      return hn::PromoteTo(Ints(), part_of(D(), bytes, at));
    } else {
      const auto pair = (odd ? odd_ : even_)[at / kLanes];
      if (high) return hn::ShiftRight<4>(pair);
      return hn::And(pair, hn::Set(Ints(), 15));
    }
  }

 private:
  static constexpr size_t kQuarter = hn::MaxLanes(D());
  static constexpr size_t kParts = kQuarter / kLanes;

  Quarters<D> bytes_;                         // of all three planes
  hn::Vec<Ints> even_[kParts], odd_[kParts];  // of fewer: two codes a lane
};

// One byte a channel, for a row of any width.
template <int kPlanesRead>
class BufferedCodes {
 public:
  static constexpr int planes() { return kPlanesRead; }
  static constexpr size_t width() { return 0; }  // any

  KVQUANT_HOT void load(const PackedRow& from, size_t width) {
    const size_t quarter = width / 4;
    if (quarter % 16 == 0) return fill(ByteRun<16>(), from, quarter);
    fill(ByteRun<4>(), from, quarter);
  }
  KVQUANT_HOT hn::Vec<Ints> operator()(size_t c) const {
    return hn::PromoteTo(Ints(), hn::LoadU(Bytes(), codes_ + c));
  }

 private:
  template <class D>
  KVQUANT_HOT void fill(D d, const PackedRow& from, size_t quarter) {
    for (size_t i = 0; i < quarter; i += hn::MaxLanes(d)) {
      const Quarters<D> all = unpack<kPlanesRead>(d, from, quarter, i);
      hn::StoreU(all.q0, d, codes_ + i);
      hn::StoreU(all.q1, d, codes_ + i + quarter);
      hn::StoreU(all.q2, d, codes_ + i + 2 * quarter);
      hn::StoreU(all.q3, d, codes_ + i + 3 * quarter);
    }
  }

  HWY_ALIGN std::uint8_t codes_[kMaxWidth];
};

// --- numbers

// The levels that a read at some width gives: level(top) = first + slope * top, exactly. Products
// of a scale and a level are exact too, so fused or not, each value is the oracle's.
struct Levels {
  Levels(const QuantScheme& scheme, BitWidth width) {
    const bool fitted = width == BitWidth::int2 && has_fitted_pair(scheme);
    first = fitted ? fitted_level(scheme, 0) : level_of(scheme, width, 0);
    slope = (fitted ? fitted_level(scheme, 1) : level_of(scheme, width, 1)) - first;
  }
  KVQUANT_HOT FloatVec at(FloatVec top) const {
    return hn::MulAdd(top, hn::Set(Floats(), slope), hn::Set(Floats(), first));
  }
  bool plain() const { return first == 0 && slope == 1; }

  float first, slope;
};

// How a vector of codes, which begins at a channel, becomes values. For a row of one scale and
// offset:

// by arithmetic, where the level is the code itself,
class PlainValues {
 public:
  KVQUANT_HOT PlainValues(const Levels&, float scale, float offset)
      : scale_(hn::Set(Floats(), scale)), offset_(hn::Set(Floats(), offset)) {}
  KVQUANT_HOT FloatVec operator()(size_t, hn::Vec<Ints> top) const {
    return hn::MulAdd(scale_, hn::ConvertTo(Floats(), top), offset_);
  }

 private:
  const FloatVec scale_, offset_;
};

// where it is not,
class LevelValues {
 public:
  KVQUANT_HOT LevelValues(const Levels& levels, float scale, float offset)
      : levels_(levels), scale_(hn::Set(Floats(), scale)), offset_(hn::Set(Floats(), offset)) {}
  KVQUANT_HOT FloatVec operator()(size_t, hn::Vec<Ints> top) const {
    return hn::MulAdd(scale_, levels_.at(hn::ConvertTo(Floats(), top)), offset_);
  }

 private:
  const Levels levels_;
  const FloatVec scale_, offset_;
};

// and by looking up, where one vector holds the values of all codes.
class TableValues {
 public:
  static constexpr size_t codes() { return kLanes >= 16 ? 16 : kLanes == 8 ? 4 : 0; }

  KVQUANT_HOT TableValues(const Levels& levels, float scale, float offset)
      : table_(hn::MulAdd(hn::Set(Floats(), scale), levels.at(hn::Iota(Floats(), 0.0f)),
                          hn::Set(Floats(), offset))) {}
  KVQUANT_HOT FloatVec operator()(size_t, hn::Vec<Ints> top) const {
    return hn::TableLookupLanes(table_, hn::IndicesFromVec(Floats(), top));
  }

 private:
  const FloatVec table_;
};

// For a row of many groups: a scale and an offset for each channel.
class ChannelValues {
 public:
  KVQUANT_HOT ChannelValues(const Levels& levels, const float* scales, const float* offsets)
      : levels_(levels), scales_(scales), offsets_(offsets) {}
  KVQUANT_HOT FloatVec operator()(size_t c, hn::Vec<Ints> top) const {
    const Floats d;
    return hn::MulAdd(hn::Load(d, scales_ + c), levels_.at(hn::ConvertTo(d, top)),
                      hn::Load(d, offsets_ + c));
  }

 private:
  const Levels levels_;
  const float *scales_, *offsets_;
};

// --- parameters

// FP16 to FP32, finite values: 13 bits further left the exponent is 112 short, and multiplying sets
// that right for normal and subnormal numbers alike.
KVQUANT_HOT void widen_fp16(const std::uint8_t* from, size_t count, float* to) {
  const Floats d;
  const Words dw;
  for (size_t i = 0; i < count; i += kLanes) {
    const auto bits = hn::PromoteTo(
        dw, hn::LoadU(Halves(), reinterpret_cast<const std::uint16_t*>(from + 2 * i)));
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(dw, 0x8000)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(dw, 0x7fff)));
    const auto value = hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f));
    hn::Store(hn::Or(value, hn::BitCast(d, sign)), d, to + i);
  }
}

struct Read {
  const SideRows& side;
  BitWidth width;
  size_t first, count;  // positions
  float* out;           // [position][head][channel]
  bool stream;          // `out` is aligned to whole vectors then

  size_t end() const { return first + count; }
  float* row(size_t position, size_t head) const {
    return out + ((position - first) * side.heads() + head) * side.width();
  }
  // Where the parameters of what is read lie.
  Plane params_plane() const {
    const bool fitted = width == BitWidth::int2 && has_fitted_pair(side.scheme());
    return fitted ? Plane::hi2 : side.layout().range_plane(side.side());
  }
};

// A head's parameters where each of its rows lies in one group: a scale and an offset for each
// position.
template <class Values>
class RowParams {
 public:
  static size_t lasts(const SideRows&) { return kBlockPositions; }  // positions that load() is for

  void load(const Read& read, size_t, size_t head) {
    const SideRows& side = read.side;
    const Plane plane = read.params_plane();
    if (side.group_size() != side.width()) {  // groups of several heads
      for (size_t position = 0; position < kBlockPositions; ++position) {
        const GroupParams params = side.params(plane, side.group_of(position, head, 0));
        scales_[position] = fp16_to_float(params.scale);
        offsets_[position] = fp16_to_float(params.offset);
      }
      return;
    }
    const size_t group = side.group_of(0, head, 0);  // the other positions' are behind it
    widen_fp16(side.scales(plane, group), kBlockPositions, scales_);
    if (side.scheme().symmetric) {
      std::memset(offsets_, 0, sizeof offsets_);
    } else {
      widen_fp16(side.offsets(plane, group), kBlockPositions, offsets_);
    }
  }
  KVQUANT_HOT Values at(size_t position, const Levels& levels) const {
    return {levels, scales_[position], offsets_[position]};
  }

 private:
  HWY_ALIGN float scales_[kBlockPositions];
  HWY_ALIGN float offsets_[kBlockPositions];
};

// A head's parameters for any grouping: a scale and an offset for each channel.
class ChannelParams {
 public:
  static size_t lasts(const SideRows& side) {
    return side.scheme().grouping == Grouping::per_channel ? side.group_size() : 1;
  }

  void load(const Read& read, size_t position, size_t head) {
    const SideRows& side = read.side;
    const Plane plane = read.params_plane();
    if (side.scheme().grouping == Grouping::per_channel) {
      const size_t group = side.group_of(position, head, 0);
      widen_fp16(side.scales(plane, group), side.width(), scales_);
      if (side.scheme().symmetric) {
        std::memset(offsets_, 0, sizeof offsets_);
      } else {
        widen_fp16(side.offsets(plane, group), side.width(), offsets_);
      }
      return;
    }
    const size_t size = side.group_size();
    const size_t from = head * side.width();  // in the row that groups divide
    for (size_t c = 0; c < side.width();) {
      const GroupParams params = side.params(plane, side.group_of(position, head, c));
      const float scale = fp16_to_float(params.scale);
      const float offset = fp16_to_float(params.offset);
      const size_t end = (from + c) / size * size + size - from;
      for (; c < end && c < side.width(); ++c) {
        scales_[c] = scale;
        offsets_[c] = offset;
      }
    }
  }
  KVQUANT_HOT ChannelValues at(size_t, const Levels& levels) const {
    return {levels, scales_, offsets_};
  }

 private:
  HWY_ALIGN float scales_[kMaxWidth];
  HWY_ALIGN float offsets_[kMaxWidth];
};

// --- rows

// Whether a rotation of so many vectors is faster in registers than in a buffer.
constexpr bool fits_registers(size_t vectors) {
  return vectors == 4 || vectors == 8 || (vectors == 16 && kLanes == 8);
}

// From a buffer in the first cache level to where a row is wanted.
KVQUANT_HOT void send_row(const float* buffer, size_t width, bool scale, bool stream, float* out) {
  const Floats d;
  const FloatVec factor = scale ? hadamard_factor(width) : hn::Set(d, 1.0f);
  for (size_t c = 0; c < width; c += kLanes) {
    const FloatVec v = hn::Mul(hn::Load(d, buffer + c), factor);
    if (stream) {
      hn::Stream(v, d, out + c);
    } else {
      hn::StoreU(v, d, out + c);
    }
  }
}

// Writes a row: `load(channel)` gives a vector of it, and kWidth is its width where that is known,
// else 0. What is to be streamed, or is rotated but not in registers, passes through `buffer`.
template <size_t kWidth, class Load>
KVQUANT_HOT void write_row(const Load& load, size_t width, bool rotate, bool stream, float* buffer,
                           float* out) {
  constexpr size_t kVectors = kWidth / kLanes;
  float* to = stream || (rotate && !fits_registers(kVectors)) ? buffer : out;
  const auto put = [&](size_t c, FloatVec v)
                       KVQUANT_HOT_LAMBDA { hn::StoreU(v, Floats(), to + c); };
  if constexpr (kWidth == 0) {
    for (size_t c = 0; c < width; c += kLanes) put(c, load(c));
  } else if (rotate && fits_registers(kVectors)) {
    const FloatVec factor = hadamard_factor(kWidth);
    turn_vectors<kVectors>(
        0, kLanes, [&](size_t c) KVQUANT_HOT_LAMBDA { return turn_lanes(load(c)); },
        [&](size_t c, FloatVec v) KVQUANT_HOT_LAMBDA { put(c, hn::Mul(v, factor)); });
    rotate = false;
  } else {
    unrolled(std::make_index_sequence<kVectors>(),
             [&](size_t i) KVQUANT_HOT_LAMBDA { put(i * kLanes, load(i * kLanes)); });
  }
  if (rotate) turn_in_place(buffer, width);
  if (rotate || stream) send_row(buffer, width, rotate, stream, out);
}

// Heads that are read together, position by position. Memory likes what it is written to be
// contiguous; but streaming stores do not care, and planes are read faster head by head.
constexpr size_t kHeadsTogether = 8;

KVQUANT_HOT size_t heads_together(const Read& read) { return read.stream ? 1 : kHeadsTogether; }

// How far ahead of the row that is decoded planes are asked for.
KVQUANT_HOT size_t position_ahead(size_t position) {
  return HWY_MIN(position + 2, size_t{kBlockPositions - 1});
}

template <size_t kWidth>
void read_bf16(const Read& read) {
  const SideRows& side = read.side;
  const size_t together = heads_together(read);
  const bool stream = read.stream;
  HWY_ALIGN float buffer[kMaxWidth];
  for (size_t first = 0; first < side.heads(); first += together) {
    const size_t end = HWY_MIN(first + together, side.heads());
    for (size_t position = read.first; position < read.end(); ++position) {
      for (size_t head = first; head < end; ++head) {
        const std::uint8_t* from = side.at(Plane::bf16, position, head);
        write_row<kWidth>([&](size_t c) KVQUANT_HOT_LAMBDA { return load_bf16(from, c); },
                          side.width(), false, stream, buffer, read.row(position, head));
      }
    }
  }
}

// Where the packed rows of a side lie.
template <int kPlanesRead>
class PackedRows {
 public:
  explicit PackedRows(const SideRows& side)
      : first_{side.plane(Plane::hi2), side.plane(Plane::mid2), side.plane(Plane::low4)},
        bytes_(side.parts(Plane::hi2).row_bytes) {}

  KVQUANT_HOT PackedRow at(size_t position, size_t head) const {
    const size_t at = (head * kBlockPositions + position) * bytes_;
    PackedRow row = {first_.hi2 + at, nullptr, nullptr};
    if constexpr (kPlanesRead >= 2) row.mid2 = first_.mid2 + at;
    if constexpr (kPlanesRead >= 3) row.low4 = first_.low4 + 2 * at;
    return row;
  }

 private:
  const PackedRow first_;
  const size_t bytes_;  // of a row of two-bit codes
};

// kRotate matters where the width is known.
template <class Codes, class Params, bool kRotate>
void read_rows(const Read& read, const Levels& levels_of_read) {
  constexpr size_t kWidth = Codes::width();
  const Levels levels = levels_of_read;
  const SideRows& side = read.side;
  const size_t width = kWidth == 0 ? side.width() : kWidth;
  const size_t lasts = Params::lasts(side);
  const size_t together = heads_together(read);
  const PackedRows<Codes::planes()> rows(side);
  const bool stream = read.stream;
  const bool rotate = kWidth == 0 ? side.scheme().hadamard : kRotate;
  HWY_ALIGN float buffer[kMaxWidth];
  Params params[kHeadsTogether];
  for (size_t first = 0; first < side.heads(); first += together) {
    const size_t heads = HWY_MIN(together, side.heads() - first);
    for (size_t position = read.first; position < read.end(); ++position) {
      if (position == read.first || position % lasts == 0) {
        for (size_t i = 0; i < heads; ++i) params[i].load(read, position, first + i);
      }
      const size_t ahead = position_ahead(position);
      float* out = read.row(position, first);
      for (size_t i = 0; i < heads; ++i) {
        prefetch<Codes::planes()>(rows.at(ahead, first + i));
        Codes codes;
        codes.load(rows.at(position, first + i), width);
        const auto values = params[i].at(position, levels);
        write_row<kWidth>([&](size_t c) KVQUANT_HOT_LAMBDA { return values(c, codes(c)); }, width,
                          rotate, stream, buffer, out + i * width);
      }
    }
  }
}

// Rows of one group each.
template <class Codes, bool kRotate>
void read_uniform(const Read& read, const Levels& levels) {
  constexpr int kPlanesRead = Codes::planes();
  constexpr size_t kCodes = size_t{1} << (kPlanesRead == 3 ? 8 : 2 * kPlanesRead);
  if constexpr (kCodes <= TableValues::codes()) {
    return read_rows<Codes, RowParams<TableValues>, kRotate>(read, levels);
  }
  if constexpr (kPlanesRead == 3) {
    if (levels.plain()) return read_rows<Codes, RowParams<PlainValues>, kRotate>(read, levels);
  }
  read_rows<Codes, RowParams<LevelValues>, kRotate>(read, levels);
}

// Rows of four whole vectors, of one group each.
template <class Codes>
void read_fixed(const Read& read, const Levels& levels) {
  if (!read.side.scheme().hadamard) return read_uniform<Codes, false>(read, levels);
  if constexpr (fits_registers(Codes::width() / kLanes)) {
    return read_uniform<Codes, true>(read, levels);
  }
  read_uniform<BufferedCodes<Codes::planes()>, false>(read, levels);
}

// Common rows have code of their own; a buffer does for the others.
template <int kPlanesRead>
void read_codes(const Read& read) {
  using Any = BufferedCodes<kPlanesRead>;
  using Fixed64 = FixedCodes<kPlanesRead, ByteRun<16> >;
  using Fixed128 = FixedCodes<kPlanesRead, ByteRun<32> >;  // 64 again where vectors are short
  const SideRows& side = read.side;
  const Levels levels(side.scheme(), read.width);
  if (side.scheme().grouping == Grouping::per_token && side.group_size() % side.width() == 0) {
    if (side.width() == Fixed128::width()) return read_fixed<Fixed128>(read, levels);
    if (side.width() == Fixed64::width()) return read_fixed<Fixed64>(read, levels);
    return read_uniform<Any, false>(read, levels);
  }
  if (side.width() == Fixed128::width() && !side.scheme().hadamard) {
    return read_rows<Fixed128, ChannelParams, false>(read, levels);
  }
  read_rows<Any, ChannelParams, false>(read, levels);
}

void read_side(const Read& read) {
  switch (read.width) {
    case BitWidth::bf16:
      return read.side.width() == 128 ? read_bf16<128>(read) : read_bf16<0>(read);
    case BitWidth::int8:
      return read_codes<3>(read);
    case BitWidth::int4:
      return read_codes<2>(read);
    case BitWidth::int2:
      return read_codes<1>(read);
  }
}

Status dequantize(const BlockLayout& layout, const KvBlock& block, Tier tier, int first, int count,
                  std::span<float> k, std::span<float> v, bool stream) {
  if (Status status = check_read(layout, block, tier, first, count, k, v); !status.ok())
    return status;
  constexpr std::uintptr_t kVector = kLanes * sizeof(float);
  bool streamed = false;
  for (const Side side : {Side::key, Side::value}) {
    float* out = side == Side::key ? k.data() : v.data();
    // Rows are whole vectors, so an aligned first one means that all of them are.
    const bool streams = stream && reinterpret_cast<std::uintptr_t>(out) % kVector == 0;
    const SideRows rows(layout, side, block);
    read_side({rows, tier.side(side), static_cast<size_t>(first), static_cast<size_t>(count), out,
               streams});
    streamed = streamed || streams;
  }
  if (streamed) hwy::FlushStream();
  return {};
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvquant {

HWY_EXPORT(dequantize);

Status CpuSimdBackend::dequantize_for_attention(const BlockLayout& layout, const KvBlock& block,
                                                Tier tier, int first, int count, std::span<float> k,
                                                std::span<float> v) {
  return HWY_DYNAMIC_DISPATCH(dequantize)(layout, block, tier, first, count, k, v,
                                          stores_ == Stores::streaming);
}

}  // namespace kvquant
#endif  // HWY_ONCE
