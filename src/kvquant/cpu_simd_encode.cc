// The SIMD backend's way in: rows to BF16, and a complete block's rows to codes. A row of codes
// passes through a buffer of one byte a channel, in channel order, so that grouping and packing do
// not depend on each other.
#include "kvquant/cpu_simd.h"
#include "kvquant/cpu_simd_targets-inl.h"

#include <cmath>
#include <cstring>
#include <span>

#include "kvquant/codec.h"
#include "kvquant/cpu_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvquant/cpu_simd_encode.cc"
#include "hwy/foreach_target.h"
// What follows must come after foreach_target.
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
Status append(const BlockLayout& layout, std::span<const float> k, std::span<const float> v,
              KvBlock& block) {
  return CpuRefBackend().quantize_append(layout, k, v, block);
}

#else

// Magnitudes are compared as bit patterns, which order like the numbers, with infinity and NaN
// above them all.
KVQUANT_HOT bool all_within(std::span<const float> values, float largest) {
  const Floats d;
  const Ints di;
  const auto magnitude = hn::Set(di, 0x7fffffff);
  auto most = hn::Zero(di);
  const float* from = values.data();
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    most = hn::Max(most, hn::And(hn::BitCast(di, hn::LoadU(d, from + i)), magnitude));
  }
  const auto limit = hn::Set(di, static_cast<std::int32_t>(bits_of(largest)));
  return hn::AllFalse(di, hn::Gt(most, limit));
}

KVQUANT_HOT void store_bf16(const float* HWY_RESTRICT from, size_t width,
                            std::uint8_t* HWY_RESTRICT row) {
  const Floats d;
  const Words dw;
  const auto half = hn::Set(dw, 0x7fff);
  const auto one = hn::Set(dw, 1);
  for (size_t c = 0; c < width; c += kLanes) {
    const auto bits = hn::BitCast(dw, hn::LoadU(d, from + c));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), one);
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(half, odd)));
    hn::StoreU(hn::DemoteTo(Halves(), hn::BitCast(Ints(), rounded)), Halves(),
               reinterpret_cast<std::uint16_t*>(row + 2 * c));
  }
}

KVQUANT_HOT void store_rows(const SideRows& side, std::span<const float> rows,
                            size_t first_position) {
  const size_t count = rows.size() / side.row();
  const float* from = rows.data();
  for (size_t position = first_position; position < first_position + count; ++position) {
    for (size_t head = 0; head < side.heads(); ++head, from += side.width()) {
      store_bf16(from, side.width(), side.at(Plane::bf16, position, head));
    }
  }
}

// --- codes of one group

// A head's row as the coder sees it: rotated, and without the smallest magnitudes.
KVQUANT_HOT void load_row(const SideRows& side, size_t position, size_t head, float* row) {
  const Floats d;
  const FloatVec smallest = hn::Set(d, kSmallest);
  const std::uint8_t* from = side.at(Plane::bf16, position, head);
  const auto finish = [&](size_t c, FloatVec v) KVQUANT_HOT_LAMBDA {
    hn::Store(hn::IfThenZeroElse(hn::Lt(hn::Abs(v), smallest), v), d, row + c);
  };
  if (!side.scheme().hadamard) {
    for (size_t c = 0; c < side.width(); c += kLanes) finish(c, load_bf16(from, c));
    return;
  }
  for (size_t c = 0; c < side.width(); c += kLanes) hn::Store(load_bf16(from, c), d, row + c);
  turn_in_place(row, side.width());
  const FloatVec factor = hadamard_factor(side.width());
  for (size_t c = 0; c < side.width(); c += kLanes) {
    finish(c, hn::Mul(hn::Load(d, row + c), factor));
  }
}

struct Range {
  float smallest, largest;
};

KVQUANT_HOT Range range_of(const float* values, size_t count) {
  const Floats d;
  Range range = {values[0], values[0]};
  size_t i = 0;
  if (count >= kLanes) {
    FloatVec smallest = hn::LoadU(d, values);
    FloatVec largest = smallest;
    for (i = kLanes; i + kLanes <= count; i += kLanes) {
      const FloatVec v = hn::LoadU(d, values + i);
      smallest = hn::Min(smallest, v);
      largest = hn::Max(largest, v);
    }
    range.smallest = hn::GetLane(hn::MinOfLanes(d, smallest));
    range.largest = hn::GetLane(hn::MaxOfLanes(d, largest));
  }
  for (; i < count; ++i) {
    range.smallest = std::fmin(range.smallest, values[i]);
    range.largest = std::fmax(range.largest, values[i]);
  }
  return range;
}

