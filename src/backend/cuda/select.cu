// What sampling needs of a row of logits: the greatest, or the k greatest in order, so that 152 k
// floats need not cross the bus. One block per row; a row of 151,669 logits is 607 KB, which one
// multiprocessor reads in about 10 us (argmax once, top_k five times from L2). Nothing of this has
// run on a GPU yet; the emulated build of this file is tested.
#include "backend/cuda/device_code.h"

namespace kipp::cuda {

namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kBins = 256;

// Order-preserving bits of a float; a NaN is below everything, -0 is 0.
KIPP_DEVICE std::uint32_t key_of(float value) {
  if (!(value == value)) return 0;
  const std::uint32_t bits = float_to_bits(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
KIPP_DEVICE float value_of(std::uint32_t key) {
  return bits_to_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

struct Candidate {
  std::uint32_t key;
  int index;
};
KIPP_DEVICE bool before(const Candidate& a, const Candidate& b) {
  return a.key != b.key ? a.key > b.key : a.index < b.index;
}

struct ArgmaxShared {
  Candidate best[kWarps];
};

KIPP_DEVICE Candidate best_of_warp(Candidate mine) {
  KIPP_UNROLL
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    Candidate other;
    other.key = static_cast<std::uint32_t>(shuffle_xor(static_cast<int>(mine.key), mask));
    other.index = shuffle_xor(mine.index, mask);
    if (before(other, mine)) mine = other;
  }
  return mine;
}

KIPP_KERNEL void argmax_kernel(int* best, F32Rows in, int limit) {
  let_next_start();
  wait_for_previous();
  auto& shared = shared_as<ArgmaxShared>();
  const float* row = in.data + at(block_x(), in.cols);
  Candidate mine{0, limit};
  for (int i = thread_index(); i < limit; i += kThreads) {
    const Candidate here{key_of(row[i]), i};
    if (here.key != 0 && before(here, mine)) mine = here;
  }
  mine = best_of_warp(mine);
  if (lane_index() == 0) shared.best[warp_index()] = mine;
  sync_block();
  if (warp_index() != 0) return;
  mine = best_of_warp(shared.best[lane_index()]);
  if (lane_index() == 0) best[block_x()] = mine.index < limit ? mine.index : 0;
}
static_assert(kWarps == kWarpSize);

struct TopKShared {
  int bins[kBins];
  int wanted;  // of those whose key begins with `prefix`
  std::uint32_t prefix;
  int above;         // keys greater than the threshold, collected so far
  int ties[kWarps];  // keys equal to it, per warp
  Candidate chosen[kTopKLimit];
};

// Finds the k-th greatest key, eight bits at a time, by counting; integer counts do not depend on
// who adds first. Then collects what is greater, in any order, and of the equal ones those of least
// index, and sorts.
KIPP_KERNEL void top_k_kernel(int* ids, float* values, int k, F32Rows in, int limit) {
  let_next_start();
  wait_for_previous();
  auto& shared = shared_as<TopKShared>();
  const float* row = in.data + at(block_x(), in.cols);
  const int thread = thread_index();
  if (thread == 0) {
    shared.wanted = k;
    shared.prefix = 0;
    shared.above = 0;
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (thread < kBins) shared.bins[thread] = 0;
    sync_block();
    const std::uint32_t prefix = shared.prefix;
    for (int i = thread; i < limit; i += kThreads) {
      const std::uint32_t key = key_of(row[i]);
      if (shift == 24 || (key >> (shift + 8)) == (prefix >> (shift + 8))) {
        add_shared(&shared.bins[(key >> shift) & 255u], 1);
      }
    }
    sync_block();
    if (thread == 0) {
      int bin = kBins - 1;
      while (bin > 0 && shared.bins[bin] < shared.wanted) shared.wanted -= shared.bins[bin--];
      shared.prefix |= static_cast<std::uint32_t>(bin) << shift;
    }
    sync_block();
  }
  const std::uint32_t threshold = shared.prefix;
  const int ties_wanted = shared.wanted;

  // Each warp a contiguous part, so that ties can be counted in the order of their indices.
  const int part = (limit + kWarps - 1) / kWarps;
  const int begin = warp_index() * part;
  const int end = begin + part < limit ? begin + part : limit;
  int ties = 0;
  for (int i = begin + lane_index(); i < end; i += kWarpSize) {
    const std::uint32_t key = key_of(row[i]);
    if (key > threshold) {
      shared.chosen[add_shared(&shared.above, 1)] = {key, i};
    } else if (key == threshold) {
      ++ties;
    }
  }
  KIPP_UNROLL
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) ties += shuffle_xor(ties, mask);
  if (lane_index() == 0) shared.ties[warp_index()] = ties;
  sync_block();
  int next_tie = 0;
  for (int w = 0; w < warp_index(); ++w) next_tie += shared.ties[w];
  for (int i = begin; ties > 0 && i < end && next_tie < ties_wanted; i += kWarpSize) {
    const int mine = i + lane_index();
    const bool tie = mine < end && key_of(row[mine]) == threshold;
    const std::uint32_t all = ballot(tie);
    const int place = next_tie + bit_count(all & ((1u << lane_index()) - 1u));
    if (tie && place < ties_wanted) shared.chosen[k - ties_wanted + place] = {threshold, mine};
    next_tie += bit_count(all);
  }
  sync_block();
  if (thread >= k) return;
  const Candidate mine = shared.chosen[thread];
  int rank = 0;
  for (int other = 0; other < k; ++other) rank += before(shared.chosen[other], mine) ? 1 : 0;
  ids[block_x() * k + rank] = mine.index;
  values[block_x() * k + rank] = value_of(mine.key);
}

}  // namespace

LaunchCode argmax(Stream stream, int* best, F32Rows in, int limit) {
  if (limit <= 0 || limit > in.cols) return kInvalidShape;
  if (in.rows == 0) return kLaunched;
  return launch(argmax_kernel, Grid{in.rows, 1, 1}, kThreads, sizeof(ArgmaxShared), stream, best,
                in, limit);
}

LaunchCode top_k(Stream stream, int* ids, float* values, int k, F32Rows in, int limit) {
  if (limit <= 0 || limit > in.cols || k <= 0 || k > kTopKLimit || k > limit) return kInvalidShape;
  if (in.rows == 0) return kLaunched;
  return launch(top_k_kernel, Grid{in.rows, 1, 1}, kThreads, sizeof(TopKShared), stream, ids,
                values, k, in, limit);
}

}  // namespace kipp::cuda
