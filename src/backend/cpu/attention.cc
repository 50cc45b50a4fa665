// The attention kernels, compiled once per CPU target; matmul_kernels.cc says which are left out
// and why.
#include "backend/cpu/attention.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention.cc"
#include <hwy/foreach_target.h>
// After it, so that the file is read once per target.
#include "backend/cpu/attention_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kipp::cpu::HWY_NAMESPACE {
namespace {

constexpr float kScoreScale = 0.08838834764831845f;  // 1 / sqrt(kHeadDim)
constexpr float kNothing = -std::numeric_limits<float>::infinity();

static_assert(kTileQueries % kWidth == 0);

// How many of `left` queries to take at once, at most `most`: about equal shares, since a single
// query has too few sums to hide their latency.
int share_of(int left, int most) {
  const int shares = (left + most - 1) / most;
  return (left + shares - 1) / shares;
}

template <int kQueries>
void score_share(int share, const float* const* queries, const float* keys, float* scores,
                 const std::byte* fetch) {
  if constexpr (kQueries > 1) {
    if (share < kQueries) return score_share<kQueries - 1>(share, queries, keys, scores, fetch);
  }
  score<kQueries>(queries, keys, scores, fetch);
}

template <int kQueries, class T>
void add_values_share(int share, const float* weights, const float* factors, const T* values,
                      int begin, int end, float* out, const std::byte* fetch) {
  if constexpr (kQueries > 1) {
    if (share < kQueries) {
      return add_values_share<kQueries - 1>(share, weights, factors, values, begin, end, out,
                                            fetch);
    }
  }
  add_values<kQueries>(weights, factors, values, begin, end, out, fetch);
}

// A run of positions for one tile. Queries see ever more positions of a block, so those that see
// some are the last ones: [first, n).
template <class T>
class Run {
 public:
  Run(const AttentionState& state, const QueryTile& tile, AttentionScratch& scratch)
      : state_(state), scratch_(scratch), heads_(tile.heads), n_(tile.queries()) {
    for (int q = 0; q < n_; ++q) {
      queries_[q] = tile.first + q / heads_ * tile.stride + q % heads_ * kHeadDim;
    }
    std::fill_n(state.out, n_ * kHeadDim, 0.0f);
    std::fill_n(state.greatest, n_, kNothing);
    std::fill_n(state.sum, n_, 0.0f);
  }

  void attend(std::span<const KvHead> blocks, int seen, const KvHead& ahead) {
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const int seen_of_block = seen - static_cast<int>(b) * kBlockPositions;
      attend_block(blocks[b], seen_of_block, b + 1 < blocks.size() ? blocks[b + 1] : ahead);
    }
  }

 private:
  static constexpr float kOne[kValueQueries] = {1};  // the only one that is read

  int seen_by(int q, int seen) const { return std::clamp(seen + q / heads_, 0, kBlockPositions); }

  void attend_block(const KvHead& block, int seen, const KvHead& next) {
    const int first = std::max(0, 1 - seen) * heads_;
    turn_keys(reinterpret_cast<const T*>(block.keys), scratch_.keys);
    for (int q = first, share; q < n_; q += share) {
      share = share_of(n_ - q, kScoreQueries);
      score_share<kScoreQueries>(share, queries_ + q, scratch_.keys, scores_of(q),
                                 q == first ? next.keys : nullptr);
    }
    for (int q = first; q < n_; ++q) scale_and_compare(q, seen_by(q, seen));
    find_factors(first);
    for (int q = first; q < n_; ++q) weigh(q);
    const auto* values = reinterpret_cast<const T*>(block.values);
    // Widening once for all is worth it when more than one share of queries reads the values.
    constexpr bool kStoredAsRead = std::is_same_v<T, std::uint16_t>;
    if (kStoredAsRead && n_ - first <= 2 * kValueQueries) {
      add_weighted(values, first, seen, next.values);
    } else {
      order_values(values, scratch_.values);
      add_weighted(scratch_.values, first, seen, next.values);
    }
  }

  float* scores_of(int q) { return scratch_.scores + q * kBlockPositions; }

