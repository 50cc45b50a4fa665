// What the CUDA backend enqueues: one function per op of model/forward.h, without any CUDA header,
// so that the host side is plain C++. The same declarations stand before two builds of the same
// sources: nvcc's, for a GPU, and a C++ compiler's, which runs every thread of a launch on the CPU
// (device_code.h) and serves the tests. Nothing of this has run on a GPU yet.
//
// Conventions
//   Pointers are device memory, 16-byte aligned, owned by the caller, and stay alive and unchanged
//   until the stream has passed the launch. A launch returns at once with a CUDA error code
//   (0: enqueued; 1, cudaErrorInvalidValue, and nothing enqueued: shapes that do not fit together).
//   Launches of one stream may overlap (device_code.h): each waits for what it reads, but weights
//   may be read before earlier launches have ended, so packing must be over before a step is
//   enqueued. Every op is a pure function of its rows: a row of the output has the same bits
//   whatever other rows are in the step, at which index it stands and how many there are, on the
//   same device and with the same `terms`. No op uses an atomic whose order could change a result.
//
// Activations
//   A row of `cols` activations takes 4 * cols bytes in one of two forms:
//     F32    cols floats;
//     split  cols BF16 values hi = bf16(v), then cols BF16 values lo = bf16(v - hi), which together
//            carry 16 bits of significand: what the tensor cores multiply with.
//   Both have the same size, so an op may turn one into the other in place, row by row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "model/scheme.h"

