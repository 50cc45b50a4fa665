#include "backend/cpu/attention_plan.h"

#include <algorithm>
#include <cassert>

namespace kipp::cpu {

namespace {

// Rows whose runs can be kept apart at the full depth of the cache, and more at less: enough for
// every thread of a large machine, since steps of more rows have tiles enough to share.
constexpr int kSplitRows = 8;
// A part should be no more than this share of a thread's work, or the others wait for it.
constexpr int kPartsPerThread = 4;
// Reading a key and its value and turning the key costs about what three queries cost to use them
// (Zen 4, 2026-11-30: 2.7 us a run of 256 positions, and 0.9 to 1.3 us for each query).
constexpr std::int64_t kReadCost = 3;

// For these memory is waited for rather than arithmetic.
constexpr int kFewQueries = 8;

constexpr std::size_t kLineFloats = 16;

constexpr std::size_t state_floats_of(int queries) {
  const auto n = static_cast<std::size_t>(queries);
  return n * kHeadDim + (2 * n + kLineFloats - 1) / kLineFloats * kLineFloats;
}

}  // namespace

std::size_t AttentionPlan::bytes_needed(const Limits& limits) {
  return static_cast<std::size_t>(kSplitRows) * static_cast<std::size_t>(runs_for(limits.cached)) *
         kKvHeads * static_cast<std::size_t>(limits.chains) *
         state_floats_of(limits.query_heads_per_kv_head) * sizeof(float);
}

Result<AttentionPlan> AttentionPlan::create(const Limits& limits) {
  assert(limits.query_heads_per_kv_head <= kTileQueries);
  AttentionPlan plan(limits);
  const std::size_t bytes = bytes_needed(limits);
  KIPP_TRY_ASSIGN(states, HugeBuffer::create(bytes));
  plan.states_ = std::move(states);
  const auto rows = static_cast<std::size_t>(limits.max_step_tokens);
  const std::size_t split_parts = bytes / (state_floats_of(limits.query_heads_per_kv_head) *
                                           sizeof(float) * static_cast<std::size_t>(limits.chains));
  plan.tiles_.reserve(rows);
  plan.parts_.reserve(rows * kKvHeads + split_parts);
  plan.joins_.reserve(split_parts);
  plan.share_begin_.resize(static_cast<std::size_t>(limits.threads) + 1);
  return plan;
}

void AttentionPlan::begin_step(const StepPlan& step) {
  cut_into_tiles(step);
  cut_into_parts();
  share_parts();
}

void AttentionPlan::cut_into_tiles(const StepPlan& step) {
  tiles_.clear();
  for (int row = 0, n; row < step.rows(); row += n) {
    const auto at = static_cast<std::size_t>(row);
    const int item = step.item_of_row[at];
    const int pos = step.positions[at];
    int most = kTileQueries / limits_.query_heads_per_kv_head;
    if (limits_.tiles_end_at_blocks) {
      most = std::min(most, kBlockPositions - pos % kBlockPositions);
    }
    n = 1;
    while (n < most && row + n < step.rows() &&
           step.item_of_row[static_cast<std::size_t>(row + n)] == item) {
      ++n;
    }
    tiles_.push_back(
        {.item = item, .row = row, .pos = pos, .positions = n, .runs = runs_for(pos + n)});
  }
}

std::int64_t AttentionPlan::cost(const AttentionTile& tile, int run) const {
  const int end = tile.pos + tile.positions;
  const int positions =
      run == AttentionPart::kAllRuns ? end : std::min(end - run * kRunPositions, kRunPositions);
  return static_cast<std::int64_t>(positions) *
         (kReadCost + tile.positions * limits_.query_heads_per_kv_head);
}

std::size_t AttentionPlan::state_floats(const AttentionTile& tile) const {
  return state_floats_of(tile.positions * limits_.query_heads_per_kv_head);
}

void AttentionPlan::cut_into_parts() {
  constexpr int kAllRuns = AttentionPart::kAllRuns;
  std::int64_t total = 0;
  for (const AttentionTile& tile : tiles_) total += kKvHeads * cost(tile, kAllRuns);
  const std::int64_t large = total / (kPartsPerThread * limits_.threads);
  std::size_t states = 0;
  parts_.clear();
  joins_.clear();
  for (int t = 0; t < static_cast<int>(tiles_.size()); ++t) {
    AttentionTile& tile = tiles_[static_cast<std::size_t>(t)];
    const std::size_t wanted = state_floats(tile) * kKvHeads * static_cast<std::size_t>(tile.runs) *
                               static_cast<std::size_t>(limits_.chains);
    const bool split = tile.runs > 1 && wants_split(tile, large) &&
                       (states + wanted) * sizeof(float) <= states_.bytes().size();
    if (split) {
      tile.states = static_cast<std::ptrdiff_t>(states);
      states += wanted;
    }
    const int runs = split ? tile.runs : 1;
    for (int i = 0; i < runs * kKvHeads; ++i) {
      const int g = limits_.runs_before_heads ? i % kKvHeads : i / runs;
      const int run = limits_.runs_before_heads ? i / kKvHeads : i % runs;
      parts_.push_back({.tile = t, .kv_head = g, .run = split ? run : kAllRuns});
    }
    for (int g = 0; split && g < kKvHeads; ++g) {
      joins_.push_back({.tile = t, .kv_head = g, .run = kAllRuns});
    }
  }
}

bool AttentionPlan::wants_split(const AttentionTile& tile, std::int64_t large) const {
  if (limits_.runs_before_heads &&
      tile.positions * limits_.query_heads_per_kv_head <= kFewQueries) {
    return true;
  }
  return limits_.threads > 1 && cost(tile, AttentionPart::kAllRuns) > large;
}

// Consecutive parts of about the same cost for each thread.
void AttentionPlan::share_parts() {
  const auto cost_of = [&](const AttentionPart& part) { return cost(tile(part), part.run); };
  std::int64_t total = 0;
  for (const AttentionPart& part : parts_) total += cost_of(part);
  const int threads = limits_.threads;
  std::int64_t before = 0;
  int thread = 0;
  for (int p = 0; p < static_cast<int>(parts_.size()); ++p) {
    // A part belongs to the thread in whose share its middle lies.
    const std::int64_t own = cost_of(parts_[static_cast<std::size_t>(p)]);
    const std::int64_t middle = before + own / 2;
    while (middle * threads >= total * thread) share_begin_[static_cast<std::size_t>(thread++)] = p;
    before += own;
  }
  while (thread <= threads) {
    share_begin_[static_cast<std::size_t>(thread++)] = static_cast<int>(parts_.size());
  }
}

AttentionState AttentionPlan::state_of_run(const AttentionTile& tile, int kv_head, int run,
                                           int chain) {
  const auto index = static_cast<std::size_t>((kv_head * tile.runs + run) * limits_.chains + chain);
  float* at =
      reinterpret_cast<float*>(states_.bytes().data()) + tile.states + state_floats(tile) * index;
  const int queries = tile.positions * limits_.query_heads_per_kv_head;
  float* greatest = at + queries * kHeadDim;
  return {.out = at, .greatest = greatest, .sum = greatest + queries};
}

}  // namespace kipp::cpu
