// Causal attention over the pages of the cache, for prefill and decode alike: one warp has up to 16
// packed rows (consecutive tokens times the query heads of one KV head) against 32 positions at a
// time, on the tensor cores. Scores and weights are split into two BF16 terms (terms = 2), keys and
// values are BF16 as stored.
//
// One order, whatever the step. Positions come in chunks of 32, one block of the cache; chunks of a
// run of kRunPositions share one online softmax (o, m, d); runs are merged in ascending order. A
// chunk or run that a row may not see leaves its state unchanged, bit for bit: the greatest score
// stays, the factor is 2^0 = 1, zeros are added. So it does not matter which other rows a tile
// holds, nor whether one block of threads walks all runs or several leave their states to
// merge_kernel.
//
// narrow tasks (a decoded token, a few drafts) are blocks of one warp: 16 KB of keys and values in
//   flight per warp, 4 blocks per multiprocessor by shared memory (48 KB each), 64 KB in flight
//   where 23 KB hide the latency of memory. 8B at 32,768 positions reads 4.8 GB of cache per
//   token: 1.15 ms at 4.2 TB/s beside 3.6 ms of weights. Issue: 128 mma per chunk and warp, about
//   2,500 cycles, or 26 bytes per cycle and multiprocessor with 4 warps against 18 that memory
//   delivers.
// wide tasks (prefill) are blocks of four warps, 64 rows, that share what they read: at group 4 a
//   task is 16 tokens, and reads the context once from L2. 4 * 128 * (n^2 / 2) * 32 heads FLOP per
//   layer at n = 2,048 are 34 GFLOP, 2 terms 69: about 0.3 ms at the 250 TFLOP/s that mma.sync with
//   softmax between may reach. Predictions: nothing of this has run on a GPU yet. The emulated
//   build is tested against a double-precision loop (tests/unit/cuda_kernels_test.cc).
#include "backend/cuda/device_code.h"
#include "model/config.h"