  // What lies past the last position that a query sees may hold anything.
  void scale_and_compare(int q, int seen) {
    const Tag d;
    const Vec nothing = hn::Set(d, kNothing);
    Vec greatest = hn::Set(d, state_.greatest[q]);
    float* scores = scores_of(q);
    for (int v = 0; v < kVectors; ++v) {
      const int left = std::clamp(seen - v * kWidth, 0, kWidth);
      Vec score = hn::Mul(hn::Load(d, scores + v * kWidth), hn::Set(d, kScoreScale));
      score = hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(left)), score, nothing);
      hn::Store(score, d, scores + v * kWidth);
      greatest = hn::Max(greatest, score);
    }
    scratch_.greatest[q] = hn::GetLane(hn::MaxOfLanes(d, greatest));
  }

  void find_factors(int first) {
    const Tag d;
    for (int q = first / kWidth * kWidth; q < n_; q += kWidth) {
      const Vec before = hn::LoadU(d, state_.greatest + q);
      const Vec now = hn::Load(d, scratch_.greatest + q);
      hn::Store(math::exp(hn::Sub(before, now)), d, scratch_.factors + q);
    }
  }

  // Scores become weights.
  void weigh(int q) {
    const Tag d;
    const Vec greatest = hn::Set(d, scratch_.greatest[q]);
    float* scores = scores_of(q);
    Vec weights[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = math::exp(hn::Sub(hn::Load(d, scores + v * kWidth), greatest));
      hn::Store(weights[v], d, scores + v * kWidth);
    }
    state_.sum[q] = state_.sum[q] * scratch_.factors[q] + fold(weights);
    state_.greatest[q] = scratch_.greatest[q];
  }

  // A share of queries adds the positions that all of them see together, the rest each on its own.
  template <class V>
  void add_weighted(const V* values, int first, int seen, const std::byte* fetch) {
    for (int q = first, share; q < n_; q += share) {
      share = share_of(n_ - q, kValueQueries);
      const int common = seen_by(q, seen);
      add_values_share<kValueQueries>(share, scores_of(q), scratch_.factors + q, values, 0, common,
                                      state_.out + q * kHeadDim, fetch);
      fetch = nullptr;
      for (int other = q + 1; other < q + share; ++other) {
        const int end = seen_by(other, seen);
        if (end == common) continue;
        add_values<1>(scores_of(other), kOne, values, common, end, state_.out + other * kHeadDim,
                      nullptr);
      }
    }
  }

  const AttentionState& state_;
  AttentionScratch& scratch_;
  const int heads_;
  const int n_;
  const float* queries_[kTileQueries];
};

void attend_run_on_target(const AttentionState& state, const QueryTile& tile, KvStore store,
                          std::span<const KvHead> blocks, int seen, const KvHead& ahead,
                          AttentionScratch& scratch) {
  if (store == KvStore::bf16) {
    Run<std::uint16_t>(state, tile, scratch).attend(blocks, seen, ahead);
  } else {
    Run<float>(state, tile, scratch).attend(blocks, seen, ahead);
  }
}

void merge_run_on_target(const AttentionState& state, const AttentionState& next, int queries) {
  const Tag d;
  for (int q = 0; q < queries; ++q) {
    if (next.sum[q] == 0) continue;  // this query sees nothing of the run
    const Vec mine = hn::Set(d, state.greatest[q]);
    const Vec its = hn::Set(d, next.greatest[q]);
    const Vec greatest = hn::Max(mine, its);
    const Vec keep = math::exp(hn::Sub(mine, greatest));
    const Vec take = math::exp(hn::Sub(its, greatest));
    float* out = state.out + q * kHeadDim;
    const float* more = next.out + q * kHeadDim;
    for (int i = 0; i < kHeadDim; i += kWidth) {
      const Vec kept = hn::Mul(hn::Load(d, out + i), keep);
      hn::Store(hn::MulAdd(hn::Load(d, more + i), take, kept), d, out + i);
    }
    state.sum[q] = state.sum[q] * hn::GetLane(keep) + next.sum[q] * hn::GetLane(take);
    state.greatest[q] = hn::GetLane(greatest);
  }
}

void finish_attention_on_target(float* out, std::ptrdiff_t stride, const AttentionState& state,
                                int positions, int heads) {
  const Tag d;
  for (int q = 0; q < positions * heads; ++q) {
    const Vec sum = hn::Set(d, state.sum[q]);
    const float* from = state.out + q * kHeadDim;
    float* to = out + q / heads * stride + q % heads * kHeadDim;
    for (int i = 0; i < kHeadDim; i += 2 * kWidth) {
      const Vec first = hn::Div(hn::Load(d, from + i), sum);
      const Vec second = hn::Div(hn::Load(d, from + i + kWidth), sum);
      hn::StoreInterleaved2(first, second, d, to + i);
    }
  }
}

}  // namespace
}  // namespace kipp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kipp::cpu {

HWY_EXPORT(attend_run_on_target);
HWY_EXPORT(merge_run_on_target);
HWY_EXPORT(finish_attention_on_target);

void attend_run(const AttentionState& state, const QueryTile& tile, KvStore store,
                std::span<const KvHead> blocks, int seen, const KvHead& ahead,
                AttentionScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(attend_run_on_target)(state, tile, store, blocks, seen, ahead, scratch);
}

void merge_run(const AttentionState& state, const AttentionState& next, int queries) {
  HWY_DYNAMIC_DISPATCH(merge_run_on_target)(state, next, queries);
}

void finish_attention(float* out, std::ptrdiff_t stride, const AttentionState& state, int positions,
                      int heads) {
  HWY_DYNAMIC_DISPATCH(finish_attention_on_target)(out, stride, state, positions, heads);
}

}  // namespace kipp::cpu
#endif
