// Attention of one token, HEADS of its query heads of one KV head: decoding. Bound by the bytes of
// keys and values, which go from memory to registers and are used there for all heads. A workgroup
// goes through its task's runs; PARTS of them share a KV head. HEADS and BATCH (positions whose
// scores are added up at once, a multiple of 32) are put in front.
//
//   keys     thread (position, lane): four pieces of 16 bytes, the lane's chain for each head
//   values   thread (block of the run, piece): eight dimensions of its block's 32 positions
@group(0) @binding(1) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> cache: array<vec4<u32>>;  // [block][k, v][head][32][16]
@group(0) @binding(3) var<storage, read_write> states: array<f32>;
@group(0) @binding(4) var<storage, read_write> ctx: array<f32>;

const THREADS = 128u;
const PARTS = GROUP / HEADS;
const kBlockStride = 33u;                        // of scores: spreads blocks over the banks
const kHeadStride = kRunBlocks * kBlockStride;
const kLaneStride = HEADS * BATCH + 8u;

var<workgroup> queries: array<vec4<f32>, 32u * HEADS>;
var<workgroup> weights: array<f32, HEADS * kHeadStride>;          // scores at first
var<workgroup> pool: array<f32, max(4u * kLaneStride, 1024u)>;    // chains, then sums of blocks
var<workgroup> greatest: array<f32, HEADS * kRunBlocks>;
var<workgroup> factors: array<f32, HEADS * kRunBlocks>;
var<workgroup> sums: array<f32, HEADS * kRunBlocks>;