namespace kipp::cuda {

namespace {

constexpr int kRowsOfMma = 16;
constexpr int kChunk = kBlockPositions;
constexpr int kWideWarps = 4;
// Rows of a warp's lanes read 64 bytes of each of two rows at once: strides that keep those, and
// the eight rows of an ldmatrix, in different banks.
constexpr int kRowStride = kHeadDim + 32;
constexpr int kValueStride = kHeadDim + 8;
constexpr int kStages = 2;
constexpr int kStateFloats = kHeadDim + 4;  // o, m, d, two unused: 16-byte multiples
constexpr int kMergeThreads = kHeadDim;
// 1 / sqrt(kHeadDim) * log2(e): weights are powers of two.
constexpr float kScoreScale = 0.08838834764831845f * 1.4426950408889634f;

static_assert(kRunPositions % kChunk == 0);
static_assert(kHeadDim == 128 && kChunk == 32);

struct KvChunk {
  alignas(16) std::uint16_t keys[kChunk][kRowStride];
  alignas(16) std::uint16_t values[kChunk][kValueStride];
};

template <int kWarps>
struct AttendShared {
  alignas(16) std::uint16_t queries[2][count(kWarps * kRowsOfMma)][kRowStride];  // hi, lo
  KvChunk stages[kStages];
};

struct AttendJob {
  SplitRows ctx;
  F32Rows qkv;
  DeviceKv kv;
  int layer;
  DeviceStep step;
  const AttendTask* tasks;  // of this launch
  float* states;            // [slots, query_heads, kStateFloats]
};

KIPP_DEVICE float minus_infinity() { return bits_to_float(0xff800000u); }

// A softmax over positions of a lane's two rows (group and group + 8 of the warp's 16): weighted
// values at dimensions 8 n + 2 pair .., greatest score, sum of weights.
struct RowsState {
  float o[kHeadDim / 8][4];
  float m[2];
  float d[2];
};

KIPP_DEVICE void clear(RowsState& state) {
  KIPP_UNROLL
  for (int i = 0; i < 2; ++i) {
    state.m[i] = minus_infinity();
    state.d[i] = 0.0f;
  }
  KIPP_UNROLL
  for (int n = 0; n < kHeadDim / 8; ++n) {
    KIPP_UNROLL
    for (int c = 0; c < 4; ++c) state.o[n][c] = 0.0f;
  }
}

// What brings two states to one greatest score. An empty state (m = -infinity, all else 0) gets
// factor 0 and leaves the other as it is; both are never empty, since every row sees position 0.
struct MergeFactors {
  float m, of_total, of_run;
};
KIPP_DEVICE MergeFactors merge_factors(float total_m, float run_m) {
  MergeFactors f;
  f.m = fmaxf(total_m, run_m);
  f.of_total = exp2_fast(total_m - f.m);
  f.of_run = exp2_fast(run_m - f.m);
  return f;
}
KIPP_DEVICE float merged(const MergeFactors& f, float total, float run) {
  return fma(total, f.of_total, run * f.of_run);
}

KIPP_DEVICE void merge(RowsState& total, const RowsState& run) {
  KIPP_UNROLL
  for (int i = 0; i < 2; ++i) {
    const MergeFactors f = merge_factors(total.m[i], run.m[i]);
    total.m[i] = f.m;
    total.d[i] = merged(f, total.d[i], run.d[i]);
    KIPP_UNROLL
    for (int n = 0; n < kHeadDim / 8; ++n) {
      KIPP_UNROLL
      for (int c = 0; c < 2; ++c) {
        total.o[n][2 * i + c] = merged(f, total.o[n][2 * i + c], run.o[n][2 * i + c]);
      }
    }
  }
}

// Queries of a task's rows, split; rows past the last are zero.
template <int kWarps>
KIPP_DEVICE void load_queries(AttendShared<kWarps>& shared, const AttendJob& job,
                              const AttendTask& task, int group, int kv_head) {
  constexpr int kParts = kWarps * kRowsOfMma * kHeadDim / 4;
  for (int part = thread_index(); part < kParts; part += kWarps * kWarpSize) {
    const int row = part / (kHeadDim / 4);
    const int dim = part % (kHeadDim / 4) * 4;
    Floats4 q = {};
    if (row < task.tokens * group) {
      q = load<Floats4>(job.qkv.data + at(task.row + row / group, job.qkv.cols) +
                        (kv_head * group + row % group) * kHeadDim + dim);
    }
    const SplitPair a = split_bf16(q.f[0], q.f[1]);
    const SplitPair b = split_bf16(q.f[2], q.f[3]);
    store(&shared.queries[0][row][dim], Words2{{a.hi, b.hi}});
    store(&shared.queries[1][row][dim], Words2{{a.lo, b.lo}});
  }
}

// Starts copying chunk `chunk` of the context. Positions after `last` may hold anything, so they
// come as zeros: a weight of 0 would not hide an infinity there.
template <int kWarps>
KIPP_DEVICE void start_chunk(KvChunk& stage, const std::uint16_t* keys_of_layer, const DeviceKv& kv,
                             const BlockId* table, int chunk, int last) {
  const std::uint16_t* keys =
      keys_of_layer + static_cast<std::size_t>(table[chunk]) * kv.block_elements;
  const std::uint16_t* values = keys + kKvHeads * kBlockPositions * kHeadDim;
  constexpr int kPartsOfRow = kHeadDim / 8;
  constexpr int kRowsAtOnce = kWarps * kWarpSize / kPartsOfRow;
  const int first = thread_index() / kPartsOfRow;
  const int dim = thread_index() % kPartsOfRow * 8;
  const int valid_rows = last - chunk * kChunk + 1 - first;
  keys += first * kHeadDim + dim;
  values += first * kHeadDim + dim;
  KIPP_UNROLL
  for (int i = 0; i < kChunk; i += kRowsAtOnce) {
    copy_async16(&stage.keys[first + i][dim], keys + i * kHeadDim, i < valid_rows);
    copy_async16(&stage.values[first + i][dim], values + i * kHeadDim, i < valid_rows);
  }
}

// scores = queries of this warp's rows times the chunk's keys. A lane takes eight dimensions at a
// time of either, four per instruction: any order of the dimensions is a dot product.
template <int kTerms, int kWarps>
KIPP_DEVICE void score_chunk(float (&scores)[4][4], const AttendShared<kWarps>& shared,
                             const KvChunk& chunk, int first_row, int lane) {
  KIPP_UNROLL
  for (int n = 0; n < 4; ++n) {
    KIPP_UNROLL
    for (int c = 0; c < 4; ++c) scores[n][c] = 0.0f;
  }
  KIPP_UNROLL
  for (int j = 0; j < kHeadDim / 32; ++j) {
    const int dim = j * 32 + lane % 4 * 8;
    Words4 row[count(kTerms)];
    Words4 row_8[count(kTerms)];
    KIPP_UNROLL
    for (int t = 0; t < kTerms; ++t) {
      row[t] = load<Words4>(&shared.queries[t][first_row + lane / 4][dim]);
      row_8[t] = load<Words4>(&shared.queries[t][first_row + lane / 4 + 8][dim]);
    }
    KIPP_UNROLL
    for (int n = 0; n < 4; ++n) {
      const auto keys = load<Words4>(&chunk.keys[n * 8 + lane / 4][dim]);
      KIPP_UNROLL
      for (int i = 0; i < 2; ++i) {
        KIPP_UNROLL
        for (int t = kTerms - 1; t >= 0; --t) {
          const std::uint32_t a[4] = {row[t].w[2 * i], row_8[t].w[2 * i], row[t].w[2 * i + 1],
                                      row_8[t].w[2 * i + 1]};
          mma_bf16(scores[n], a, keys.w[2 * i], keys.w[2 * i + 1]);
        }
      }
    }
  }
}

// One step of the online softmax: turns scores into weights and rescales what is held. visible[i]:
// how many positions of this chunk a lane's row i sees; none: nothing changes.
KIPP_DEVICE void weigh(float (&scores)[4][4], RowsState& state, const int (&visible)[2], int lane) {
  KIPP_UNROLL
  for (int i = 0; i < 2; ++i) {
    float most = minus_infinity();
    KIPP_UNROLL
    for (int n = 0; n < 4; ++n) {
      KIPP_UNROLL
      for (int c = 0; c < 2; ++c) {
        float& s = scores[n][2 * i + c];
        const int position = n * 8 + lane % 4 * 2 + c;
        s = position < visible[i] ? s * kScoreScale : minus_infinity();
        most = fmaxf(most, s);
      }
    }
    most = fmaxf(most, shuffle_xor(most, 1));
    most = fmaxf(most, shuffle_xor(most, 2));
    const float m = fmaxf(state.m[i], most);
    const float base = m == minus_infinity() ? 0.0f : m;
    const float factor = exp2_fast(state.m[i] - base);
    float sum = 0.0f;
    KIPP_UNROLL
    for (int n = 0; n < 4; ++n) {
      KIPP_UNROLL
      for (int c = 0; c < 2; ++c) {
        float& s = scores[n][2 * i + c];
        s = exp2_fast(s - base);
        sum += s;
      }
    }
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    state.m[i] = m;
    state.d[i] = fma(state.d[i], factor, sum);
    KIPP_UNROLL
    for (int n = 0; n < kHeadDim / 8; ++n) {
      KIPP_UNROLL
      for (int c = 0; c < 2; ++c) state.o[n][2 * i + c] *= factor;
    }
  }
}

// state.o += weights times the chunk's values. An accumulator of scores is, as two BF16 per word,
// the operand A that this product needs; values are transposed on their way out of shared memory.
template <int kTerms>
KIPP_DEVICE void add_values(RowsState& state, const float (&weights)[4][4], const KvChunk& chunk,
                            int lane) {
  KIPP_UNROLL
  for (int k = 0; k < 2; ++k) {
    std::uint32_t a[2][4];
    KIPP_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float* w = weights[2 * k + i / 2] + i % 2 * 2;
      const SplitPair pair = split_bf16(w[0], w[1]);
      a[0][i] = pair.hi;
      a[1][i] = pair.lo;
    }
    KIPP_UNROLL
    for (int n = 0; n < kHeadDim / 8; n += 2) {
      const int position = k * 16 + lane / 8 % 2 * 8 + lane % 8;
      const int dim = (n + lane / 16) * 8;
      const Words4 v = ldmatrix_x4_trans(&chunk.values[position][dim]);
      KIPP_UNROLL
      for (int t = kTerms - 1; t >= 0; --t) {
        mma_bf16(state.o[n], a[t], v.w[0], v.w[1]);
        mma_bf16(state.o[n + 1], a[t], v.w[2], v.w[3]);
      }
    }
  }
}

// Where a lane's row i belongs.
struct RowPlace {
  bool valid;
  int token;  // of the task
  int head;
};

KIPP_DEVICE void write_context(const AttendJob& job, const AttendTask& task, const RowPlace& place,
                               const RowsState& state, int i, int lane) {
  std::uint16_t* to =
      job.ctx.data + at(task.row + place.token, 2 * job.ctx.cols) + place.head * kHeadDim;
  KIPP_UNROLL
  for (int n = 0; n < kHeadDim / 8; ++n) {
    const SplitPair pair =
        split_bf16(state.o[n][2 * i] / state.d[i], state.o[n][2 * i + 1] / state.d[i]);
    store(to + n * 8 + lane % 4 * 2, pair.hi);
    store(to + job.ctx.cols + n * 8 + lane % 4 * 2, pair.lo);
  }
}

KIPP_DEVICE void write_state(float* to, const RowsState& state, int i, int lane) {
  KIPP_UNROLL
  for (int n = 0; n < kHeadDim / 8; ++n) {
    store(to + n * 8 + lane % 4 * 2, Floats2{{state.o[n][2 * i], state.o[n][2 * i + 1]}});
  }
  if (lane % 4 == 0) store(to + kHeadDim, Floats2{{state.m[i], state.d[i]}});
}

template <int kWarps, int kTerms>
KIPP_KERNEL void KIPP_LAUNCH_BOUNDS(kWarps* kWarpSize, 2) attend_kernel(AttendJob job) {
  let_next_start();
  wait_for_previous();
  auto& shared = shared_as<AttendShared<kWarps>>();
  const AttendTask task = job.tasks[block_x()];
  const int kv_head = block_y();
  const int query_heads = job.ctx.cols / kHeadDim;
  const int group = query_heads / kKvHeads;
  const int lane = lane_index();
  const int first_row = warp_index() * kRowsOfMma;
  const int first_position = job.step.positions[task.row];
  const int last_position = first_position + task.tokens - 1;
  const BlockId* table = job.step.blocks + job.step.block_begin[job.step.item_of_row[task.row]];
  const std::uint16_t* keys =
      job.kv.data + at(job.layer * 2 * kKvHeads + kv_head, kBlockPositions * kHeadDim);

  constexpr int kChunksOfRun = kRunPositions / kChunk;
  const int begin = task.run_begin * kChunksOfRun;
  const int seen = last_position / kChunk + 1;
  const int end = task.run_end * kChunksOfRun < seen ? task.run_end * kChunksOfRun : seen;
  load_queries<kWarps>(shared, job, task, group, kv_head);
  start_chunk<kWarps>(shared.stages[0], keys, job.kv, table, begin, last_position);
  commit_copies();

  RowPlace places[2];
  KIPP_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int row = first_row + lane / 4 + i * 8;
    places[i] = {row < task.tokens * group, row / group, kv_head * group + row % group};
  }
  RowsState total;
  RowsState run;
  clear(total);
  clear(run);
  for (int chunk = begin; chunk < end; ++chunk) {
    if (chunk + 1 < end) {
      start_chunk<kWarps>(shared.stages[(chunk + 1 - begin) % kStages], keys, job.kv, table,
                          chunk + 1, last_position);
    }
    commit_copies();
    wait_copies<1>();
    sync_block();
    const KvChunk& stage = shared.stages[(chunk - begin) % kStages];
    int visible[2];
    KIPP_UNROLL
    for (int i = 0; i < 2; ++i) {
      visible[i] = places[i].valid ? first_position + places[i].token - chunk * kChunk + 1 : 0;
    }
    float scores[4][4];
    score_chunk<kTerms>(scores, shared, stage, first_row, lane);
    weigh(scores, run, visible, lane);
    add_values<kTerms>(run, scores, stage, lane);
    if ((chunk + 1) % kChunksOfRun == 0 || chunk + 1 == end) {
      if (task.state < 0) {
        merge(total, run);
      } else {
        KIPP_UNROLL
        for (int i = 0; i < 2; ++i) {
          if (!places[i].valid) continue;
          const int runs = last_position / kRunPositions + 1;
          const int slot = task.state + places[i].token * runs + chunk / kChunksOfRun;
          write_state(job.states + at(slot * query_heads + places[i].head, kStateFloats), run, i,
                      lane);
        }
      }
      clear(run);
    }
    sync_block();  // all have read this stage before the next copies overwrite it
  }
  wait_copies<0>();
  if (task.state >= 0) return;
  KIPP_UNROLL
  for (int i = 0; i < 2; ++i) {
    if (places[i].valid) write_context(job, task, places[i], total, i, lane);
  }
}

