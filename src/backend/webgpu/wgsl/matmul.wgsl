// y = W x or y += W x, x and y [row][column]. The same bits however many rows there are: with the
// products of a chunk of 64 columns one chain of fused multiply-adds in ascending order, and the
// chunks' sums added in ascending order. matmul_row, matmul_rows and matmul_tile keep to it.
struct Shape {
  outs: u32,       // rows of W
  cols: u32,       // columns of W, a multiple of 32
  add: u32,        // 1: y += W x
  of_logits: u32,  // 1: x and y have a row for each row of logits, not for each token
  normed: u32,     // 1: a product is multiplied by its row's 1 / sqrt(mean(x^2) + 1e-6) at the end
}

@group(0) @binding(0) var<uniform> step: Step;
@group(0) @binding(1) var<uniform> shape: Shape;
@group(0) @binding(2) var<storage, read> codes: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> scales: array<u32>;
@group(0) @binding(4) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;

fn rows_of_step() -> u32 {
  return select(step.rows, step.logit_rows, shape.of_logits == 1u);
}

fn store(row: u32, out: u32, value: f32) {
  let at = row * shape.outs + out;
  if (shape.add == 1u) {
    y[at] += value;
  } else {
    y[at] = value;
  }
}
