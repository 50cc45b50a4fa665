// y[i] = x / sqrt(mean(x^2) + 1e-6) * norm, where x is row i, or row rows[i] with `gather`. One
// workgroup for each row of y. 128 threads sum the squares of every 128th four columns, then the
// sums are folded in halves.
struct Shape {
  cols: u32,  // a multiple of 4
  gather: u32,
}

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> norm: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;

var<workgroup> sums: array<f32, 128>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  var row = group.x;
  if (shape.gather == 1u) { row = rows[row]; }
  let quads = shape.cols / 4u;
  let source = row * quads;
  var sum = 0.0;
  for (var i = thread; i < quads; i += 128u) {
    let v = x[source + i];
    sum = fma(v.w, v.w, fma(v.z, v.z, fma(v.y, v.y, fma(v.x, v.x, sum))));
  }
  sums[thread] = sum;
  workgroupBarrier();
  for (var half = 64u; half > 0u; half /= 2u) {
    if (thread < half) { sums[thread] += sums[thread + half]; }
    workgroupBarrier();
  }
  let inverse = 1.0 / sqrt(sums[0] / f32(shape.cols) + 1e-6);
  let to = group.x * quads;
  for (var i = thread; i < quads; i += 128u) {
    y[to + i] = x[source + i] * inverse * norm[i];
  }
}
