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

fn bf16_of(value: f32) -> u32 {
  let bits = bitcast<u32>(value);
  let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
  // A NaN stays one, whatever rounding would carry.
  return select(rounded, (bits >> 16u) | 0x40u, (bits & 0x7fffffffu) > 0x7f800000u);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = step[kRowsAt] + group.x * 2u;
  let place = step[row];      // block * 32 + position in it
  let position = step[row + 1u];
  let at = group.x * 4u * kQkvQuads + group.y * 128u;
  var low = qkv[at + thread];
  var high = qkv[at + 64u + thread];

  squares[thread] = fma(high, high, low * low);
  workgroupBarrier();
  for (var half = 32u; half > 0u; half /= 2u) {
    if (thread < half) { squares[thread] += squares[thread + half]; }
    workgroupBarrier();
  }
  let query = group.y < kQueryHeads;
  if (group.y < kQueryHeads + kKvHeads) {
    let inverse = 1.0 / sqrt(fma(squares[0], 1.0 / 128.0, 1e-6));
    let a = low * inverse * select(k_norm[thread], q_norm[thread], query);
    let b = high * inverse * select(k_norm[64u + thread], q_norm[64u + thread], query);
    let cosine = rope[position * 128u + thread];
    let sine = rope[position * 128u + 64u + thread];
    low = fma(a, cosine, -(b * sine));
    high = fma(b, cosine, a * sine);
  }
  if (query) {
    qkv[at + thread] = low;
    qkv[at + 64u + thread] = high;
  }
  head[thread] = low;
  head[64u + thread] = high;
  workgroupBarrier();
  if (!query) {
    let stored = group.y - kQueryHeads;  // keys, then values
    let block = place / 32u * 2u * kKvHeads + stored;
    cache[(block * 32u + place % 32u) * 64u + thread] =
        bf16_of(head[2u * thread]) | (bf16_of(head[2u * thread + 1u]) << 16u);
  }
}