// encode() of codec.h for lanes that have an offset and an inverse each.
class LaneEncoder {
 public:
  explicit LaneEncoder(const QuantScheme& scheme)
      : middle_(hn::Set(Ints(), code_middle(scheme))),
        below_(hn::Set(Floats(),
                       static_cast<float>((scheme.symmetric ? 1 : 0) - code_middle(scheme)))),
        above_(hn::Set(Floats(),
                       static_cast<float>(code_levels(scheme.bits) - code_middle(scheme)))) {}

  KVQUANT_HOT hn::Vec<Ints> codes(FloatVec v, FloatVec offset, FloatVec inverse) const {
    const FloatVec steps = hn::Mul(hn::Sub(v, offset), inverse);
    const FloatVec clamped = hn::Min(hn::Max(steps, below_), above_);
    return hn::Add(hn::NearestInt(clamped), middle_);
  }

 private:
  hn::Vec<Ints> middle_;
  FloatVec below_, above_;
};

KVQUANT_HOT void store_codes(hn::Vec<Ints> codes, std::uint8_t* to) {
  hn::StoreU(hn::DemoteTo(Bytes(), codes), Bytes(), to);
}

KVQUANT_HOT void encode_values(const QuantScheme& scheme, const Encoder& e, const float* values,
                               size_t count, std::uint8_t* codes) {
  const Floats d;
  const LaneEncoder lanes(scheme);
  const FloatVec offset = hn::Set(d, e.offset);
  const FloatVec inverse = hn::Set(d, e.inverse);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_codes(lanes.codes(hn::LoadU(d, values + i), offset, inverse), codes + i);
  }
  for (; i < count; ++i) codes[i] = static_cast<std::uint8_t>(encode(e, values[i]));
}

// LevelSums over codes that still count from zero.
struct RawSums {
  std::int64_t h = 0, hh = 0, code = 0, h_code = 0;
};

LevelSums from_middle(const QuantScheme& scheme, const RawSums& raw, size_t count) {
  const std::int64_t middle = code_middle(scheme);
  LevelSums sums;
  sums.count = static_cast<std::int64_t>(count);
  sums.h = raw.h;
  sums.hh = raw.hh;
  sums.code = raw.code - middle * sums.count;
  sums.h_code = raw.h_code - middle * raw.h;
  return sums;
}

// Adds what whole vectors of D hold of codes [from, count), and returns where they end.
template <class D>
KVQUANT_HOT size_t add_codes(D d, const std::uint8_t* codes, size_t from, size_t count, int shift,
                             RawSums& sums) {
  constexpr size_t kStep = hn::MaxLanes(d);
  if (from + kStep > count) return from;
  const hn::Repartition<std::uint16_t, D> d16;
  const hn::Repartition<std::uint64_t, D> d64;
  const auto one = hn::Set(d, 1);
  const auto three = hn::Set(d, 3);
  const auto zero = hn::Zero(d);
  auto h_sum = hn::Zero(d64);
  auto hh_sum = hn::Zero(d64);
  auto code_sum = hn::Zero(d64);
  auto odd_sum = hn::Zero(d64);   // of codes whose h has bit 0
  auto high_sum = hn::Zero(d64);  // of codes whose h has bit 1
  for (; from + kStep <= count; from += kStep) {
    const auto code = hn::LoadU(d, codes + from);
    const auto h =
        hn::And(hn::BitCast(d, hn::ShiftRightSame(hn::BitCast(d16, code), shift)), three);
    const auto is_odd = hn::Sub(zero, hn::And(h, one));  // 0 or 255
    const auto is_high = hn::VecFromMask(d, hn::Gt(h, one));
    // h * h: 0, 1, 2 + 2, 3 + 6.
    const auto rest = hn::And(is_high, hn::Add(h, hn::And(is_odd, three)));
    h_sum = hn::Add(h_sum, hn::SumsOf8(h));
    hh_sum = hn::Add(hh_sum, hn::SumsOf8(hn::Add(h, rest)));
    code_sum = hn::Add(code_sum, hn::SumsOf8(code));
    odd_sum = hn::Add(odd_sum, hn::SumsOf8(hn::And(is_odd, code)));
    high_sum = hn::Add(high_sum, hn::SumsOf8(hn::And(is_high, code)));
  }
  const auto total = [&](hn::Vec<decltype(d64)> v) KVQUANT_HOT_LAMBDA {
    return static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(d64, v)));
  };
  sums.h += total(h_sum);
  sums.hh += total(hh_sum);
  sums.code += total(code_sum);
  sums.h_code += total(hn::Add(odd_sum, hn::Add(high_sum, high_sum)));
  return from;
}

