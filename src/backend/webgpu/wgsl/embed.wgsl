// x[row] = the embedding of the row's token, from the tiles that the output head reads too.
@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> table: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> tokens: array<u32>;
@group(0) @binding(3) var<storage, read_write> x: array<vec4<f32>>;

struct Shape {
  cols: u32,  // a multiple of 8
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let token = tokens[group.x];
  let pieces = shape.cols / 8u;
  for (var i = thread; i < pieces; i += 64u) {
    let bits = table[(token / 8u * pieces + i) * 8u + token % 8u];
    let to = (group.x * pieces + i) * 2u;
    x[to] = bf16x4(bits.x, bits.y);
    x[to + 1u] = bf16x4(bits.z, bits.w);
  }
}