fn chain(start: f32, k: vec4<u32>, q0: vec4<f32>, q1: vec4<f32>) -> f32 {
  let even = bitcast<vec4<f32>>(k << vec4<u32>(16u));
  let odd = bitcast<vec4<f32>>(k & vec4<u32>(0xffff0000u));
  var c = fma(even.x, q0.x, start);
  c = fma(odd.x, q0.y, c);
  c = fma(even.y, q0.z, c);
  c = fma(odd.y, q0.w, c);
  c = fma(even.z, q1.x, c);
  c = fma(odd.z, q1.y, c);
  c = fma(even.w, q1.z, c);
  return fma(odd.w, q1.w, c);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let task = task_at(step[kNarrowAt] + group.x * kTaskWords);
  let kv_head = group.y / PARTS;
  let first_head = kv_head * GROUP + group.y % PARTS * HEADS;
  for (var i = thread; i < 32u * HEADS; i += THREADS) {
    queries[i] = qkv[task.row * kQkvQuads + first_head * 32u + i];
  }
  workgroupBarrier();

  // Of all runs so far; the sums of dimension `dim`.
  let dim = thread % 16u * 8u + thread / 16u % 4u * 2u + thread / 64u;
  var total: array<f32, HEADS>;
  var total_greatest: array<f32, HEADS>;
  var total_sum: array<f32, HEADS>;

  for (var run = task.run_begin; run < task.run_end; run++) {
    let seen = min(task.position + 1u - run * kRunPositions, kRunPositions);
    let table = task.blocks + run * kRunBlocks;

    for (var first = 0u; first < seen; first += BATCH) {
      for (var i = 0u; i < BATCH; i += 32u) {
        // Past the last position the last one is read again: its score is not used.
        let row = i + thread / 4u;
        let position = min(first + row, seen - 1u);
        let at = (step[table + position / 32u] * 2u * kKvHeads + kv_head) * 512u +
                 position % 32u * 16u + thread % 4u;
        let k0 = cache[at];
        let k1 = cache[at + 4u];
        let k2 = cache[at + 8u];
        let k3 = cache[at + 12u];
        for (var h = 0u; h < HEADS; h++) {
          let q = h * 32u + thread % 4u * 2u;
          var c = chain(0.0, k0, queries[q], queries[q + 1u]);
          c = chain(c, k1, queries[q + 8u], queries[q + 9u]);
          c = chain(c, k2, queries[q + 16u], queries[q + 17u]);
          c = chain(c, k3, queries[q + 24u], queries[q + 25u]);
          pool[thread % 4u * kLaneStride + h * BATCH + row] = c;
        }
      }
      workgroupBarrier();
      for (var i = thread; i < HEADS * BATCH; i += THREADS) {
        let position = first + i % BATCH;
        let score = (pool[i] + pool[kLaneStride + i]) +
                    (pool[2u * kLaneStride + i] + pool[3u * kLaneStride + i]);
        weights[i / BATCH * kHeadStride + position / 32u * kBlockStride + position % 32u] =
            select(kNothing, score * kScoreScale, position < seen);
      }
      workgroupBarrier();
    }

    if (thread < HEADS * kRunBlocks) {
      var most = kNothing;
      // A block that is not seen has no scores.
      let scores = select(0u, 32u, thread % kRunBlocks * 32u < seen);
      for (var i = 0u; i < scores; i++) { most = max(most, weights[thread * kBlockStride + i]); }
      greatest[thread] = most;
    }
    workgroupBarrier();
    if (thread < HEADS * kRunBlocks) {
      var before = kNothing;
      for (var b = thread / kRunBlocks * kRunBlocks; b < thread; b++) {
        before = max(before, greatest[b]);
      }
      let now = max(before, greatest[thread]);
      factors[thread] = power_of_two(before - now);
    }
    for (var i = thread; i < HEADS * kRunPositions; i += THREADS) {
      let block = i / 32u;  // [head][block]
      var now = kNothing;
      for (var b = block / kRunBlocks * kRunBlocks; b <= block; b++) { now = max(now, greatest[b]); }
      let at = block * kBlockStride + i % 32u;
      weights[at] = select(0.0, power_of_two(weights[at] - now), i % kRunPositions < seen);
    }
    workgroupBarrier();
    if (thread < HEADS * kRunBlocks) {
      var s = vec4<f32>(0.0);
      for (var i = 0u; i < 8u; i++) {
        let at = thread * kBlockStride + 4u * i;
        s += vec4<f32>(weights[at], weights[at + 1u], weights[at + 2u], weights[at + 3u]);
      }
      sums[thread] = (s.x + s.y) + (s.z + s.w);
    }

    var even: array<vec4<f32>, HEADS>;
    var odd: array<vec4<f32>, HEADS>;
    for (var h = 0u; h < HEADS; h++) {
      even[h] = vec4<f32>(0.0);
      odd[h] = vec4<f32>(0.0);
    }
    let block = thread / 16u;
    if (block * 32u < seen) {
      let here = min(seen - block * 32u, 32u);
      let at = ((step[table + block] * 2u + 1u) * kKvHeads + kv_head) * 512u + thread % 16u;
      for (var p = 0u; p < here; p += 8u) {
        var v: array<vec4<u32>, 8>;
        for (var i = 0u; i < 8u; i++) { v[i] = cache[at + min(p + i, here - 1u) * 16u]; }
        for (var i = 0u; i < 8u; i++) {
          let v_even = bitcast<vec4<f32>>(v[i] << vec4<u32>(16u));
          let v_odd = bitcast<vec4<f32>>(v[i] & vec4<u32>(0xffff0000u));
          for (var h = 0u; h < HEADS; h++) {
            let w = vec4<f32>(weights[h * kHeadStride + block * kBlockStride + p + i]);
            even[h] = fma(w, v_even, even[h]);
            odd[h] = fma(w, v_odd, odd[h]);
          }
        }
      }
    }

    let blocks = (seen + 31u) / 32u;
    for (var h = 0u; h < HEADS; h++) {
      let to = block * 128u + thread % 16u;
      for (var i = 0u; i < 4u; i++) {
        pool[to + i * 16u] = even[h][i];
        pool[to + 64u + i * 16u] = odd[h][i];
      }
      workgroupBarrier();
      var out = 0.0;
      var sum = 0.0;
      var most = kNothing;
      for (var b = 0u; b < blocks; b++) {
        let factor = factors[h * kRunBlocks + b];
        out = fma(out, factor, pool[b * 128u + thread]);
        sum = fma(sum, factor, sums[h * kRunBlocks + b]);
        most = max(most, greatest[h * kRunBlocks + b]);
      }
      if (task.runs != 0u) {
        let at = ((task.state + run) * kQueryHeads + first_head + h) * kStateFloats;
        states[at + dim] = out;
        if (thread == 0u) {
          states[at + 128u * VECTORS] = most;
          states[at + 128u * VECTORS + 1u] = sum;
        }
      } else if (run == task.run_begin) {
        total[h] = out;
        total_greatest[h] = most;
        total_sum[h] = sum;
      } else {
        let now = max(total_greatest[h], most);
        let a = power_of_two(total_greatest[h] - now);
        let b = power_of_two(most - now);
        total[h] = fma(total[h], a, out * b);
        total_sum[h] = fma(total_sum[h], a, sum * b);
        total_greatest[h] = now;
      }
      workgroupBarrier();
    }
  }
  if (task.runs == 0u) {
    for (var h = 0u; h < HEADS; h++) {
      ctx[(task.row * kQueryHeads + first_head + h) * 128u + dim] = total[h] * (1.0 / total_sum[h]);
    }
  }
}
