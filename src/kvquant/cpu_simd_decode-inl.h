// The SIMD backend's way out: planes to FP32 rows. A head's row is unpacked to one byte a channel,
// which stays in the first cache level, and made into numbers, rotated and written from there.
#if defined(KVQUANT_CPU_SIMD_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVQUANT_CPU_SIMD_DECODE_INL_H_
#undef KVQUANT_CPU_SIMD_DECODE_INL_H_
#else
#define KVQUANT_CPU_SIMD_DECODE_INL_H_
#endif

#include "kvquant/cpu_simd_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvquant {
namespace HWY_NAMESPACE {
namespace {

// --- unpacking

struct PlaneRows {
  const std::uint8_t *hi2, *mid2, *low4;
};

// Codes of one, two or all three planes, in channel order.
template <int kPlanesRead, class D>
HWY_INLINE void unpack_runs(D d, const PlaneRows& from, size_t width, std::uint8_t* codes) {
  const hn::Repartition<std::uint16_t, D> d16;
  using V = hn::Vec<D>;
  const auto up2 = [&](V v)
                       HWY_ATTR { return hn::BitCast(d, hn::ShiftLeft<2>(hn::BitCast(d16, v))); };
  const auto up4 = [&](V v)
                       HWY_ATTR { return hn::BitCast(d, hn::ShiftLeft<4>(hn::BitCast(d16, v))); };
  const auto down2 = [&](V v) HWY_ATTR {
    return hn::BitCast(d, hn::ShiftRight<2>(hn::BitCast(d16, v)));
  };
  const auto down4 = [&](V v) HWY_ATTR {
    return hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(d16, v)));
  };
  const V pairs = hn::Set(d, 0x33);
  const V nibble = hn::Set(d, 0x0f);
  const size_t quarter = width / 4;
  for (size_t i = 0; i < quarter; i += hn::MaxLanes(d)) {
    // Low nibbles: quarters 0 and 1 of the row; high nibbles: 2 and 3.
    const V hi = hn::LoadU(d, from.hi2 + i);
    V even = hn::And(hi, pairs);
    V odd = hn::And(down2(hi), pairs);
    if constexpr (kPlanesRead >= 2) {
      const V mid = hn::LoadU(d, from.mid2 + i);
      even = hn::Or(up2(even), hn::And(mid, pairs));
      odd = hn::Or(up2(odd), hn::And(down2(mid), pairs));
    }
    V q0, q1, q2, q3;
    if constexpr (kPlanesRead == 3) {
      const V low02 = hn::LoadU(d, from.low4 + i);
      const V low13 = hn::LoadU(d, from.low4 + quarter + i);
      q0 = hn::Or(hn::AndNot(nibble, up4(even)), hn::And(low02, nibble));
      q1 = hn::Or(hn::AndNot(nibble, up4(odd)), hn::And(low13, nibble));
      q2 = hn::Or(hn::AndNot(nibble, even), hn::And(down4(low02), nibble));
      q3 = hn::Or(hn::AndNot(nibble, odd), hn::And(down4(low13), nibble));
    } else {
      q0 = hn::And(even, nibble);
      q1 = hn::And(odd, nibble);
      q2 = hn::And(down4(even), nibble);
      q3 = hn::And(down4(odd), nibble);
    }
    hn::StoreU(q0, d, codes + i);
    hn::StoreU(q1, d, codes + i + quarter);
    hn::StoreU(q2, d, codes + i + 2 * quarter);
    hn::StoreU(q3, d, codes + i + 3 * quarter);
  }
}

template <int kPlanesRead>
HWY_INLINE void unpack_row(const SideRows& side, size_t position, size_t head,
                           std::uint8_t* codes) {
  const PlaneRows from = {side.at(Plane::hi2, position, head), side.at(Plane::mid2, position, head),
                          side.at(Plane::low4, position, head)};
  const size_t quarter = side.width() / 4;
  if (quarter % 32 == 0) return unpack_runs<kPlanesRead>(ByteRun<32>(), from, side.width(), codes);
  if (quarter % 16 == 0) return unpack_runs<kPlanesRead>(ByteRun<16>(), from, side.width(), codes);
  unpack_runs<kPlanesRead>(ByteRun<4>(), from, side.width(), codes);
}

// --- numbers

// The levels that a read at some width gives: level(top) = first + slope * top, exactly.
struct Levels {
  Levels(const QuantScheme& scheme, BitWidth width) {
    const bool fitted = width == BitWidth::int2 && has_fitted_pair(scheme);
    first = fitted ? fitted_level(scheme, 0) : level_of(scheme, width, 0);
    slope = (fitted ? fitted_level(scheme, 1) : level_of(scheme, width, 1)) - first;
  }
  float first, slope;
};

