// The kernels of attention over codes, compiled once per CPU target; matmul_kernels.cc says which
// are left out and why. Unlike the other kernels these want byte products (VNNI), so they are
// compiled for the target that has them too.
#include "backend/cpu/code_attention.h"

#include <algorithm>
#include <cstdint>

#define HWY_WANT_AVX3_DL
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/code_attention.cc"
#include <hwy/foreach_target.h>
// After it, so that the file is read once per target.
#include "backend/cpu/code_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kipp::cpu::HWY_NAMESPACE {
namespace {

using kvquant::BitWidth;

// The greatest of a query's or a block's integers: its high byte reaches 127 and its low byte is
// signed.
constexpr float kUnits = 127.0f * 256.0f;
// Below it the reciprocal of a unit may overflow; what is lost is nothing beside any weight.
constexpr float kLeast = 1e-30f;

// How codes of a width read: value = offset + scale * (code * cell + (cell - 1) / 2), cell being
// the int8 codes that one code stands for; at int2 offset + scale * code.
struct Reading {
  int greatest;  // code
  float middle;  // the level that the middle code stands for
  float half;    // of the levels between two codes
};

Reading reading(BitWidth width) {
  switch (width) {
    case BitWidth::int2:
      return {.greatest = 3, .middle = 1.5f, .half = 0.5f};
    case BitWidth::int4:
      return {.greatest = 15, .middle = 127.5f, .half = 8.0f};
    case BitWidth::int8:
    case BitWidth::bf16:
      break;
  }
  return {.greatest = 255, .middle = 127.5f, .half = 0.5f};
}

HWY_INLINE Vec load_fp16(const std::uint16_t* from) {
  const hn::Rebind<hwy::float16_t, Tag> stored;
  return hn::PromoteTo(Tag(), hn::LoadU(stored, reinterpret_cast<const hwy::float16_t*>(from)));
}

// value = base + step * (2 * code - greatest): the codes are centred before anything is rounded.
void read_parameters(const CodeHead& codes, const Reading& r, float* base, float* step) {
  const Tag d;
  for (int p = 0; p < kBlockPositions; p += kWidth) {
    const Vec scale = load_fp16(codes.scales + p);
    const Vec offset = load_fp16(codes.offsets + p);
    hn::Store(hn::MulAdd(scale, hn::Set(d, r.middle), offset), d, base + p);
    hn::Store(hn::Mul(scale, hn::Set(d, r.half)), d, step + p);
  }
}

// x = 256 * high + low, |x| <= kUnits. (TruncateTo of Highway 1.0.3 is wrong on AVX3_DL.)
template <class D, class V>
HWY_INLINE void split_bytes(D d, V x, std::int8_t* high, std::int8_t* low) {
  const hn::Rebind<std::int8_t, D> bytes;
  const auto up = hn::ShiftRight<8>(hn::Add(x, hn::Set(d, 128)));
  hn::StoreU(hn::DemoteTo(bytes, up), bytes, high);
  hn::StoreU(hn::DemoteTo(bytes, hn::Sub(x, hn::ShiftLeft<8>(up))), bytes, low);
}

std::int32_t sum_of(IntTag d, hn::Vec<IntTag> sum) { return hn::GetLane(hn::SumOfLanes(d, sum)); }

// What is not a finite number stays so through the scale.
void code_query(CodedQueries& coded, int q, const float* query, bool rotated) {
  alignas(64) float row[kHeadDim];
  std::copy_n(query, kHeadDim, row);
  if (rotated) hadamard(row);
  const Tag d;
  Vec greatest = hn::Zero(d);
  Vec all = hn::Zero(d);
  for (int i = 0; i < kHeadDim; i += kWidth) {
    const Vec x = hn::Load(d, row + i);
    greatest = hn::Max(greatest, hn::Abs(x));
    all = hn::MulAdd(x, hn::Zero(d), all);
  }
  const float most = hn::GetLane(hn::MaxOfLanes(d, greatest));
  const float poison = hn::GetLane(hn::SumOfLanes(d, all));  // 0, or NaN
  coded.scale[q] = most * (1.0f / kUnits) + poison;
  const Vec inverse = hn::Set(d, most > kLeast && poison == 0 ? kUnits / most : 0.0f);
  const IntTag di;
  auto sum = hn::Zero(di);
  for (int i = 0; i < kHeadDim; i += kWidth) {
    const auto x = hn::NearestInt(hn::Mul(hn::Load(d, row + i), inverse));
    sum = hn::Add(sum, x);
    split_bytes(di, x, coded.high[q] + i, coded.low[q] + i);
  }
  coded.sum[q] = sum_of(di, sum);
}

void code_queries_on_target(CodedQueries& coded, const QueryTile& tile, bool rotated) {
  for (int q = 0; q < tile.queries(); ++q) {
    code_query(coded, q, tile.first + q / tile.heads * tile.stride + q % tile.heads * kHeadDim,
               rotated);
  }
}

void fetch_lines(const void* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kLine) fetch_line(static_cast<const std::byte*>(at) + i);
}

