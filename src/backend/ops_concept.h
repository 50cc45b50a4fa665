// What forward() needs of a device. Activations are [rows, cols], one row per token of the step;
// `rows` follows the step. An op may compute at once or enqueue: forward() never looks at a value.
#pragma once

#include <concepts>
#include <span>
#include <string_view>

#include "model/step_plan.h"
#include "model/weights.h"

namespace kipp {

template <class Ops>
concept Qwen3Ops = requires(Ops ops, typename Ops::Rows& out, const typename Ops::Rows& in,
                            const typename Ops::Weight& w, const MatrixView& table,
                            std::span<const float> norm, std::span<const Token> tokens,
                            std::span<const int> rows, const StepPlan& step, int layer,
                            std::string_view name) {
  // Sizes the buffers for the step and prepares what all layers share (tables, rotations). Returns
  // an aggregate {x, h, qkv, ctx, gate_up, act, last, logits} of Rows, widths as step_widths().
  ops.begin_step(step);
  // out[r] = table[tokens[r]]
  ops.embed(out, table, tokens);
  // out[r] = in[r] / sqrt(mean(in[r]^2) + kRmsEps) * norm; out and in may be the same
  ops.rms_norm(out, in, norm);
  // out[r] = w in[r]
  ops.matmul(out, in, w);
  // out[r] += w in[r]
  ops.matmul_add(out, in, w);
  // Per head of the queries and keys in [q | k | v]: RMSNorm with its own weight (the first norm is
  // the queries'), then rotation by the row's position, dimension i paired with i + kHeadDim / 2.
  ops.qk_norm_rope(out, norm, norm);
  // Stores the rows' keys and values in their blocks, rounded as the cache stores them.
  ops.kv_append(layer, in);
  // Causal attention of each row over the cached positions [0, its own], query heads in groups per
  // KV head.
  ops.attend(layer, out, in);
  // out[r] = silu(gate) * up of in[r] = [gate | up]
  ops.silu_mul(out, in);
  // out[i] = in[rows[i]]
  ops.take_rows(out, in, rows);
  // Shows a named intermediate to whoever listens; layer is kNoLayer outside the layers.
  ops.tap(name, layer, in);
};

}  // namespace kipp
