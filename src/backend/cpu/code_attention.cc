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

// Makes whole bytes of int8 codes: worth it where enough queries multiply them, and where they can.
bool whole_codes([[maybe_unused]] BitWidth width, [[maybe_unused]] int queries) {
#if HWY_TARGET == HWY_AVX3_DL
  return width == BitWidth::int8 && queries > 2;
#else
  return false;
#endif
}

void unpack_keys(const CodeHead& codes, [[maybe_unused]] bool whole, CodeBytes& out, Lines& lines) {
  const Planes top = {codes.hi2, codes.mid2};
  if (codes.width == BitWidth::int2) return unpack_keys<Nibbles::top2>(top, out.top, lines);
  unpack_keys<Nibbles::top4>(top, out.top, lines);
  if (codes.width != BitWidth::int8) return;
  Lines nothing;
  unpack_keys<Nibbles::low4>({codes.low4, nullptr}, out.low, nothing);
#if HWY_TARGET == HWY_AVX3_DL
  constexpr int kStep = kLanesAtOnce * 4;
  if (whole) whole_bytes<kStep, CodeBytes::kNibbles, kStep>(out.top, out.low, out.whole);
#endif
}

template <Nibbles kNibbles>
void unpack_all_values(const Planes& planes, std::uint8_t* out, Lines& lines) {
  for (int p = 0; p < kBlockPositions; p += 4) {
    lines.take(Lines::kOfPart * 4 / kBlockPositions);
    unpack_four_values<kNibbles>(planes, p, out);
  }
}

void unpack_values(const CodeHead& codes, [[maybe_unused]] bool whole, CodeBytes& out,
                   Lines& lines) {
  const Planes top = {codes.hi2, codes.mid2};
  if (codes.width == BitWidth::int2) return unpack_all_values<Nibbles::top2>(top, out.top, lines);
  unpack_all_values<Nibbles::top4>(top, out.top, lines);
  if (codes.width != BitWidth::int8) return;
  Lines nothing;
  unpack_all_values<Nibbles::low4>({codes.low4, nullptr}, out.low, nothing);
#if HWY_TARGET == HWY_AVX3_DL
  constexpr int kStep = kNibbleRow;
  if (whole) whole_bytes<kStep, kStep, 2 * kStep>(out.top, out.low, out.whole);
#endif
}

// The sums of int8 codes from those of their halves.
void join_halves(std::int32_t* top, const std::int32_t* low, int n) {
  const IntTag d;
  for (int i = 0; i < n; i += kWidth) {
    hn::Store(hn::Add(hn::ShiftLeft<4>(hn::Load(d, top + i)), hn::Load(d, low + i)), d, top + i);
  }
}

// sums[q] = sum over channels of a query by the codes of each key: [queries][kBlockPositions].
template <int kQueries>
void multiply_keys(int queries, const CodeBytes& keys, BitWidth width, bool whole,
                   const std::int8_t* high, const std::int8_t* low, std::int32_t* sums,
                   std::int32_t* more, Lines& lines) {
  if constexpr (kQueries > 1) {
    if (queries < kQueries) {
      return multiply_keys<kQueries - 1>(queries, keys, width, whole, high, low, sums, more, lines);
    }
  }
#if HWY_TARGET == HWY_AVX3_DL
  if (whole) return dot_of_keys<KeyBytes, kQueries>(keys.whole, high, low, sums, lines);
#endif
  dot_keys<kQueries>(keys.top, high, low, sums, lines);
  if (width != BitWidth::int8) return;
  Lines nothing;
  dot_keys<kQueries>(keys.low, high, low, more, nothing);
  join_halves(sums, more, kQueries * kLanesAtOnce);
}