namespace kipp::cuda {

// A cudaStream_t under a name that needs no CUDA header; the emulation runs a launch at once and
// ignores it.
struct StreamObject;
using Stream = StreamObject*;

// A cudaError_t: 0 when the launch was enqueued.
using LaunchCode = int;

struct F32Rows {
  float* data = nullptr;  // [rows, cols]
  int rows = 0;
  int cols = 0;
};
struct SplitRows {
  std::uint16_t* data = nullptr;  // [rows, hi and lo, cols] BF16
  int rows = 0;
  int cols = 0;
};

// A matrix in the order the kernels read (weight_layout.h): tiles of 16 rows by 32 columns, a row
// of tiles after the other. `weights` and `scales` have packed_weight_bytes() and
// packed_scale_bytes().
struct DeviceMatrix {
  std::uint8_t* weights = nullptr;
  std::uint8_t* scales = nullptr;  // null for bf16
  Scheme scheme = Scheme::bf16;
  int rows = 0;  // outputs; any number: the last tile is filled up with zeros
  int cols = 0;  // inputs, a multiple of kQuantBlock
};

std::size_t packed_weight_bytes(Scheme scheme, int rows, int cols);
std::size_t packed_scale_bytes(Scheme scheme, int rows, int cols);  // 0 for bf16

// Puts `n` rows as the artifact stores them, row_bytes(scheme, cols) each and copied to device
// memory at `stored` (2-byte aligned at least), into rows first.. of `to`. Parts of a stacked
// matrix are packed one after the other, in pieces of any size. Rows that nobody packs must have
// been zeroed by the caller (a memset of both buffers before the first piece).
LaunchCode pack_rows(Stream stream, const DeviceMatrix& to, int first, int n, const void* stored);

// The cache of all layers: block b's bytes begin at data + b * block_bytes, laid out as
// backend/paged_kv.h says: [layer][k, v][kv_head][position][head_dim] BF16.
struct DeviceKv {
  std::uint16_t* data = nullptr;
  std::size_t block_elements = 0;  // kv_block_bytes(config, 2) / 2
};

// Positions that have one softmax state of their own. States are merged in ascending order, so a
// context may be cut between any two runs without changing a bit. One warp decodes a run.
inline constexpr int kRunPositions = 128;

// Consecutive rows of one item against some runs of its context; one block of threads per task and
// KV head (attention_plan.h says how a step is cut).
struct AttendTask {
  int row = 0;     // first row of the step
  int tokens = 0;  // rows
  int run_begin = 0;
  int run_end = 0;
  int state = -1;  // -1: all runs are here and ctx is written; else the first state slot, see below
};

// Rows whose runs went to several tasks: slot state + token * runs + run holds, per query head,
// kHeadDim weighted values, the greatest score and the sum of weights.
struct MergeTask {
  int row = 0;
  int tokens = 0;
  int runs = 0;
  int state = 0;
};

// The tables of a step in device memory, uploaded once per step (model/step_plan.h says what they
// hold) and read by every layer.
struct DeviceStep {
  const Token* tokens = nullptr;      // [rows]
  const int* positions = nullptr;     // [rows]
  const int* item_of_row = nullptr;   // [rows]
  const int* logit_rows = nullptr;    // [n_logit_rows]
  const BlockId* blocks = nullptr;    // item i's: blocks[block_begin[i] .. block_begin[i + 1])
  const int* block_begin = nullptr;   // [items + 1]
  const AttendTask* tasks = nullptr;  // [n_tasks], of plan_attention()
  const MergeTask* merges = nullptr;  // [n_merges]
  int rows = 0;
  int n_logit_rows = 0;
  int n_tasks = 0;
  int wide_tasks = 0;  // the first of them: more than 16 rows times heads of a KV head
  int n_merges = 0;
};

struct Scratch {
  void* data = nullptr;  // contents do not matter before or after an op
  std::size_t bytes = 0;
};

// out[r] = row tokens[r] of the packed BF16 table. tokens: [out.rows].
LaunchCode embed(Stream stream, F32Rows out, const DeviceMatrix& table, const Token* tokens);

// out[r] = in[r] / sqrt(mean(in[r]^2) + kRmsEps) * weight, split. in.data and out.data may be the
// same memory. weight: [cols]. cols: a multiple of 4, at most 8192.
LaunchCode rms_norm(Stream stream, SplitRows out, F32Rows in, const float* weight);

enum class Write : std::uint8_t { set, add };

// out[r] = w in[r], or out[r] += w in[r]. in.cols == w.cols, out.cols == w.rows, in.rows ==
// out.rows. `terms` of the inputs are multiplied: 2 is near FP32 (relative error 2^-17 of a
// product), 1 is what BF16 inputs give at half the tensor work; results for 1 and 2 differ in bits.
// Any number of rows, including 0. `scratch` has at least matmul_scratch_bytes(out.rows, out.cols).
LaunchCode matmul(Stream stream, F32Rows out, SplitRows in, const DeviceMatrix& w, Write write,
                  int terms, Scratch scratch);
std::size_t matmul_scratch_bytes(int rows, int out_cols);

// For each row of qkv = [queries | keys | values]: RMSNorm of every query and key head, rotation by
// the row's position, queries back in place (F32), keys and values rounded to BF16 into their block
// of `kv`. rotations: [positions, cos and sin, kHeadDim / 2] for all positions the cache can hold
// (model/rope.h), built once at load. q_norm, k_norm: [kHeadDim]. The keys in qkv are left as they
// were.
LaunchCode qk_norm_rope_append(Stream stream, F32Rows qkv, const DeviceKv& kv, int layer,
                               const float* q_norm, const float* k_norm, const float* rotations,
                               const DeviceStep& step);

// ctx[r] = causal attention of row r's queries over positions [0, its own], split. qkv as
// qk_norm_rope_append left it. ctx.cols = query_heads * kHeadDim; query_heads is a multiple of
// kKvHeads, at most 16 * kKvHeads. Every position up to the rows' own must have been appended.
// scratch: attend_scratch_bytes() of the state slots the step's plan uses.
LaunchCode attend(Stream stream, SplitRows ctx, F32Rows qkv, const DeviceKv& kv, int layer,
                  const DeviceStep& step, int terms, Scratch scratch);
std::size_t attend_scratch_bytes(int state_slots, int query_heads);

// out[r] = silu(gate) * up of in[r] = [gate | up], split. in.cols == 2 * out.cols, out.cols a
// multiple of 4.
LaunchCode silu_mul(Stream stream, SplitRows out, F32Rows in);

// out[i] = in[rows[i]]. rows: [out.rows]. cols: a multiple of 4.
LaunchCode take_rows(Stream stream, F32Rows out, F32Rows in, const int* rows);

// best[r] = the least index among the greatest of in[r][0 .. limit); a NaN is never chosen. limit
// is kNamedTokens for logits. best: [in.rows].
LaunchCode argmax(Stream stream, int* best, F32Rows in, int limit);

// The k greatest of in[r][0 .. limit) in descending order, equal ones by ascending index, NaNs
// last: ids and values are [in.rows, k]. k: 1 .. kTopKLimit.
inline constexpr int kTopKLimit = 64;
LaunchCode top_k(Stream stream, int* ids, float* values, int k, F32Rows in, int limit);

}  // namespace kipp::cuda
