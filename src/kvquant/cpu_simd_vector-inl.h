// What the coder and the decoder of the SIMD backend share: lane types, the rows of one side of a
// block, and the Hadamard transform. Compiled once for every instruction set.
#if defined(KVQUANT_CPU_SIMD_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVQUANT_CPU_SIMD_VECTOR_INL_H_
#undef KVQUANT_CPU_SIMD_VECTOR_INL_H_
#else
#define KVQUANT_CPU_SIMD_VECTOR_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kvquant/codec.h"
#include "kvquant/kv_block.h"

HWY_BEFORE_NAMESPACE();
namespace kvquant {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using std::size_t;

constexpr size_t kMaxWidth = 512;  // of a head
constexpr size_t kMaxRow = 8192;   // elements of a position

// Head widths are multiples of 16, so that 16 lanes at most divide every row.
#if HWY_HAVE_SCALABLE
using Floats = hn::FixedTag<float, 4>;
#else
using Floats = hn::CappedTag<float, 16>;
#endif
using Ints = hn::Rebind<std::int32_t, Floats>;
using Words = hn::Rebind<std::uint32_t, Floats>;
using Halves = hn::Rebind<std::uint16_t, Floats>;
using Bytes = hn::Rebind<std::uint8_t, Floats>;
using FloatVec = hn::Vec<Floats>;
constexpr size_t kLanes = hn::MaxLanes(Floats());

// Vectors of packed codes: as long as a quarter of a row allows.
constexpr size_t kVectorBytes = 4 * kLanes;
template <size_t kMost>
using ByteRun = hn::FixedTag<std::uint8_t, (kMost < kVectorBytes ? kMost : kVectorBytes)>;

// One side of a block. The planes are the caller's memory: a view of a const block may write
// through them.
class SideRows {
 public:
  SideRows(const BlockLayout& layout, Side side, const KvBlock& block)
      : layout_(layout),
        scheme_(layout.scheme().side(side)),
        side_(side),
        width_(static_cast<size_t>(layout.shape().head_width)),
        heads_(static_cast<size_t>(layout.shape().kv_heads)),
        planes_(block.planes[static_cast<int>(side)]) {}

  const BlockLayout& layout() const { return layout_; }
  const QuantScheme& scheme() const { return scheme_; }
  Side side() const { return side_; }
  size_t width() const { return width_; }
  size_t heads() const { return heads_; }
  size_t row() const { return width_ * heads_; }
  size_t group_size() const { return static_cast<size_t>(scheme_.group_size); }

  std::uint8_t* plane(Plane plane) const { return planes_[static_cast<int>(plane)]; }
  const PlaneLayout& parts(Plane plane) const { return layout_.plane(side_, plane); }

  // Null where the plane is not there.
  std::uint8_t* at(Plane plane, size_t position, size_t head) const {
    std::uint8_t* start = this->plane(plane);
    if (start == nullptr) return nullptr;
    return start + (head * kBlockPositions + position) * parts(plane).row_bytes;
  }

  size_t group_of(size_t position, size_t head, size_t channel) const {
    return layout_.group_of(side_, static_cast<int>(position), static_cast<int>(head),
                            static_cast<int>(channel));
  }
  const std::uint8_t* scales(Plane plane, size_t group) const {
    return this->plane(plane) + parts(plane).scales + 2 * group;
  }
  const std::uint8_t* offsets(Plane plane, size_t group) const {
    return this->plane(plane) + parts(plane).offsets + 2 * group;
  }

  GroupParams params(Plane plane, size_t group) const {
    GroupParams params;
    std::memcpy(&params.scale, scales(plane, group), 2);
    if (!scheme_.symmetric) std::memcpy(&params.offset, offsets(plane, group), 2);
    return params;
  }
  void set_params(Plane plane, size_t group, GroupParams params) const {
    std::uint8_t* start = this->plane(plane);
    std::memcpy(start + parts(plane).scales + 2 * group, &params.scale, 2);
    if (scheme_.symmetric) return;
    std::memcpy(start + parts(plane).offsets + 2 * group, &params.offset, 2);
  }

 private:
  const BlockLayout& layout_;
  const QuantScheme& scheme_;
  const Side side_;
  const size_t width_, heads_;
  std::uint8_t* const* planes_;
};

HWY_INLINE FloatVec load_bf16(const std::uint8_t* row, size_t channel) {
  const auto halves =
      hn::LoadU(Halves(), reinterpret_cast<const std::uint16_t*>(row + 2 * channel));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(Words(), halves)));
}

// --- rotation

