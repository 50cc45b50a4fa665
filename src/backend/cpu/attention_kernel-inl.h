// The inner loops of attention. Keys are turned so that positions are the lanes of a vector, values
// are read with dimensions as lanes, so no sum ever crosses lanes but those of the weights. A
// vector of values holds every other of twice as many dimensions (widen_pairs), which costs nothing
// and is undone once, when a result is written.
//
// Included once per target; no include guard.

#include <cstddef>
#include <cstdint>

#include "backend/cpu/attention.h"
#include "backend/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kipp::cpu::HWY_NAMESPACE {

using namespace math;

// Queries in registers at once, against all positions of a block (scores) or against
// kValueVectors vectors of dimensions (values).
inline constexpr int kValueVectors = 4;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
inline constexpr int kScoreQueries = 8, kValueQueries = 6;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int kScoreQueries = 3, kValueQueries = 3;
#elif HWY_ARCH_ARM_A64
inline constexpr int kScoreQueries = 3, kValueQueries = 6;
#else
inline constexpr int kScoreQueries = 1, kValueQueries = 3;
#endif

inline constexpr std::size_t kLine = 64;  // bytes
inline constexpr std::size_t kHeadBytes = sizeof(std::uint16_t) * kBlockPositions * kHeadDim;
static_assert(kHeadBytes == kLine * kHeadDim);

// Into the second-level cache, which waits for more lines at once than the first: one core of a
// Zen 4 decodes 26 GB/s this way, 10 with lines fetched into the first (2026-11-30).
HWY_INLINE void fetch_line(const std::byte* line) { __builtin_prefetch(line, 0, 2); }

// Keys [kBlockPositions, kHeadDim] as floats [kHeadDim, kBlockPositions].
inline void turn_keys(const float* keys, float* out) {
  for (int p = 0; p < kBlockPositions; ++p) {
    for (int i = 0; i < kHeadDim; ++i) out[i * kBlockPositions + p] = keys[p * kHeadDim + i];
  }
}

#if HWY_TARGET == HWY_SCALAR

inline void turn_keys(const std::uint16_t* keys, float* out) {
  for (int p = 0; p < kBlockPositions; ++p) {
    for (int i = 0; i < kHeadDim; i += 2) {
      const Pairs pair = widen_pairs(keys + p * kHeadDim + i);
      out[i * kBlockPositions + p] = hn::GetLane(pair.first);
      out[(i + 1) * kBlockPositions + p] = hn::GetLane(pair.second);
    }
  }
}

#else

// Four pairs of dimensions of every fourth position: those of position 4 b are block b of 128 bits.
template <class D>
HWY_INLINE hn::Vec<D> pairs_of_positions(D d, const std::uint16_t* keys) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::BitCast(d, hn::LoadU(hn::FixedTag<std::uint16_t, 8>(), keys));
  } else {
    const hn::Half<D> half;
    const auto later = static_cast<std::ptrdiff_t>(hn::MaxLanes(half)) * kHeadDim;
    return hn::Combine(d, pairs_of_positions(half, keys + later), pairs_of_positions(half, keys));
  }
}

inline void turn_keys(const std::uint16_t* keys, float* out) {
  constexpr int kDims = 8;
  const BitsTag d;
  const hn::Repartition<std::uint64_t, BitsTag> two;
  const auto high = hn::Set(d, 0xffff0000u);
  for (int p = 0; p < kBlockPositions; p += kWidth) {
    for (int i = 0; i < kHeadDim; i += kDims) {
      const std::uint16_t* from = keys + p * kHeadDim + i;
      const auto a = pairs_of_positions(d, from);
      const auto b = pairs_of_positions(d, from + kHeadDim);
      const auto c = pairs_of_positions(d, from + 2 * kHeadDim);
      const auto e = pairs_of_positions(d, from + 3 * kHeadDim);
      const auto ab_low = hn::BitCast(two, hn::InterleaveLower(a, b));
      const auto ab_high = hn::BitCast(two, hn::InterleaveUpper(d, a, b));
      const auto ce_low = hn::BitCast(two, hn::InterleaveLower(c, e));
      const auto ce_high = hn::BitCast(two, hn::InterleaveUpper(d, c, e));
      const hn::Vec<BitsTag> pairs[kDims / 2] = {
          hn::BitCast(d, hn::InterleaveLower(ab_low, ce_low)),
          hn::BitCast(d, hn::InterleaveUpper(two, ab_low, ce_low)),
          hn::BitCast(d, hn::InterleaveLower(ab_high, ce_high)),
          hn::BitCast(d, hn::InterleaveUpper(two, ab_high, ce_high))};
      float* to = out + i * kBlockPositions + p;
      for (int pair = 0; pair < kDims / 2; ++pair, to += 2 * kBlockPositions) {
        hn::Store(hn::BitCast(Tag(), hn::ShiftLeft<16>(pairs[pair])), Tag(), to);
        hn::Store(hn::BitCast(Tag(), hn::And(pairs[pair], high)), Tag(), to + kBlockPositions);
      }
    }
  }
}