HWY_INLINE FloatVec levels_at(const Levels& levels, const std::uint8_t* codes) {
  const Floats d;
  const auto top = hn::ConvertTo(d, hn::PromoteTo(Ints(), hn::LoadU(Bytes(), codes)));
  return hn::MulAdd(top, hn::Set(d, levels.slope), hn::Set(d, levels.first));
}

// A row of one group. The product is exact, so that fused or not the sum is the oracle's.
class UniformRow {
 public:
  UniformRow(const Levels& levels, GroupParams params, const std::uint8_t* codes)
      : levels_(levels),
        scale_(hn::Set(Floats(), fp16_to_float(params.scale))),
        offset_(hn::Set(Floats(), fp16_to_float(params.offset))),
        codes_(codes) {}

  HWY_INLINE FloatVec operator()(size_t c) const {
    return hn::MulAdd(scale_, levels_at(levels_, codes_ + c), offset_);
  }

 private:
  const Levels& levels_;
  const FloatVec scale_, offset_;
  const std::uint8_t* codes_;
};

// The same where a vector holds every level: the values are looked up.
class TableRow {
 public:
  static constexpr size_t levels() { return kLanes >= 16 ? 16 : kLanes == 8 ? 4 : 0; }

  TableRow(const Levels& levels, GroupParams params, const std::uint8_t* codes)
      : table_(make_table(levels, params)), codes_(codes) {}

  HWY_INLINE FloatVec operator()(size_t c) const {
    const auto top = hn::PromoteTo(Ints(), hn::LoadU(Bytes(), codes_ + c));
    return hn::TableLookupLanes(table_, hn::IndicesFromVec(Floats(), top));
  }

 private:
  static HWY_INLINE FloatVec make_table(const Levels& levels, GroupParams params) {
    const Floats d;
    const FloatVec level =
        hn::MulAdd(hn::Iota(d, 0.0f), hn::Set(d, levels.slope), hn::Set(d, levels.first));
    return hn::MulAdd(hn::Set(d, fp16_to_float(params.scale)), level,
                      hn::Set(d, fp16_to_float(params.offset)));
  }

  const FloatVec table_;
  const std::uint8_t* codes_;
};

// A row of many groups: a scale and an offset for each channel.
class MixedRow {
 public:
  MixedRow(const Levels& levels, const float* scales, const float* offsets,
           const std::uint8_t* codes)
      : levels_(levels), scales_(scales), offsets_(offsets), codes_(codes) {}

  HWY_INLINE FloatVec operator()(size_t c) const {
    const Floats d;
    return hn::MulAdd(hn::Load(d, scales_ + c), levels_at(levels_, codes_ + c),
                      hn::Load(d, offsets_ + c));
  }

 private:
  const Levels& levels_;
  const float *scales_, *offsets_;
  const std::uint8_t* codes_;
};

// --- rows

struct Read {
  const SideRows& side;
  BitWidth width;
  size_t first, count;  // positions
  float* out;           // [position][head][channel]

  float* row(size_t position, size_t head) const {
    return out + ((position - first) * side.heads() + head) * side.width();
  }
};

template <bool kStream, class Load>
HWY_INLINE void write_row(bool rotate, size_t width, const Load& load, float* out) {
  const Floats d;
  const auto store = [&](size_t c, FloatVec v) HWY_ATTR {
    if constexpr (kStream) {
      hn::Stream(v, d, out + c);
    } else {
      hn::StoreU(v, d, out + c);
    }
  };
  if (rotate) {
    HWY_ALIGN float row[kMaxWidth];
    return hadamard_row(width, row, load, store);
  }
  for (size_t c = 0; c < width; c += kLanes) store(c, load(c));
}

template <bool kStream>
void read_bf16(const Read& read) {
  const SideRows& side = read.side;
  for (size_t position = read.first; position < read.first + read.count; ++position) {
    for (size_t head = 0; head < side.heads(); ++head) {
      const std::uint8_t* from = side.at(Plane::bf16, position, head);
      const auto load = [&](size_t c) HWY_ATTR { return load_bf16(from, c); };
      write_row<kStream>(false, side.width(), load, read.row(position, head));
    }
  }
}

