// The heads of qkv [query heads | 8 key heads | 8 value heads], one workgroup for a row and a head:
// queries and keys get their RMSNorm and rotation (pairs i, i + 64); queries go back, keys and
// values into the cache as BF16, rounded to nearest even. Thread i has dimensions i and i + 64.
@group(0) @binding(1) var<storage, read> rope: array<f32>;   // [position][64 cos, 64 sin]
@group(0) @binding(2) var<storage, read> q_norm: array<f32>;
@group(0) @binding(3) var<storage, read> k_norm: array<f32>;
@group(0) @binding(4) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(5) var<storage, read_write> cache: array<u32>;  // [block][k, v][head][32][64]

var<workgroup> head: array<f32, 128>;
var<workgroup> squares: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = step[kRowsAt] + group.x * 2u;
  let place = step[row];      // block * 32 + position in it
  let position = step[row + 1u];
  let at = group.x * 4u * kQkvQuads + group.y * 128u;
  var pair = vec2<f32>(qkv[at + thread], qkv[at + 64u + thread]);

  squares[thread] = fma(pair.y, pair.y, pair.x * pair.x);
  workgroupBarrier();
  for (var half = 32u; half > 0u; half /= 2u) {
    if (thread < half) { squares[thread] += squares[thread + half]; }
    workgroupBarrier();
  }
  let mean = squares[0] * (1.0 / 128.0);
  if (group.y < kQueryHeads) {
    let weight = vec2<f32>(q_norm[thread], q_norm[64u + thread]);
    pair = rotated(pair, mean, weight, position, thread);
    qkv[at + thread] = pair.x;
    qkv[at + 64u + thread] = pair.y;
    return;
  }
  if (group.y < kQueryHeads + kKvHeads) {
    let weight = vec2<f32>(k_norm[thread], k_norm[64u + thread]);
    pair = rotated(pair, mean, weight, position, thread);
  }
  head[thread] = pair.x;
  head[64u + thread] = pair.y;
  workgroupBarrier();
  let stored = group.y - kQueryHeads;  // keys, then values
  let block = place / 32u * 2u * kKvHeads + stored;
  cache[(block * 32u + place % 32u) * 64u + thread] =
      bf16_of(head[2u * thread]) | (bf16_of(head[2u * thread + 1u]) << 16u);
}