KVQUANT_HOT LevelSums sum_codes(const QuantScheme& scheme, const std::uint8_t* codes,
                                size_t count) {
  const int shift = static_cast<int>(scheme.bits) - 2;
  RawSums raw;
  size_t i = add_codes(ByteRun<kVectorBytes>(), codes, 0, count, shift, raw);
  i = add_codes(ByteRun<16>(), codes, i, count, shift, raw);
  for (; i < count; ++i) {
    const int h = codes[i] >> shift;
    raw.h += h;
    raw.hh += h * h;
    raw.code += codes[i];
    raw.h_code += h * codes[i];
  }
  return from_middle(scheme, raw, count);
}

// --- packing

// Bits [shift, shift + 1] of every byte.
template <class D>
KVQUANT_HOT hn::Vec<D> two_bits(D d, hn::Vec<D> codes, int shift) {
  const hn::Repartition<std::uint16_t, D> d16;
  return hn::And(hn::BitCast(d, hn::ShiftRightSame(hn::BitCast(d16, codes), shift)), hn::Set(d, 3));
}

// A head's row of codes into its planes; null for a plane that is not there.
struct PlaneRow {
  std::uint8_t *hi2, *mid2, *low4;
};

template <class D>
KVQUANT_HOT void pack_runs(D d, const std::uint8_t* codes, size_t width, int bits,
                           const PlaneRow& to) {
  const size_t quarter = width / 4;
  const auto pack2 = [&](hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c, hn::Vec<D> e, int shift,
                         std::uint8_t* out) KVQUANT_HOT_LAMBDA {
    const auto low = hn::Or(two_bits(d, a, shift), up<2>(d, two_bits(d, b, shift)));
    const auto high = hn::Or(two_bits(d, c, shift), up<2>(d, two_bits(d, e, shift)));
    hn::StoreU(hn::Or(low, up<4>(d, high)), d, out);
  };
  const auto fifteen = hn::Set(d, 15);
  const auto pack4 = [&](hn::Vec<D> a, hn::Vec<D> b, std::uint8_t* out) KVQUANT_HOT_LAMBDA {
    hn::StoreU(hn::Or(hn::And(a, fifteen), up<4>(d, hn::And(b, fifteen))), d, out);
  };
  for (size_t i = 0; i < quarter; i += hn::MaxLanes(d)) {
    const auto q0 = hn::LoadU(d, codes + i);
    const auto q1 = hn::LoadU(d, codes + i + quarter);
    const auto q2 = hn::LoadU(d, codes + i + 2 * quarter);
    const auto q3 = hn::LoadU(d, codes + i + 3 * quarter);
    pack2(q0, q1, q2, q3, bits - 2, to.hi2 + i);
    if (to.mid2 != nullptr) pack2(q0, q1, q2, q3, bits - 4, to.mid2 + i);
    if (to.low4 != nullptr) {
      pack4(q0, q2, to.low4 + i);
      pack4(q1, q3, to.low4 + quarter + i);
    }
  }
}

KVQUANT_HOT void pack_row(const SideRows& side, size_t position, size_t head,
                          const std::uint8_t* codes) {
  const int bits = static_cast<int>(side.scheme().bits);
  const PlaneRow to = {side.at(Plane::hi2, position, head),
                       bits >= 4 ? side.at(Plane::mid2, position, head) : nullptr,
                       bits == 8 ? side.at(Plane::low4, position, head) : nullptr};
  const size_t quarter = side.width() / 4;
  if (quarter % 32 == 0) return pack_runs(ByteRun<32>(), codes, side.width(), bits, to);
  if (quarter % 16 == 0) return pack_runs(ByteRun<16>(), codes, side.width(), bits, to);
  pack_runs(ByteRun<4>(), codes, side.width(), bits, to);
}

