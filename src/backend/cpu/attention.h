// Attention over cached blocks, as kernels: the queries of a few consecutive positions of one
// sequence against one KV head, a run of positions at a time. Keys and values are read from memory
// once per run for all these queries.
//
// A query's result is a function of the query and the positions it sees. Scores are one chain of
// fused multiply-adds over the head's dimensions; per block of 32 positions the greatest score, the
// weights exp(score - greatest) and their sum (32 lanes folded in halves); values are added in
// position order, one chain of fused multiply-adds per dimension. The states of runs, which begin
// at fixed multiples of kRunPositions, are merged in ascending order. None of it depends on the
// other queries, on how many there are, on the block table, on who computes what, nor on the
// vector width where there is fused multiply-add.
#pragma once

#include <cstddef>
#include <span>

#include "backend/backend.h"
#include "model/config.h"

namespace kipp::cpu {

inline constexpr int kRunBlocks = 8;
inline constexpr int kRunPositions = kRunBlocks * kBlockPositions;
inline constexpr int kTileQueries = 64;  // their states stay in the second-level cache

constexpr int runs_for(int positions) { return (positions + kRunPositions - 1) / kRunPositions; }

// One KV head of one block: [kBlockPositions, kHeadDim] each, BF16 or F32.
struct KvHead {
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
};

// positions * heads queries of at most kTileQueries; query i is head i % heads of position i /
// heads.
struct QueryTile {
  const float* first = nullptr;  // [kHeadDim]; the heads of a position follow each other
  std::ptrdiff_t stride = 0;     // floats from one position to the next
  int positions = 0;
  int heads = 0;

  int queries() const { return positions * heads; }
};

// What a run leaves of each query: a state that merges with that of the next run. A query that sees
// nothing of the run has a sum of 0.
struct AttentionState {
  float* out = nullptr;  // [queries, kHeadDim] sum of weighted values, in the kernels' own order
  float* greatest = nullptr;  // [queries]
  float* sum = nullptr;       // [queries] of the weights exp(score - greatest)
};

// Of one thread. Lines of 64 bytes, so that threads do not share any.
struct alignas(64) AttentionScratch {
  float keys[kHeadDim * kBlockPositions];    // a block's keys, [kHeadDim, kBlockPositions]
  float values[kBlockPositions * kHeadDim];  // its values in the kernels' order
  float scores[kTileQueries * kBlockPositions];
  float greatest[kTileQueries];  // with the block at hand
  float factors[kTileQueries];   // exp(greatest before - greatest with the block)
};

// Sets `state` from a run. `blocks`: what the run holds of the sequence up to the tile's last
// position; `seen`: how many positions of the run the tile's first position sees, those before it
// and itself (each further position sees one more); 0 or less where it lies before the run.
// `ahead` is what this thread will read next: its first lines are fetched in time.
void attend_run(const AttentionState& state, const QueryTile& tile, KvStore store,
                std::span<const KvHead> blocks, int seen, const KvHead& ahead,
                AttentionScratch& scratch);

// Joins the state of the next run.
void merge_run(const AttentionState& state, const AttentionState& next, int queries);

// The weighted means, laid out as the queries are: `out` is that of query 0, positions are `stride`
// floats apart.
void finish_attention(float* out, std::ptrdiff_t stride, const AttentionState& state, int positions,
                      int heads);

}  // namespace kipp::cpu
