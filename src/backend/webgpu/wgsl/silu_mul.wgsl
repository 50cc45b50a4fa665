// act = silu(gate) * up of rows [gate | up], one thread for four values.
@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> gate_up: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> act: array<vec4<f32>>;

struct Shape {
  cols: u32,  // of act, a multiple of 4
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let quads = shape.cols / 4u;
  if (id.x >= quads) { return; }
  let gate = gate_up[id.y * 2u * quads + id.x];
  let up = gate_up[(id.y * 2u + 1u) * quads + id.x];
  // For a gate below -88 the divisor is infinite and the product a zero, which is its value.
  act[id.y * quads + id.x] = gate / (1.0 + exp(-gate)) * up;
}