// Every head's row lies in one group.
template <bool kStream, int kPlanesRead, class Row>
void read_uniform(const Read& read, const Levels& levels, Plane params_plane) {
  const SideRows& side = read.side;
  const bool rotate = side.scheme().hadamard;
  HWY_ALIGN std::uint8_t codes[kMaxWidth];
  for (size_t position = read.first; position < read.first + read.count; ++position) {
    for (size_t head = 0; head < side.heads(); ++head) {
      unpack_row<kPlanesRead>(side, position, head, codes);
      const GroupParams params = side.params(params_plane, side.group_of(position, head, 0));
      write_row<kStream>(rotate, side.width(), Row(levels, params, codes),
                         read.row(position, head));
    }
  }
}

// FP16 to FP32, finite values: 13 bits further left the exponent is 112 short, and multiplying sets
// that right for normal and subnormal numbers alike.
HWY_INLINE void widen_fp16(const std::uint8_t* from, size_t count, float* to) {
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

// Scales and offsets of a head's channels at a position.
class ChannelParams {
 public:
  ChannelParams(const SideRows& side, Plane plane) : side_(side), plane_(plane) {
    if (side.scheme().symmetric) std::memset(offsets_, 0, sizeof offsets_);
  }

  void load(size_t position, size_t head) {
    if (side_.scheme().grouping == Grouping::per_channel) {
      const size_t group = side_.group_of(position, head, 0);
      widen_fp16(side_.scales(plane_, group), side_.width(), scales_);
      if (side_.scheme().symmetric) return;
      widen_fp16(side_.offsets(plane_, group), side_.width(), offsets_);
      return;
    }
    const size_t size = side_.group_size();
    const size_t from = head * side_.width();  // in the row that groups divide
    for (size_t c = 0; c < side_.width();) {
      const GroupParams params = side_.params(plane_, side_.group_of(position, head, c));
      const float scale = fp16_to_float(params.scale);
      const float offset = fp16_to_float(params.offset);
      const size_t end = (from + c) / size * size + size - from;
      for (; c < end && c < side_.width(); ++c) {
        scales_[c] = scale;
        offsets_[c] = offset;
      }
    }
  }

  const float* scales() const { return scales_; }
  const float* offsets() const { return offsets_; }

 private:
  const SideRows& side_;
  const Plane plane_;
  HWY_ALIGN float scales_[kMaxWidth];
  HWY_ALIGN float offsets_[kMaxWidth];
};

// Any grouping. Head by head, so that per-channel parameters are widened once for their positions.
template <bool kStream, int kPlanesRead>
void read_mixed(const Read& read, const Levels& levels, Plane params_plane) {
  const SideRows& side = read.side;
  const bool per_channel = side.scheme().grouping == Grouping::per_channel;
  const size_t lasts = per_channel ? side.group_size() : 1;
  ChannelParams params(side, params_plane);
  HWY_ALIGN std::uint8_t codes[kMaxWidth];
  for (size_t head = 0; head < side.heads(); ++head) {
    for (size_t position = read.first; position < read.first + read.count; ++position) {
      if (position == read.first || position % lasts == 0) params.load(position, head);
      unpack_row<kPlanesRead>(side, position, head, codes);
      const MixedRow row(levels, params.scales(), params.offsets(), codes);
      write_row<kStream>(side.scheme().hadamard, side.width(), row, read.row(position, head));
    }
  }
}

template <bool kStream, int kPlanesRead>
void read_codes(const Read& read) {
  const QuantScheme& scheme = read.side.scheme();
  const Levels levels(scheme, read.width);
  const bool fitted = read.width == BitWidth::int2 && has_fitted_pair(scheme);
  const Plane plane = fitted ? Plane::hi2 : read.side.layout().range_plane(read.side.side());
  const bool uniform =
      scheme.grouping == Grouping::per_token && read.side.group_size() % read.side.width() == 0;
  if (!uniform) return read_mixed<kStream, kPlanesRead>(read, levels, plane);
  constexpr size_t kCodeLevels = size_t{1} << (kPlanesRead == 3 ? 8 : 2 * kPlanesRead);
  if constexpr (kCodeLevels <= TableRow::levels()) {
    read_uniform<kStream, kPlanesRead, TableRow>(read, levels, plane);
  } else {
    read_uniform<kStream, kPlanesRead, UniformRow>(read, levels, plane);
  }
}

template <bool kStream>
void read_side(const Read& read) {
  switch (read.width) {
    case BitWidth::bf16:
      return read_bf16<kStream>(read);
    case BitWidth::int8:
      return read_codes<kStream, 3>(read);
    case BitWidth::int4:
      return read_codes<kStream, 2>(read);
    case BitWidth::int2:
      return read_codes<kStream, 1>(read);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvquant
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
