// y[i] = x * norm, where x is row i, or row rows[i] with `gather`; and inverse[i], which the product
// that follows multiplies its outputs with: 1 / sqrt(mean(x^2) + 1e-6). One workgroup for each row
// of y. matmul_row.wgsl does the same on the way, with the same bits.
struct Shape {
  cols: u32,  // a multiple of 4
  gather: u32,
}

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> norm: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> inverse: array<f32>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  var row = group.x;
  if (shape.gather == 1u) { row = rows[row]; }
  let quads = shape.cols / 4u;
  let source = row * quads;
  sum_squares(thread, source, quads);
  let to = group.x * quads;
  for (var i = thread; i < quads; i += 128u) { y[to + i] = x[source + i] * norm[i]; }
  workgroupBarrier();
  if (thread < 8u) { fold_squares(thread); }
  workgroupBarrier();
  if (thread == 0u) { inverse[group.x] = inverse_size(shape.cols); }
}