#endif

// Values [kBlockPositions, kHeadDim] as floats in the kernels' order.
inline void order_values(const float* values, float* out) {
  for (int at = 0; at < kBlockPositions * kHeadDim; at += 2 * kWidth) {
    for (int l = 0; l < kWidth; ++l) {
      out[at + l] = values[at + 2 * l];
      out[at + kWidth + l] = values[at + 2 * l + 1];
    }
  }
}
inline void order_values(const std::uint16_t* values, float* out) {
  for (int at = 0; at < kBlockPositions * kHeadDim; at += 2 * kWidth) {
    const Pairs pairs = widen_pairs(values + at);
    hn::Store(pairs.first, Tag(), out + at);
    hn::Store(pairs.second, Tag(), out + at + kWidth);
  }
}

// scores[q][p] = sum over i of queries[q][i] * keys[i][p]. Fetches the kHeadBytes at `fetch` on the
// way.
template <int kQueries>
HWY_INLINE void score(const float* const* queries, const float* keys, float* scores,
                      const std::byte* fetch) {
  const Tag d;
  Vec sum[std::size_t{kQueries}][kVectors];
  for (auto& of_query : sum) {
    for (Vec& v : of_query) v = hn::Zero(d);
  }
  for (int i = 0; i < kHeadDim; ++i) {
    if (fetch != nullptr) fetch_line(fetch + static_cast<std::size_t>(i) * kLine);
    Vec key[kVectors];
    for (int v = 0; v < kVectors; ++v)
      key[v] = hn::Load(d, keys + i * kBlockPositions + v * kWidth);
    for (int q = 0; q < kQueries; ++q) {
      const Vec query = hn::Set(d, queries[q][i]);
      for (int v = 0; v < kVectors; ++v) sum[q][v] = hn::MulAdd(key[v], query, sum[q][v]);
    }
  }
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sum[q][v], d, scores + q * kBlockPositions + v * kWidth);
    }
  }
}

HWY_INLINE void load_values(const std::uint16_t* values, Vec (&out)[kValueVectors]) {
  for (int v = 0; v < kValueVectors; v += 2) {
    const Pairs pairs = widen_pairs(values + v * kWidth);
    out[v] = pairs.first;
    out[v + 1] = pairs.second;
  }
}
HWY_INLINE void load_values(const float* ordered, Vec (&out)[kValueVectors]) {
  for (int v = 0; v < kValueVectors; ++v) out[v] = hn::Load(Tag(), ordered + v * kWidth);
}

// out[q] = out[q] * factors[q] + sum over positions [begin, end) of weights[q][p] * values[p].
// Fetches the kHeadBytes at `fetch` on the way when all positions are added.
template <int kQueries, class T>
HWY_INLINE void add_values(const float* weights, const float* factors, const T* values, int begin,
                           int end, float* out, const std::byte* fetch) {
  constexpr int kDims = kValueVectors * kWidth;
  constexpr std::size_t kVisits = kBlockPositions * (kHeadDim / kDims);
  const Tag d;
  for (int i = 0; i < kHeadDim; i += kDims) {
    Vec sum[std::size_t{kQueries}][kValueVectors];
    for (int q = 0; q < kQueries; ++q) {
      const Vec factor = hn::Set(d, factors[q]);
      for (int v = 0; v < kValueVectors; ++v) {
        sum[q][v] = hn::Mul(hn::Load(d, out + q * kHeadDim + i + v * kWidth), factor);
      }
    }
    for (int p = begin; p < end; ++p) {
      if (fetch != nullptr) {
        for (std::size_t at = 0; at < kHeadBytes / kVisits; at += kLine) fetch_line(fetch + at);
        fetch += kHeadBytes / kVisits;
      }
      Vec value[kValueVectors];
      load_values(values + p * kHeadDim + i, value);
      for (int q = 0; q < kQueries; ++q) {
        const Vec weight = hn::Set(d, weights[q * kBlockPositions + p]);
        for (int v = 0; v < kValueVectors; ++v) {
          sum[q][v] = hn::MulAdd(value[v], weight, sum[q][v]);
        }
      }
    }
    for (int q = 0; q < kQueries; ++q) {
      for (int v = 0; v < kValueVectors; ++v) {
        hn::Store(sum[q][v], d, out + q * kHeadDim + i + v * kWidth);
      }
    }
  }
}

}  // namespace kipp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
