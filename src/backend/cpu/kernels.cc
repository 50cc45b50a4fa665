// The row kernels, compiled once per CPU target; matmul_kernels.cc says which are left out and why.
#include "backend/cpu/kernels.h"

#include <cmath>
#include <cstddef>

#include "model/config.h"

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels.cc"
#include <hwy/foreach_target.h>
// After it, so that the file is read once per target.
#include "backend/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kipp::cpu::HWY_NAMESPACE {
namespace {

using namespace math;

// 1 / sqrt(mean square + eps)
float norm_scale(const float* in, std::size_t n) {
  const Tag d;
  Vec squares[kVectors];
  for (Vec& s : squares) s = hn::Zero(d);
  for (std::size_t i = 0; i < n; i += kLanes) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const Vec x = hn::LoadU(d, in + i + v * kWidth);
      squares[v] = hn::MulAdd(x, x, squares[v]);
    }
  }
  return 1.0f / std::sqrt(fold(squares) / static_cast<float>(n) + kRmsEps);
}

void rms_norm_on_target(float* out, const float* in, const float* weight, std::size_t n) {
  const Tag d;
  const Vec scale = hn::Set(d, norm_scale(in, n));
  for (std::size_t i = 0; i < n; i += kWidth) {
    const Vec normed = hn::Mul(hn::LoadU(d, in + i), scale);
    hn::StoreU(hn::Mul(normed, hn::LoadU(d, weight + i)), d, out + i);
  }
}

void norm_rope_head_on_target(float* head, const float* weight, const float* cos,
                              const float* sin) {
  constexpr std::size_t kHalf = kHeadDim / 2;
  const Tag d;
  const Vec scale = hn::Set(d, norm_scale(head, kHeadDim));
  for (std::size_t i = 0; i < kHalf; i += kWidth) {
    const auto normed = [&](std::size_t at) HWY_ATTR {
      return hn::Mul(hn::Mul(hn::LoadU(d, head + at), scale), hn::LoadU(d, weight + at));
    };
    const Vec a = normed(i);
    const Vec b = normed(i + kHalf);
    const Vec c = hn::LoadU(d, cos + i);
    const Vec s = hn::LoadU(d, sin + i);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, head + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, head + i + kHalf);
  }
}

void silu_mul_on_target(float* out, const float* gate, const float* up, std::size_t n) {
  const Tag d;
  const Vec one = hn::Set(d, 1.0f);
  for (std::size_t i = 0; i < n; i += kWidth) {
    const Vec g = hn::LoadU(d, gate + i);
    const Vec activated = hn::Div(g, hn::Add(one, math::exp(hn::Neg(g))));
    hn::StoreU(hn::Mul(activated, hn::LoadU(d, up + i)), d, out + i);
  }
}

void exp_on_target(float* out, const float* in, std::size_t n) {
  const Tag d;
  for (std::size_t i = 0; i < n; i += kWidth) {
    hn::StoreU(math::exp(hn::LoadU(d, in + i)), d, out + i);
  }
}

void store_bf16_on_target(std::uint16_t* out, const float* in, std::size_t n) {
  const Tag d;
  const BitsTag bits_of;
  const hn::Rebind<std::uint16_t, Tag> stored;
  for (std::size_t i = 0; i < n; i += kWidth) {
    const Vec x = hn::LoadU(d, in + i);
    const auto bits = hn::BitCast(bits_of, x);
    const auto high = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(high, hn::Set(bits_of, 1u));
    const auto nearest = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(bits_of, 0x7fffu))));
    const auto quiet = hn::Or(high, hn::Set(bits_of, 0x40u));  // NaN: rounding might carry it away
    const auto is_nan = hn::RebindMask(bits_of, hn::IsNaN(x));
    hn::StoreU(hn::TruncateTo(stored, hn::IfThenElse(is_nan, quiet, nearest)), stored, out + i);
  }
}

void widen_bf16_on_target(float* out, const std::uint16_t* in, std::size_t n) {
  const BitsTag bits_of;
  const hn::Rebind<std::uint16_t, Tag> stored;
  for (std::size_t i = 0; i < n; i += kWidth) {
    const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(bits_of, hn::LoadU(stored, in + i)));
    hn::StoreU(hn::BitCast(Tag(), bits), Tag(), out + i);
  }
}

}  // namespace
}  // namespace kipp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kipp::cpu {

HWY_EXPORT(rms_norm_on_target);
HWY_EXPORT(norm_rope_head_on_target);
HWY_EXPORT(silu_mul_on_target);
HWY_EXPORT(exp_on_target);
HWY_EXPORT(store_bf16_on_target);
HWY_EXPORT(widen_bf16_on_target);

void rms_norm(std::span<float> out, std::span<const float> in, std::span<const float> weight) {
  HWY_DYNAMIC_DISPATCH(rms_norm_on_target)(out.data(), in.data(), weight.data(), in.size());
}

void norm_rope_head(std::span<float> head, std::span<const float> weight,
                    std::span<const float> cos, std::span<const float> sin) {
  HWY_DYNAMIC_DISPATCH(norm_rope_head_on_target)
  (head.data(), weight.data(), cos.data(), sin.data());
}

void silu_mul(std::span<float> out, std::span<const float> gate, std::span<const float> up) {
  HWY_DYNAMIC_DISPATCH(silu_mul_on_target)(out.data(), gate.data(), up.data(), out.size());
}

void exp(std::span<float> out, std::span<const float> in) {
  HWY_DYNAMIC_DISPATCH(exp_on_target)(out.data(), in.data(), out.size());
}

void store_bf16(std::span<std::uint16_t> out, std::span<const float> in) {
  HWY_DYNAMIC_DISPATCH(store_bf16_on_target)(out.data(), in.data(), in.size());
}

void widen_bf16(std::span<float> out, std::span<const std::uint16_t> in) {
  HWY_DYNAMIC_DISPATCH(widen_bf16_on_target)(out.data(), in.data(), in.size());
}

}  // namespace kipp::cpu
#endif