// One thread per dimension of one head; the rows of a task one after the other.
KIPP_KERNEL void merge_kernel(AttendJob job) {
  let_next_start();
  wait_for_previous();
  const MergeTask task = job.step.merges[block_x()];
  const int head = block_y();
  const int query_heads = job.ctx.cols / kHeadDim;
  const int dim = thread_index();
  for (int token = 0; token < task.tokens; ++token) {
    float o = 0.0f;
    float m = minus_infinity();
    float d = 0.0f;
    for (int run = 0; run < task.runs; ++run) {
      const int slot = task.state + token * task.runs + run;
      const float* state = job.states + at(slot * query_heads + head, kStateFloats);
      const MergeFactors f = merge_factors(m, state[kHeadDim]);
      m = f.m;
      d = merged(f, d, state[kHeadDim + 1]);
      o = merged(f, o, state[dim]);
    }
    const SplitPair pair = split_bf16(o / d, 0.0f);
    std::uint16_t* to =
        job.ctx.data + at(task.row + token, 2 * job.ctx.cols) + head * kHeadDim + dim;
    to[0] = static_cast<std::uint16_t>(pair.hi & 0xffffu);
    to[job.ctx.cols] = static_cast<std::uint16_t>(pair.lo & 0xffffu);
  }
}

template <int kWarps>
LaunchCode launch_attend(Stream stream, const AttendJob& job, int tasks, int terms) {
  if (tasks == 0) return kLaunched;
  const auto kernel = terms == 2 ? attend_kernel<kWarps, 2> : attend_kernel<kWarps, 1>;
  return launch(kernel, Grid{tasks, kKvHeads, 1}, kWarps * kWarpSize, sizeof(AttendShared<kWarps>),
                stream, job);
}

}  // namespace

