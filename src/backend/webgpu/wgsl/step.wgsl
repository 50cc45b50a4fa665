// What all kernels know of a step. Written once per step by WebgpuOps::begin_step().
struct Step {
  rows: u32,        // tokens of the step
  logit_rows: u32,  // of them, whose logits are asked for
  first_logit_row: u32,
}