void fetch(const TieredSide& side) {
  if (side.rows != nullptr) return fetch_lines(side.rows, kHeadBytes);
  constexpr std::size_t kPacked = std::size_t{kBlockPositions} * kPackedRow;
  fetch_lines(side.codes.hi2, kPacked);
  if (side.codes.mid2 != nullptr) fetch_lines(side.codes.mid2, kPacked);
  if (side.codes.low4 != nullptr) fetch_lines(side.codes.low4, 2 * kPacked);
  fetch_line(reinterpret_cast<const std::byte*>(side.codes.scales));
  fetch_line(reinterpret_cast<const std::byte*>(side.codes.offsets));
}

void unpack_keys(const CodeHead& codes, CodeBytes& out) {
  const Planes top = {codes.hi2, codes.mid2};
  if (codes.width == BitWidth::int2) return unpack_keys<Nibbles::top2>(top, out.top);
  unpack_keys<Nibbles::top4>(top, out.top);
  if (codes.width == BitWidth::int8) {
    unpack_keys<Nibbles::low4>({codes.low4, nullptr}, out.low);
  }
}

void unpack_values(const CodeHead& codes, CodeBytes& out) {
  const Planes top = {codes.hi2, codes.mid2};
  if (codes.width == BitWidth::int2) return unpack_values<Nibbles::top2>(top, out.top);
  unpack_values<Nibbles::top4>(top, out.top);
  if (codes.width == BitWidth::int8) {
    unpack_values<Nibbles::low4>({codes.low4, nullptr}, out.low);
  }
}

class TieredRun {
 public:
  TieredRun(const TieredState& state, const QueryTile& tile, const CodedQueries& coded,
            TieredScratch& scratch)
      : state_(state), coded_(coded), scratch_(scratch), work_(tile, scratch.rows) {
    clear(state.codes, work_.queries());
    clear(state.rows, work_.queries());
  }

  void attend(const TieredHead& block, int seen, const TieredHead& next) {
    work_.begin_block(seen);
    fetch(next.keys);
    if (block.keys.rows != nullptr) {
      work_.score_rows(block.keys.rows, nullptr);
    } else {
      score_codes(block.keys.codes);
    }
    const AttentionState& state = block.values.rows != nullptr ? state_.rows : state_.codes;
    work_.weigh(state);
    fetch(next.values);
    if (block.values.rows != nullptr) {
      work_.add_rows(state, block.values.rows, nullptr);
    } else {
      add_codes(block.values.codes);
    }
  }

 private:
  void score_codes(const CodeHead& keys) {
    const Reading r = reading(keys.width);
    const bool both = keys.width == BitWidth::int8;
    unpack_keys(keys, scratch_.keys);
    read_parameters(keys, r, scratch_.key_base, scratch_.key_step);
    const int n = work_.queries();
    constexpr std::ptrdiff_t kStride = kBlockPositions * 4;
    constexpr int kSteps = kHeadDim / 4;
    for (int q = 0, share; q < n; q += share) {
      share = share_of(n - q, kDotQueries);
      std::int32_t* top = scratch_.sums[0];
      std::int32_t* low = scratch_.sums[1];
      dot_share<kDotQueries>(share, scratch_.keys.top, kStride, kSteps, coded_.high[q],
                             coded_.low[q], kHeadDim, top);
      if (both) {
        dot_share<kDotQueries>(share, scratch_.keys.low, kStride, kSteps, coded_.high[q],
                               coded_.low[q], kHeadDim, low);
      }
      for (int i = 0; i < share; ++i) {
        to_scores(q + i, r, top + i * kBlockPositions, both ? low + i * kBlockPositions : nullptr);
      }
    }
  }