// --- blocks

// Where the scales and offsets of a side's groups go.
class ParamsOut {
 public:
  explicit ParamsOut(const SideRows& side)
      : side_(side),
        range_plane_(side.layout().range_plane(side.side())),
        has_range_(side.plane(range_plane_) != nullptr),
        fitted_(has_fitted_pair(side.scheme())) {}

  bool fitted() const { return fitted_; }
  void set_range(size_t group, GroupParams params) const {
    if (has_range_) side_.set_params(range_plane_, group, params);
  }
  void set_fitted(size_t group, GroupParams params, const LevelSums& sums) const {
    side_.set_params(Plane::hi2, group, fit_levels(side_.scheme(), params, sums));
  }

  // What lies between the last group and the end of each part.
  void clear_padding() const {
    const size_t groups = side_.layout().groups(side_.side());
    for (const Plane plane : {Plane::hi2, Plane::mid2}) {
      std::uint8_t* start = side_.plane(plane);
      const PlaneLayout& parts = side_.parts(plane);
      if (start == nullptr || parts.bytes == parts.scales) continue;
      std::memset(start + parts.scales + 2 * groups, 0, parts.offsets - parts.scales - 2 * groups);
      if (parts.bytes == parts.offsets) continue;
      std::memset(start + parts.offsets + 2 * groups, 0, parts.bytes - parts.offsets - 2 * groups);
    }
  }

 private:
  const SideRows& side_;
  const Plane range_plane_;
  const bool has_range_, fitted_;
};

void encode_per_token(const SideRows& side, const ParamsOut& out) {
  const QuantScheme& scheme = side.scheme();
  const size_t width = side.width();
  const size_t size = side.group_size();
  HWY_ALIGN float row[kMaxRow];
  HWY_ALIGN std::uint8_t codes[kMaxRow];
  for (size_t position = 0; position < kBlockPositions; ++position) {
    for (size_t head = 0; head < side.heads(); ++head) {
      load_row(side, position, head, row + head * width);
    }
    for (size_t start = 0; start < side.row(); start += size) {
      const Range range = range_of(row + start, size);
      const GroupParams params = fit_range(scheme, range.smallest, range.largest);
      encode_values(scheme, encoder(scheme, params), row + start, size, codes + start);
      const size_t group = side.group_of(position, start / width, start % width);
      out.set_range(group, params);
      if (out.fitted()) out.set_fitted(group, params, sum_codes(scheme, codes + start, size));
    }
    for (size_t head = 0; head < side.heads(); ++head) {
      pack_row(side, position, head, codes + head * width);
    }
  }
}

// Groups that lie beside each other, one a channel, over the positions that they span.
class ChannelGroups {
 public:
  // `rows` and `codes` hold `count` rows of the width.
  ChannelGroups(const SideRows& side, const float* rows, size_t count, std::uint8_t* codes)
      : scheme_(side.scheme()), width_(side.width()), rows_(rows), count_(count), codes_(codes) {}

  void encode(size_t first_group, const ParamsOut& out) {
    GroupParams params[kMaxWidth];
    find_ranges();
    for (size_t c = 0; c < width_; ++c) {
      params[c] = fit_range(scheme_, smallest_[c], largest_[c]);
      const Encoder e = encoder(scheme_, params[c]);
      offset_[c] = e.offset;
      inverse_[c] = e.inverse;
      out.set_range(first_group + c, params[c]);
    }
    make_codes();
    if (!out.fitted()) return;
    for (size_t c = 0; c < width_; ++c) {
      const RawSums raw = {h_[c], hh_[c], code_[c], h_code_[c]};
      out.set_fitted(first_group + c, params[c], from_middle(scheme_, raw, count_));
    }
  }

 private:
  void find_ranges() {
    const Floats d;
    for (size_t c = 0; c < width_; c += kLanes) {
      FloatVec smallest = hn::Load(d, rows_ + c);
      FloatVec largest = smallest;
      for (size_t i = 1; i < count_; ++i) {
        const FloatVec v = hn::Load(d, rows_ + i * width_ + c);
        smallest = hn::Min(smallest, v);
        largest = hn::Max(largest, v);
      }
      hn::Store(smallest, d, smallest_ + c);
      hn::Store(largest, d, largest_ + c);
    }
  }

