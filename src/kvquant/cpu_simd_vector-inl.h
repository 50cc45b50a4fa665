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
#include <utility>

#include "hwy/highway.h"
#include "kvquant/codec.h"
#include "kvquant/kv_block.h"

// What is called for every vector of a row, functions and lambdas: more often than GCC would inline
// by itself. Not in builds with the address sanitizer, which would take minutes to compile.
#undef KVQUANT_HOT
#undef KVQUANT_HOT_LAMBDA
#if HWY_IS_ASAN || defined(__SANITIZE_ADDRESS__)
#define KVQUANT_HOT inline
#define KVQUANT_HOT_LAMBDA HWY_ATTR
#else
#define KVQUANT_HOT HWY_INLINE
#define KVQUANT_HOT_LAMBDA HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace kvquant {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using std::size_t;

constexpr size_t kMaxWidth = 512;  // of a head
constexpr size_t kMaxRow = 8192;   // elements of a position

// Head widths are multiples of 16, so that 16 lanes at most divide every row.
using Floats = hn::CappedTag<float, 16>;
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

KVQUANT_HOT FloatVec load_bf16(const std::uint8_t* row, size_t channel) {
  const auto halves =
      hn::LoadU(Halves(), reinterpret_cast<const std::uint16_t*>(row + 2 * channel));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(Words(), halves)));
}

// Bytes shifted up by less than what they leave free at the top.
template <int kBy, class D>
KVQUANT_HOT hn::Vec<D> up(D d, hn::Vec<D> bytes) {
  return hn::BitCast(d,
                     hn::ShiftLeft<kBy>(hn::BitCast(hn::Repartition<std::uint16_t, D>(), bytes)));
}

// --- rotation

// Stages within a vector: every lane becomes its partner's value plus or minus its own. The product
// with one is exact, so fused or not, this is the one addition or subtraction of codec.h.
KVQUANT_HOT FloatVec turn_lanes(FloatVec v) {
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

KVQUANT_HOT void turn2(FloatVec& a, FloatVec& b) {
  const FloatVec sum = hn::Add(a, b);
  b = hn::Sub(a, b);
  a = sum;
}

template <size_t kHalf, size_t... kPair>
KVQUANT_HOT void turn_stage(FloatVec* v, std::index_sequence<kPair...>) {
  (turn2(v[kPair / kHalf * 2 * kHalf + kPair % kHalf],
         v[kPair / kHalf * 2 * kHalf + kPair % kHalf + kHalf]),
   ...);
}

template <size_t kRadix, size_t kHalf = 1>
KVQUANT_HOT void turn_stages(FloatVec* v) {
  if constexpr (kHalf < kRadix) {
    turn_stage<kHalf>(v, std::make_index_sequence<kRadix / 2>());
    turn_stages<kRadix, 2 * kHalf>(v);
  }
}

template <size_t... kIndex, class Visit>
KVQUANT_HOT void unrolled(std::index_sequence<kIndex...>, const Visit& visit) {
  (visit(kIndex), ...);
}

// The stages of `kRadix` vectors that lie `half` channels apart from `channel` on.
template <size_t kRadix, class Load, class Store>
KVQUANT_HOT void turn_vectors(size_t channel, size_t half, const Load& load, const Store& store) {
  constexpr auto kEach = std::make_index_sequence<kRadix>();
  FloatVec v[kRadix];
  unrolled(kEach, [&](size_t i) KVQUANT_HOT_LAMBDA { v[i] = load(channel + i * half); });
  turn_stages<kRadix>(v);
  unrolled(kEach, [&](size_t i) KVQUANT_HOT_LAMBDA { store(channel + i * half, v[i]); });
}

template <size_t kRadix, class Load>
KVQUANT_HOT void turn_row(float* row, size_t width, size_t half, const Load& load) {
  const auto keep = [&](size_t c, FloatVec v)
                        KVQUANT_HOT_LAMBDA { hn::Store(v, Floats(), row + c); };
  for (size_t start = 0; start < width; start += kRadix * half) {
    for (size_t i = 0; i < half; i += kLanes) turn_vectors<kRadix>(start + i, half, load, keep);
  }
}

// hadamard() of codec.h over a head's row in place, but for the factor at its end, which the caller
// multiplies with as it takes the row. The row is aligned.
HWY_NOINLINE void turn_in_place(float* row, size_t width) {
  const auto again = [&](size_t c) KVQUANT_HOT_LAMBDA { return hn::Load(Floats(), row + c); };
  const auto first = [&](size_t c) KVQUANT_HOT_LAMBDA { return turn_lanes(again(c)); };
  size_t left = width / kLanes;  // vectors whose stages are to come
  switch (left) {
    case 1:
      return turn_row<1>(row, width, kLanes, first);
    case 2:
      return turn_row<2>(row, width, kLanes, first);
    case 4:
      return turn_row<4>(row, width, kLanes, first);
    default:
      turn_row<8>(row, width, kLanes, first);
  }
  for (left /= 8; left >= 8; left /= 8) turn_row<8>(row, width, width / left, again);
  if (left == 4) turn_row<4>(row, width, width / 4, again);
  if (left == 2) turn_row<2>(row, width, width / 2, again);
}

KVQUANT_HOT FloatVec hadamard_factor(size_t width) {
  return hn::Set(Floats(), hadamard_scale(static_cast<int>(width)));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvquant
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
