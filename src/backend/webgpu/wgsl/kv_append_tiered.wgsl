// As kv_append.wgsl, for a tiered cache: rows go where `tables` says, and queries are left once more
// as codes need them, turned.
@group(0) @binding(1) var<storage, read> rope: array<f32>;   // [position][64 cos, 64 sin]
@group(0) @binding(2) var<storage, read> q_norm: array<f32>;
@group(0) @binding(3) var<storage, read> k_norm: array<f32>;
@group(0) @binding(4) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(5) var<storage, read_write> cache: array<u32>;
@group(0) @binding(6) var<storage, read> tables: array<u32>;
// [row][query head][kTurnedFloats], then from place.step_rows_at on the rows of the step.
@group(0) @binding(7) var<storage, read_write> work: array<u32>;

var<workgroup> head: array<f32, 128>;
var<workgroup> squares: array<f32, 64>;

// Leaves head[] turned, but for the scale.
fn turn(thread: u32) {
  for (var half = 1u; half < 128u; half *= 2u) {
    let low = thread & (half - 1u);
    let at = 2u * (thread - low) + low;
    let a = head[at];
    let b = head[at + half];
    workgroupBarrier();
    head[at] = a + b;
    head[at + half] = a - b;
    workgroupBarrier();
  }
}

fn turn_query(at: u32, thread: u32) {
  var scale = 1.0;
  if (place.rotated == 1u) {
    turn(thread);
    scale = kHadamardScale;
  }
  let low = head[thread] * scale;
  let high = head[64u + thread] * scale;
  work[at + thread] = bitcast<u32>(low);
  work[at + 64u + thread] = bitcast<u32>(high);
  squares[thread] = low + high;
  workgroupBarrier();
  for (var half = 32u; half > 0u; half /= 2u) {
    if (thread < half) { squares[thread] += squares[thread + half]; }
    workgroupBarrier();
  }
  if (thread == 0u) { work[at + 128u] = bitcast<u32>(squares[0]); }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = step[kRowsAt] + group.x * 2u;
  let at = group.x * 4u * kQkvQuads + group.y * 128u;
  let low = qkv[at + thread];
  let high = qkv[at + 64u + thread];
  squares[thread] = fma(high, high, low * low);
  workgroupBarrier();
  for (var half = 32u; half > 0u; half /= 2u) {
    if (thread < half) { squares[thread] += squares[thread + half]; }
    workgroupBarrier();
  }
  let mean = squares[0] * (1.0 / 128.0);
  let query = group.y < kQueryHeads;
  var pair = vec2<f32>(low, high);
  if (query) {
    let weight = vec2<f32>(q_norm[thread], q_norm[64u + thread]);
    pair = rotated(pair, mean, weight, step[row + 1u], thread);
    qkv[at + thread] = pair.x;
    qkv[at + 64u + thread] = pair.y;
  } else if (group.y < kQueryHeads + kKvHeads) {
    let weight = vec2<f32>(k_norm[thread], k_norm[64u + thread]);
    pair = rotated(pair, mean, weight, step[row + 1u], thread);
  }
  head[thread] = pair.x;
  head[64u + thread] = pair.y;
  workgroupBarrier();
  if (query) {
    turn_query((group.x * kQueryHeads + group.y) * kTurnedFloats, thread);
  } else {
    let to_place = step[row];
    let stored = group.y - kQueryHeads;  // keys, then values
    let unit = tables[place.tables_at + to_place / 32u * 2u * kUnitsOfSide +
                      stored / kKvHeads * kUnitsOfSide + 4u + stored % kKvHeads];
    let word = bf16_of(head[2u * thread]) | (bf16_of(head[2u * thread + 1u]) << 16u);
    let to = to_place % 32u * 64u + thread;
    if ((unit & kInStep) != 0u) {
      work[place.step_rows_at + (unit & ~kInStep) * 2048u + to] = word;
    } else {
      cache[unit * 2048u + to] = word;
    }
  }
}
