// The whole of Qwen3, once for every device. The ops are as coarse as a fused kernel
// (backend/ops_concept.h says what each does), so that a device that enqueues work is not slowed by
// this text and one that computes at once is not obscured by it. `tap` names the intermediates that
// tests compare layer by layer with tools/oracle.py, which uses the same names; it costs nothing
// where nobody listens.
#pragma once

#include "model/step_plan.h"
#include "model/weights.h"

namespace kipp {

inline constexpr int kNoLayer = -1;

template <class Ops>
void forward(Ops& ops, const Qwen3Weights<typename Ops::Weight>& w, const StepPlan& step) {
  auto& [x, h, qkv, ctx, gate_up, act, last, logits] = ops.begin_step(step);
  ops.embed(x, w.embed, step.tokens);
  ops.tap("embed", kNoLayer, x);
  for (int l = 0; const auto& layer : w.layers) {
    ops.rms_norm(h, x, layer.attn_norm);
    ops.tap("attn_norm", l, h);
    ops.matmul(qkv, h, layer.qkv);
    ops.tap("qkv", l, qkv);
    ops.qk_norm_rope(qkv, layer.q_norm, layer.k_norm);
    ops.tap("qkv_rope", l, qkv);
    ops.kv_append(l, qkv);
    ops.attend(l, ctx, qkv);
    ops.tap("attn", l, ctx);
    ops.matmul_add(x, ctx, layer.attn_out);
    ops.tap("attn_residual", l, x);
    ops.rms_norm(h, x, layer.mlp_norm);
    ops.tap("mlp_norm", l, h);
    ops.matmul(gate_up, h, layer.gate_up);
    ops.tap("gate_up", l, gate_up);
    ops.silu_mul(act, gate_up);
    ops.tap("mlp_act", l, act);
    ops.matmul_add(x, act, layer.down);
    ops.tap("mlp_residual", l, x);
    ++l;
  }
  ops.take_rows(last, x, step.logit_rows);
  ops.rms_norm(last, last, w.final_norm);
  ops.tap("final_norm", kNoLayer, last);
  ops.matmul(logits, last, w.lm_head);
}

}  // namespace kipp