  void to_scores(int q, const Reading& r, const std::int32_t* top, const std::int32_t* low) {
    const Tag d;
    const IntTag di;
    const auto centre = hn::Set(di, coded_.sum[q] * r.greatest);
    const Vec sum = hn::Set(d, static_cast<float>(coded_.sum[q]));
    const Vec scale = hn::Set(d, coded_.scale[q]);
    float* scores = work_.scores_of(q);
    for (int p = 0; p < kBlockPositions; p += kWidth) {
      auto products = hn::Load(di, top + p);
      if (low != nullptr) {
        products = hn::Add(hn::ShiftLeft<4>(products), hn::Load(di, low + p));
      }
      const Vec centred = hn::ConvertTo(d, hn::Sub(hn::ShiftLeft<1>(products), centre));
      const Vec score = hn::MulAdd(hn::Load(d, scratch_.key_step + p), centred,
                                   hn::Mul(hn::Load(d, scratch_.key_base + p), sum));
      hn::Store(hn::Mul(score, scale), d, scores + p);
    }
  }

  void add_codes(const CodeHead& values) {
    const Reading r = reading(values.width);
    const bool both = values.width == BitWidth::int8;
    unpack_values(values, scratch_.values);
    read_parameters(values, r, scratch_.value_base, scratch_.value_step);
    const int n = work_.queries();
    for (int q = 0; q < n; ++q) code_weights(q);
    constexpr std::ptrdiff_t kStride = kHeadDim * 4;
    constexpr int kSteps = kBlockPositions / 4;
    for (int q = 0, share; q < n; q += share) {
      share = share_of(n - q, kDotQueries);
      for (int lane = 0; lane < kHeadDim; lane += kLanesAtOnce) {
        std::int32_t* top = scratch_.sums[0];
        std::int32_t* low = scratch_.sums[1];
        dot_share<kDotQueries>(share, scratch_.values.top + lane * 4, kStride, kSteps,
                               scratch_.weight_high[q], scratch_.weight_low[q], kBlockPositions,
                               top);
        if (both) {
          dot_share<kDotQueries>(share, scratch_.values.low + lane * 4, kStride, kSteps,
                                 scratch_.weight_high[q], scratch_.weight_low[q], kBlockPositions,
                                 low);
        }
        for (int i = 0; i < share; ++i) {
          add_sums(q + i, lane, r, top + i * kLanesAtOnce, both ? low + i * kLanesAtOnce : nullptr);
        }
      }
    }
  }

  // Weights times the values' steps as integers, with the greatest as unit.
  void code_weights(int q) {
    const Tag d;
    const IntTag di;
    const float* weights = work_.scores_of(q);
    Vec product[kVectors], of_base[kVectors];
    Vec greatest = hn::Zero(d);
    for (int v = 0; v < kVectors; ++v) {
      const Vec weight = hn::Load(d, weights + v * kWidth);
      product[v] = hn::Mul(weight, hn::Load(d, scratch_.value_step + v * kWidth));
      of_base[v] = hn::Mul(weight, hn::Load(d, scratch_.value_base + v * kWidth));
      greatest = hn::Max(greatest, product[v]);
    }
    scratch_.base_sum[q] = fold(of_base);
    const float most = hn::GetLane(hn::MaxOfLanes(d, greatest));
    scratch_.weight_unit[q] = most * (1.0f / kUnits);
    const Vec inverse = hn::Set(d, most > kLeast ? kUnits / most : 0.0f);
    auto sum = hn::Zero(di);
    for (int v = 0; v < kVectors; ++v) {
      const auto x = hn::NearestInt(hn::Mul(product[v], inverse));
      sum = hn::Add(sum, x);
      split_bytes(di, x, scratch_.weight_high[q] + v * kWidth, scratch_.weight_low[q] + v * kWidth);
    }
    scratch_.weight_sum[q] = sum_of(di, sum);
  }

  // kLanesAtOnce lanes of the state.
  void add_sums(int q, int lane, const Reading& r, const std::int32_t* top,
                const std::int32_t* low) {
    const Tag d;
    const IntTag di;
    const auto centre = hn::Set(di, scratch_.weight_sum[q] * r.greatest);
    const Vec unit = hn::Set(d, scratch_.weight_unit[q]);
    const Vec base = hn::Set(d, scratch_.base_sum[q]);
    const Vec factor = hn::Set(d, work_.factors()[q]);
    float* out = state_.codes.out + q * kHeadDim + lane;
    for (int l = 0; l < kLanesAtOnce; l += kWidth) {
      auto products = hn::Load(di, top + l);
      if (low != nullptr) {
        products = hn::Add(hn::ShiftLeft<4>(products), hn::Load(di, low + l));
      }
      const Vec centred = hn::ConvertTo(d, hn::Sub(hn::ShiftLeft<1>(products), centre));
      const Vec kept = hn::MulAdd(hn::Load(d, out + l), factor, base);
      hn::Store(hn::MulAdd(unit, centred, kept), d, out + l);
    }
  }

