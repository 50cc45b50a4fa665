// What the queries of a tile do with one block: score its keys, weigh its positions, add its
// values. Keys and values may each be rows, as here, or codes (code_kernel-inl.h); the weights are
// made in the same way from either.
//
// Included once per target; no include guard.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "backend/cpu/attention.h"
#include "backend/cpu/attention_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kipp::cpu::HWY_NAMESPACE {
namespace {

constexpr float kScoreScale = 0.08838834764831845f;  // 1 / sqrt(kHeadDim)
constexpr float kNothing = -std::numeric_limits<float>::infinity();

static_assert(kTileQueries % kWidth == 0);

// How many of `left` queries to take at once, at most `most`: about equal shares, since a single
// query has too few sums to hide their latency.
HWY_INLINE int share_of(int left, int most) {
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

// A query that has seen nothing.
inline void clear(const AttentionState& state, int queries) {
  std::fill_n(state.out, queries * kHeadDim, 0.0f);
  std::fill_n(state.greatest, queries, kNothing);
  std::fill_n(state.sum, queries, 0.0f);
}

// Queries see ever more positions of a block, so those that see some are the last ones:
// [first(), queries()).
class TileAttention {
 public:
  TileAttention(const QueryTile& tile, AttentionScratch& scratch)
      : scratch_(scratch), heads_(tile.heads), n_(tile.queries()) {
    for (int q = 0; q < n_; ++q) {
      queries_[q] = tile.first + q / heads_ * tile.stride + q % heads_ * kHeadDim;
    }
  }

  // `seen`: positions of the block that the tile's first position sees, as in attend_run.
  void begin_block(int seen) {
    seen_ = seen;
    first_ = std::max(0, 1 - seen) * heads_;
  }
  int first() const { return first_; }
  int queries() const { return n_; }

  // Not yet divided by sqrt(kHeadDim): [queries()][kBlockPositions] once scored, then weights.
  float* scores_of(int q) { return scratch_.scores + q * kBlockPositions; }
  // exp(greatest before the block - greatest with it), once weighed.
  const float* factors() const { return scratch_.factors; }

  template <class T>
  void score_rows(const T* keys, const std::byte* fetch) {
    turn_keys(keys, scratch_.keys);
    for (int q = first_, share; q < n_; q += share) {
      share = share_of(n_ - q, kScoreQueries);
      score_share<kScoreQueries>(share, queries_ + q, scratch_.keys, scores_of(q),
                                 q == first_ ? fetch : nullptr);
    }
  }

  // Scores become weights, which count from the greatest score so far.
  void weigh(const AttentionState& state) {
    for (int q = first_; q < n_; ++q) scale_and_compare(state, q);
    find_factors(state);
    for (int q = first_; q < n_; ++q) weigh(state, q);
  }

  template <class T>
  void add_rows(const AttentionState& state, const T* values, const std::byte* fetch) {
    // Widening once for all is worth it when more than one share of queries reads the values.
    constexpr bool kStoredAsRead = std::is_same_v<T, std::uint16_t>;
    if (kStoredAsRead && n_ - first_ <= 2 * kValueQueries) {
      add_weighted(state, values, fetch);
    } else {
      order_values(values, scratch_.values);
      add_weighted(state, scratch_.values, fetch);
    }
  }

 private:
  static constexpr float kOne[kValueQueries] = {1};  // the only one that is read

  int seen_by(int q) const { return std::clamp(seen_ + q / heads_, 0, kBlockPositions); }

  // What lies past the last position that a query sees may hold anything.
  void scale_and_compare(const AttentionState& state, int q) {
    const Tag d;
    const int seen = seen_by(q);
    const Vec nothing = hn::Set(d, kNothing);
    Vec greatest = hn::Set(d, state.greatest[q]);
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

  void find_factors(const AttentionState& state) {
    const Tag d;
    for (int q = first_ / kWidth * kWidth; q < n_; q += kWidth) {
      const Vec before = hn::LoadU(d, state.greatest + q);
      const Vec now = hn::Load(d, scratch_.greatest + q);
      hn::Store(math::exp(hn::Sub(before, now)), d, scratch_.factors + q);
    }
  }

  void weigh(const AttentionState& state, int q) {
    const Tag d;
    const Vec greatest = hn::Set(d, scratch_.greatest[q]);
    float* scores = scores_of(q);
    Vec weights[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = math::exp(hn::Sub(hn::Load(d, scores + v * kWidth), greatest));
      hn::Store(weights[v], d, scores + v * kWidth);
    }
    state.sum[q] = state.sum[q] * scratch_.factors[q] + fold(weights);
    state.greatest[q] = scratch_.greatest[q];
  }

  // A share of queries adds the positions that all of them see together, the rest each on its own.
  template <class V>
  void add_weighted(const AttentionState& state, const V* values, const std::byte* fetch) {
    for (int q = first_, share; q < n_; q += share) {
      share = share_of(n_ - q, kValueQueries);
      const int common = seen_by(q);
      add_values_share<kValueQueries>(share, scores_of(q), scratch_.factors + q, values, 0, common,
                                      state.out + q * kHeadDim, fetch);
      fetch = nullptr;
      for (int other = q + 1; other < q + share; ++other) {
        const int end = seen_by(other);
        if (end == common) continue;
        add_values<1>(scores_of(other), kOne, values, common, end, state.out + other * kHeadDim,
                      nullptr);
      }
    }
  }

  AttentionScratch& scratch_;
  const int heads_;
  const int n_;
  int seen_ = 0;
  int first_ = 0;
  const float* queries_[kTileQueries];
};

}  // namespace
}  // namespace kipp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