  void make_codes() {
    const Floats d;
    const Ints di;
    const LaneEncoder lanes(scheme_);
    const int shift = static_cast<int>(scheme_.bits) - 2;
    for (size_t c = 0; c < width_; c += kLanes) {
      const FloatVec offset = hn::Load(d, offset_ + c);
      const FloatVec inverse = hn::Load(d, inverse_ + c);
      auto h_sum = hn::Zero(di);
      auto hh_sum = hn::Zero(di);
      auto code_sum = hn::Zero(di);
      auto h_code_sum = hn::Zero(di);
      for (size_t i = 0; i < count_; ++i) {
        const auto code = lanes.codes(hn::Load(d, rows_ + i * width_ + c), offset, inverse);
        store_codes(code, codes_ + i * width_ + c);
        const auto h = hn::ShiftRightSame(code, shift);
        h_sum = hn::Add(h_sum, h);
        hh_sum = hn::Add(hh_sum, hn::Mul(h, h));
        code_sum = hn::Add(code_sum, code);
        h_code_sum = hn::Add(h_code_sum, hn::Mul(h, code));
      }
      hn::Store(h_sum, di, h_ + c);
      hn::Store(hh_sum, di, hh_ + c);
      hn::Store(code_sum, di, code_ + c);
      hn::Store(h_code_sum, di, h_code_ + c);
    }
  }

  const QuantScheme& scheme_;
  const size_t width_;
  const float* rows_;
  const size_t count_;
  std::uint8_t* codes_;
  HWY_ALIGN float smallest_[kMaxWidth], largest_[kMaxWidth], offset_[kMaxWidth],
      inverse_[kMaxWidth];
  HWY_ALIGN std::int32_t h_[kMaxWidth], hh_[kMaxWidth], code_[kMaxWidth], h_code_[kMaxWidth];
};

void encode_per_channel(const SideRows& side, const ParamsOut& out) {
  const size_t width = side.width();
  const size_t size = side.group_size();
  HWY_ALIGN float rows[kBlockPositions * kMaxWidth];
  HWY_ALIGN std::uint8_t codes[kBlockPositions * kMaxWidth];
  for (size_t head = 0; head < side.heads(); ++head) {
    for (size_t start = 0; start < kBlockPositions; start += size) {
      for (size_t i = 0; i < size; ++i) load_row(side, start + i, head, rows + i * width);
      ChannelGroups(side, rows, size, codes).encode(side.group_of(start, head, 0), out);
      for (size_t i = 0; i < size; ++i) pack_row(side, start + i, head, codes + i * width);
    }
  }
}

void encode_block(const SideRows& side) {
  if (side.plane(Plane::hi2) == nullptr) return;  // BF16 is all this side is ever read at
  const ParamsOut out(side);
  if (side.scheme().grouping == Grouping::per_token) {
    encode_per_token(side, out);
  } else {
    encode_per_channel(side, out);
  }
  out.clear_padding();
}

Status check_side(const BlockLayout& layout, Side side, std::span<const float> rows,
                  int first_position) {
  const float largest = largest_value(layout.scheme().side(side), layout.shape().head_width);
  if (all_within(rows, largest)) return {};
  return check_values(layout, side, rows, first_position);
}

Status append(const BlockLayout& layout, std::span<const float> k, std::span<const float> v,
              KvBlock& block) {
  int rows = 0;
  if (Status status = check_append(layout, k, v, block, &rows); !status.ok()) return status;
  if (Status status = check_side(layout, Side::key, k, block.positions); !status.ok())
    return status;
  if (Status status = check_side(layout, Side::value, v, block.positions); !status.ok())
    return status;
  const SideRows keys(layout, Side::key, block);
  const SideRows values(layout, Side::value, block);
  const auto first = static_cast<size_t>(block.positions);
  store_rows(keys, k, first);
  store_rows(values, v, first);
  block.positions += rows;
  if (rows > 0 && block.complete()) {
    encode_block(keys);
    encode_block(values);
  }
  return {};
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvquant {

HWY_EXPORT(append);

Status CpuSimdBackend::quantize_append(const BlockLayout& layout, std::span<const float> k,
                                       std::span<const float> v, KvBlock& block) {
  return HWY_DYNAMIC_DISPATCH(append)(layout, k, v, block);
}

}  // namespace kvquant
#endif  // HWY_ONCE
