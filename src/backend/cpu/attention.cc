// The attention kernels, compiled once per CPU target; matmul_kernels.cc says which are left out
// and why.
#include "backend/cpu/attention.h"

#include <cstdint>

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention.cc"
#include <hwy/foreach_target.h>
// After it, so that the file is read once per target.
#include "backend/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kipp::cpu::HWY_NAMESPACE {
namespace {

// A run of positions for one tile.
template <class T>
void attend_rows(const AttentionState& state, const QueryTile& tile, std::span<const KvHead> blocks,
                 int seen, const KvHead& ahead, AttentionScratch& scratch) {
  clear(state, tile.queries());
  TileAttention work(tile, scratch);
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const KvHead& next = b + 1 < blocks.size() ? blocks[b + 1] : ahead;
    work.begin_block(seen - static_cast<int>(b) * kBlockPositions);
    work.score_rows(reinterpret_cast<const T*>(blocks[b].keys), next.keys);
    work.weigh(state);
    work.add_rows(state, reinterpret_cast<const T*>(blocks[b].values), next.values);
  }
}

void attend_run_on_target(const AttentionState& state, const QueryTile& tile, KvStore store,
                          std::span<const KvHead> blocks, int seen, const KvHead& ahead,
                          AttentionScratch& scratch) {
  if (store == KvStore::bf16) {
    attend_rows<std::uint16_t>(state, tile, blocks, seen, ahead, scratch);
  } else {
    attend_rows<float>(state, tile, blocks, seen, ahead, scratch);
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