// Stages within a vector: every lane becomes its partner's value plus or minus its own. The product
// with one is exact, so fused or not, this is the one addition or subtraction of codec.h.
HWY_INLINE FloatVec turn_lanes(FloatVec v) {
  const Floats d;
  HWY_ALIGN static constexpr float kSigns[4][16] = {
      {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
      {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
      {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
      {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1},
  };
  v = hn::MulAdd(v, hn::Load(d, kSigns[0]), hn::Shuffle2301(v));
  v = hn::MulAdd(v, hn::Load(d, kSigns[1]), hn::Shuffle1032(v));
  if constexpr (kLanes >= 8) v = hn::MulAdd(v, hn::Load(d, kSigns[2]), hn::SwapAdjacentBlocks(v));
  if constexpr (kLanes >= 16) {
    v = hn::MulAdd(v, hn::Load(d, kSigns[3]), hn::ConcatLowerUpper(d, v, v));
  }
  return v;
}

HWY_INLINE void turn2(FloatVec& a, FloatVec& b) {
  const FloatVec sum = hn::Add(a, b);
  b = hn::Sub(a, b);
  a = sum;
}

HWY_INLINE void turn4(FloatVec& a, FloatVec& b, FloatVec& c, FloatVec& d) {
  turn2(a, b);
  turn2(c, d);
  turn2(a, c);
  turn2(b, d);
}

// The stages of `kRadix` vectors that lie `half` channels apart from `channel` on; then each is
// stored.
template <size_t kRadix, class Load, class Store>
HWY_INLINE void turn_vectors(size_t channel, size_t half, const Load& load, const Store& store) {
  FloatVec v0 = load(channel);
  if constexpr (kRadix == 1) {
    store(channel, v0);
    return;
  } else {
    FloatVec v1 = load(channel + half);
    if constexpr (kRadix == 2) {
      turn2(v0, v1);
    } else {
      FloatVec v2 = load(channel + 2 * half);
      FloatVec v3 = load(channel + 3 * half);
      turn4(v0, v1, v2, v3);
      if constexpr (kRadix == 8) {
        FloatVec v4 = load(channel + 4 * half);
        FloatVec v5 = load(channel + 5 * half);
        FloatVec v6 = load(channel + 6 * half);
        FloatVec v7 = load(channel + 7 * half);
        turn4(v4, v5, v6, v7);
        turn2(v0, v4);
        turn2(v1, v5);
        turn2(v2, v6);
        turn2(v3, v7);
        store(channel + 4 * half, v4);
        store(channel + 5 * half, v5);
        store(channel + 6 * half, v6);
        store(channel + 7 * half, v7);
      }
      store(channel + 2 * half, v2);
      store(channel + 3 * half, v3);
    }
    store(channel + half, v1);
  }
  store(channel, v0);
}

template <size_t kRadix, class Load, class Store>
HWY_INLINE void turn_row(size_t width, size_t half, const Load& load, const Store& store) {
  for (size_t start = 0; start < width; start += kRadix * half) {
    for (size_t i = 0; i < half; i += kLanes) {
      turn_vectors<kRadix>(start + i, half, load, store);
    }
  }
}

// hadamard() of codec.h over a head's row. `load(channel)` gives a vector of it, `store(channel,
// vector)` takes one of the result, and both are called once for each channel that begins a vector.
// `row` is room for the width; `store` may write there.
template <class Load, class Store>
HWY_INLINE void hadamard_row(size_t width, float* row, const Load& load, const Store& store) {
  const Floats d;
  const FloatVec scale = hn::Set(d, hadamard_scale(static_cast<int>(width)));
  const auto first = [&](size_t c) HWY_ATTR { return turn_lanes(load(c)); };
  const auto again = [&](size_t c) HWY_ATTR { return hn::Load(d, row + c); };
  const auto keep = [&](size_t c, FloatVec v) HWY_ATTR { hn::Store(v, d, row + c); };
  const auto last = [&](size_t c, FloatVec v) HWY_ATTR { store(c, hn::Mul(v, scale)); };
  switch (width / kLanes) {
    case 1:
      return turn_row<1>(width, kLanes, first, last);
    case 2:
      return turn_row<2>(width, kLanes, first, last);
    case 4:
      return turn_row<4>(width, kLanes, first, last);
    case 8:
      return turn_row<8>(width, kLanes, first, last);
    default:
      break;
  }
  turn_row<8>(width, kLanes, first, keep);
  size_t half = 8 * kLanes;
  for (; width / half > 8; half *= 8) turn_row<8>(width, half, again, keep);
  switch (width / half) {
    case 2:
      return turn_row<2>(width, half, again, last);
    case 4:
      return turn_row<4>(width, half, again, last);
    default:
      return turn_row<8>(width, half, again, last);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvquant
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