  const TieredState& state_;
  const CodedQueries& coded_;
  TieredScratch& scratch_;
  TileAttention work_;
};

void attend_tiered_run_on_target(const TieredState& state, const QueryTile& tile,
                                 const CodedQueries& coded, std::span<const TieredHead> blocks,
                                 int seen, const TieredHead& ahead, TieredScratch& scratch) {
  TieredRun run(state, tile, coded, scratch);
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    run.attend(blocks[b], seen - static_cast<int>(b) * kBlockPositions,
               b + 1 < blocks.size() ? blocks[b + 1] : ahead);
  }
}

// From the order of the sums (code_kernel-inl.h), and turned back.
void natural_codes(const float* lanes, float* out, bool rotated) {
  for (int a = 0; a < 2; ++a) {
    for (int b = 0; b < 4; ++b) {
      for (int c = 0; c < 4; ++c) {
        std::copy_n(lanes + 64 * a + 16 * c + 4 * b, 4, out + 64 * a + 16 * b + 4 * c);
      }
    }
  }
  if (rotated) hadamard(out);
}

// From pairs side by side (attention_kernel-inl.h).
void natural_rows(const float* pairs, float* out) {
  const Tag d;
  for (int i = 0; i < kHeadDim; i += 2 * kWidth) {
    hn::StoreInterleaved2(hn::Load(d, pairs + i), hn::Load(d, pairs + i + kWidth), d, out + i);
  }
}

void finish_tiered_attention_on_target(float* out, std::ptrdiff_t stride, const TieredState& state,
                                       int positions, int heads, bool rotated) {
  const Tag d;
  alignas(64) float rows[kHeadDim];
  alignas(64) float codes[kHeadDim];
  for (int q = 0; q < positions * heads; ++q) {
    float* to = out + q / heads * stride + q % heads * kHeadDim;
    natural_rows(state.rows.out + q * kHeadDim, rows);
    if (state.codes.sum[q] == 0) {
      const Vec sum = hn::Set(d, state.rows.sum[q]);
      for (int i = 0; i < kHeadDim; i += kWidth) {
        hn::StoreU(hn::Div(hn::Load(d, rows + i), sum), d, to + i);
      }
      continue;
    }
    natural_codes(state.codes.out + q * kHeadDim, codes, rotated);
    const Vec of_codes = hn::Set(d, state.codes.greatest[q]);
    const Vec of_rows = hn::Set(d, state.rows.greatest[q]);
    const Vec greatest = hn::Max(of_codes, of_rows);
    const Vec take = math::exp(hn::Sub(of_codes, greatest));
    const Vec keep = math::exp(hn::Sub(of_rows, greatest));
    const Vec sum = hn::MulAdd(hn::Set(d, state.codes.sum[q]), take,
                               hn::Mul(hn::Set(d, state.rows.sum[q]), keep));
    for (int i = 0; i < kHeadDim; i += kWidth) {
      const Vec both =
          hn::MulAdd(hn::Load(d, codes + i), take, hn::Mul(hn::Load(d, rows + i), keep));
      hn::StoreU(hn::Div(both, sum), d, to + i);
    }
  }
}

}  // namespace
}  // namespace kipp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kipp::cpu {

HWY_EXPORT(code_queries_on_target);
HWY_EXPORT(attend_tiered_run_on_target);
HWY_EXPORT(finish_tiered_attention_on_target);

void code_queries(CodedQueries& coded, const QueryTile& tile, bool rotated) {
  HWY_DYNAMIC_DISPATCH(code_queries_on_target)(coded, tile, rotated);
}

void attend_tiered_run(const TieredState& state, const QueryTile& tile, const CodedQueries& coded,
                       std::span<const TieredHead> blocks, int seen, const TieredHead& ahead,
                       TieredScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(attend_tiered_run_on_target)
  (state, tile, coded, blocks, seen, ahead, scratch);
}

void finish_tiered_attention(float* out, std::ptrdiff_t stride, const TieredState& state,
                             int positions, int heads, bool rotated) {
  HWY_DYNAMIC_DISPATCH(finish_tiered_attention_on_target)
  (out, stride, state, positions, heads, rotated);
}

}  // namespace kipp::cpu
#endif