// sums[q] = sum over positions of a query's weights by the codes of a chunk of lanes.
template <int kQueries>
void multiply_values(int queries, const CodeBytes& values, BitWidth width, bool whole, int chunk,
                     const std::int8_t* high, const std::int8_t* low, std::int32_t* sums,
                     std::int32_t* more, Lines& lines) {
  if constexpr (kQueries > 1) {
    if (queries < kQueries) {
      return multiply_values<kQueries - 1>(queries, values, width, whole, chunk, high, low, sums,
                                           more, lines);
    }
  }
#if HWY_TARGET == HWY_AVX3_DL
  if (whole) {
    return dot_of_values<ValueBytes, kQueries>(values.whole + 2 * chunk * kNibbleRow, high, low,
                                               sums, lines);
  }
#endif
  dot_values<kQueries>(values.top, chunk, high, low, sums, lines);
  if (width != BitWidth::int8) return;
  Lines nothing;
  dot_values<kQueries>(values.low, chunk, high, low, more, nothing);
  join_halves(sums, more, kQueries * kLanesAtOnce);
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
    Lines lines(next);
    if (block.keys.rows != nullptr) {
      lines.take(Lines::kSlots / 2);
      work_.score_rows(block.keys.rows, rows_of(next.keys));
    } else {
      score_codes(block.keys.codes, lines);
    }
    const AttentionState& state = block.values.rows != nullptr ? state_.rows : state_.codes;
    work_.weigh(state);
    if (block.values.rows != nullptr) {
      lines.take(Lines::kSlots / 2);
      work_.add_rows(state, block.values.rows, rows_of(next.values));
    } else {
      add_codes(block.values.codes, lines);
    }
  }

 private:
  static const std::byte* rows_of(const TieredSide& side) {
    return reinterpret_cast<const std::byte*>(side.rows);
  }

  void score_codes(const CodeHead& keys, Lines& lines) {
    const Reading r = reading(keys.width);
    const int n = work_.queries();
    const bool whole = whole_codes(keys.width, n);
    unpack_keys(keys, whole, scratch_.keys, lines);
    read_parameters(keys, r, scratch_.key_base, scratch_.key_step);
    for (int q = 0, share; q < n; q += share) {
      share = share_of(n - q, kDotQueries);
      multiply_keys<kDotQueries>(share, scratch_.keys, keys.width, whole, coded_.high[q],
                                 coded_.low[q], scratch_.sums, scratch_.more_sums, lines);
      for (int i = 0; i < share; ++i) to_scores(q + i, r, scratch_.sums + i * kLanesAtOnce);
    }
  }

  void to_scores(int q, const Reading& r, const std::int32_t* sums) {
    const Tag d;
    const IntTag di;
    const auto centre = hn::Set(di, coded_.sum[q] * r.greatest);
    const Vec sum = hn::Set(d, static_cast<float>(coded_.sum[q]));
    const Vec scale = hn::Set(d, coded_.scale[q]);
    float* scores = work_.scores_of(q);
    for (int p = 0; p < kBlockPositions; p += kWidth) {
      const auto twice = hn::ShiftLeft<1>(hn::Load(di, sums + p));
      const Vec centred = hn::ConvertTo(d, hn::Sub(twice, centre));
      const Vec score = hn::MulAdd(hn::Load(d, scratch_.key_step + p), centred,
                                   hn::Mul(hn::Load(d, scratch_.key_base + p), sum));
      hn::Store(hn::Mul(score, scale), d, scores + p);
    }
  }

  void add_codes(const CodeHead& values, Lines& lines) {
    const Reading r = reading(values.width);
    const int n = work_.queries();
    const bool whole = whole_codes(values.width, n);
    unpack_values(values, whole, scratch_.values, lines);
    read_parameters(values, r, scratch_.value_base, scratch_.value_step);
    for (int q = 0; q < n; ++q) code_weights(q);
    for (int q = 0, share; q < n; q += share) {
      share = share_of(n - q, kDotQueries);
      for (int chunk = 0; chunk < kValueChunks; ++chunk) {
        multiply_values<kDotQueries>(share, scratch_.values, values.width, whole, chunk,
                                     scratch_.weight_high[q], scratch_.weight_low[q], scratch_.sums,
                                     scratch_.more_sums, lines);
        for (int i = 0; i < share; ++i) {
          add_sums(q + i, chunk, r, scratch_.sums + i * kLanesAtOnce);
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

  // A chunk of lanes of the state.
  void add_sums(int q, int chunk, const Reading& r, const std::int32_t* sums) {
    const Tag d;
    const IntTag di;
    const auto centre = hn::Set(di, scratch_.weight_sum[q] * r.greatest);
    const Vec unit = hn::Set(d, scratch_.weight_unit[q]);
    const Vec base = hn::Set(d, scratch_.base_sum[q]);
    const Vec factor = hn::Set(d, work_.factors()[q]);
    float* out = state_.codes.out + q * kHeadDim + chunk * kLanesAtOnce;
    for (int l = 0; l < kLanesAtOnce; l += kWidth) {
      const auto twice = hn::ShiftLeft<1>(hn::Load(di, sums + l));
      const Vec centred = hn::ConvertTo(d, hn::Sub(twice, centre));
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
                                 int seen, std::span<const TieredHead> ahead,
                                 TieredScratch& scratch) {
  TieredRun run(state, tile, coded, scratch);
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    run.attend(blocks[b], seen - static_cast<int>(b) * kBlockPositions, ahead[b]);
  }
}

// From the order of the sums (code_kernel-inl.h), and turned back.
void natural_codes(const float* lanes, float* out, bool rotated) {
  for (int a = 0; a < 2; ++a) {
    for (int b = 0; b < 4; ++b) {
      for (int c = 0; c < 4; ++c) {
        std::copy_n(lanes + 32 * c + 16 * a + 4 * b, 4, out + 64 * a + 16 * b + 4 * c);
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
                       std::span<const TieredHead> blocks, int seen,
                       std::span<const TieredHead> ahead, TieredScratch& scratch) {
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