std::size_t attend_scratch_bytes(int state_slots, int query_heads) {
  return at(state_slots * query_heads, kStateFloats) * sizeof(float);
}

LaunchCode attend(Stream stream, SplitRows ctx, F32Rows qkv, const DeviceKv& kv, int layer,
                  const DeviceStep& step, int terms, Scratch scratch) {
  if (ctx.cols <= 0 || ctx.cols % (kHeadDim * kKvHeads) != 0 || ctx.cols > 16 * kKvWidth ||
      qkv.cols != ctx.cols + 2 * kKvWidth || qkv.rows != step.rows || ctx.rows != step.rows ||
      step.wide_tasks > step.n_tasks || (terms != 1 && terms != 2)) {
    return kInvalidShape;
  }
  if (step.rows == 0) return kLaunched;
  AttendJob job{ctx, qkv, kv, layer, step, step.tasks, static_cast<float*>(scratch.data)};
  if (const LaunchCode code = launch_attend<kWideWarps>(stream, job, step.wide_tasks, terms);
      code != kLaunched) {
    return code;
  }
  job.tasks += step.wide_tasks;
  if (const LaunchCode code = launch_attend<1>(stream, job, step.n_tasks - step.wide_tasks, terms);
      code != kLaunched || step.n_merges == 0) {
    return code;
  }
  return launch(merge_kernel, Grid{step.n_merges, ctx.cols / kHeadDim, 1}, kMergeThreads, 0, stream,
                job);
}

}  // namespace kipp::cuda
