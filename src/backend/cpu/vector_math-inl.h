// What the kernels between the products share: 32 lanes as so many vectors as the target needs, so
// that a sum has one order on every CPU, and the exponential.
//
// Included once per target; no include guard.

#include <hwy/highway.h>

#include <cstddef>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace kipp::cpu::HWY_NAMESPACE::math {

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
using IntTag = hn::RebindToSigned<Tag>;
using BitsTag = hn::RebindToUnsigned<Tag>;
using Vec = hn::Vec<Tag>;

inline constexpr int kWidth = static_cast<int>(hn::MaxLanes(Tag()));
// All widths of the model are multiples of it.
inline constexpr int kLanes = 32;
inline constexpr int kVectors = kLanes / kWidth;

// e^x within 0.88 units in the last place, 1.15 where multiply-add is not fused (every seventh
// float was compared with double). x = n ln 2 + r, |r| <= ln 2 / 2; e^r = 1 + r + r^2 q(r), q
// fitted to a relative error of 3.3e-9. Below 2^-126 the result is 0, so that no weight is
// subnormal; past the largest float it is infinity; NaN stays.
inline Vec exp(Vec x) {
  const Tag d;
  const auto n = hn::NearestInt(hn::Mul(x, hn::Set(d, 0x1.715476p+0f)));
  const Vec turns = hn::ConvertTo(d, n);
  // ln 2 in two parts, the first so short that its product with n is exact.
  Vec r = hn::NegMulAdd(turns, hn::Set(d, 0x1.63p-1f), x);
  r = hn::NegMulAdd(turns, hn::Set(d, -0x1.bd0106p-13f), r);
  Vec q = hn::Set(d, 0x1.6ac36cp-10f);
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.123da6p-7f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.555858p-5f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.55548cp-3f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.fffffcp-2f));
  const Vec one = hn::Set(d, 1.0f);
  Vec e = hn::MulAdd(hn::MulAdd(q, r, one), r, one);
  // 2^n through the exponent's bits.
  e = hn::BitCast(d, hn::Add(hn::BitCast(IntTag(), e), hn::ShiftLeft<23>(n)));
  // Past the largest float infinity, and NaN where x is.
  const Vec past = hn::Add(x, hn::Set(d, std::numeric_limits<float>::infinity()));
  e = hn::IfThenElse(hn::Le(x, hn::Set(d, 0x1.62e42ep+6f)), e, past);
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -0x1.5d589ep+6f)), e);
}

// Lanes l and l + half, halving until one is left.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE float fold_halves(Tag, Vec v) { return hn::GetLane(v); }
#else
template <class D, class V>
HWY_INLINE float fold_halves(D, V v) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> half;
    return fold_halves(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
#endif

// The sum of kLanes lanes: lanes l and l + 16 are added, then l and l + 8, and so on.
inline float fold(Vec (&lanes)[kVectors]) {
  for (int n = kVectors / 2; n > 0; n /= 2) {
    for (int v = 0; v < n; ++v) lanes[v] = hn::Add(lanes[v], lanes[v + n]);
  }
  return fold_halves(Tag(), lanes[0]);
}

// Pairs of BF16 values that lie side by side, kWidth pairs: the first and the second of each. Both
// are a matter of bits, while putting them back in order would take shuffles.
struct Pairs {
  Vec first, second;
};

inline Pairs widen_pairs(const std::uint16_t* stored) {
  const BitsTag d;
#if HWY_TARGET == HWY_SCALAR
  const auto both = hn::Set(
      d, static_cast<std::uint32_t>(stored[0]) | static_cast<std::uint32_t>(stored[1]) << 16);
#else
  const auto both = hn::BitCast(d, hn::LoadU(hn::Repartition<std::uint16_t, BitsTag>(), stored));
#endif
  return {hn::BitCast(Tag(), hn::ShiftLeft<16>(both)),
          hn::BitCast(Tag(), hn::And(both, hn::Set(d, 0xffff0000u)))};
}

}  // namespace kipp::cpu::HWY_NAMESPACE::math
HWY_AFTER_NAMESPACE();
