// Attention of one token, HEADS of its query heads of one KV head: decoding. Bound by the bytes of
// keys and values, which go from memory to registers and are used there for all heads. A workgroup
// goes through its task's runs; PARTS of them share a KV head. HEADS and BATCH (positions whose
// scores are added up at once, a multiple of 64) are put in front, and lanes_*.wgsl.
//
//   keys     thread (position, lane): four pieces of 16 bytes, the lane's chain for each head
//   values   thread (block of the run, piece of 8 bytes): four dimensions of its block's 32
//            positions, on their way from the start of the run
//
// Loops have constant bounds where they can, so that they are unrolled and their loads wait
// together: what is not seen has weight zero, or is left out by a select.
@group(0) @binding(1) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> cache: array<vec4<u32>>;  // [block][k, v][head][32][16]
@group(0) @binding(3) var<storage, read_write> states: array<f32>;
@group(0) @binding(4) var<storage, read_write> ctx: array<f32>;
@group(0) @binding(5) var<storage, read> halves: array<vec2<u32>>;  // cache, by pieces of 8 bytes

const THREADS = 256u;
const PARTS = GROUP / HEADS;
const kBlockStride = 33u;                        // of scores: spreads blocks over the banks
const kHeadStride = kRunBlocks * kBlockStride;
const kLaneStride = HEADS * BATCH + 8u;
const PAIRS = (HEADS + 1u) / 2u;

var<workgroup> queries: array<vec4<f32>, 32u * HEADS>;
var<workgroup> weights: array<f32, HEADS * kHeadStride>;          // scores at first
var<workgroup> pool: array<f32, max(4u * kLaneStride, 2048u)>;    // chains, then sums of blocks
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

fn keep_score(score: f32, head: u32, position: u32, seen: u32) {
  weights[head * kHeadStride + position / 32u * kBlockStride + position % 32u] =
      select(kNothing, rounded_product(score, kScoreScale), position < seen);
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

  // Of all runs so far: the sums of dimension `dim` of every other head.
  let dim = thread % 32u * 4u + thread / 32u % 4u;
  var total: array<f32, PAIRS>;
  var total_greatest: array<f32, PAIRS>;
  var total_sum: array<f32, PAIRS>;

  for (var run = task.run_begin; run < task.run_end; run++) {
    let seen = min(task.position + 1u - run * kRunPositions, kRunPositions);
    let table = task.blocks + run * kRunBlocks;
    let block = thread / 32u;
    var v: array<vec2<u32>, 32>;
    if (block * 32u < seen) {
      let here = min(seen - block * 32u, 32u);
      let at = ((step[table + block] * 2u + 1u) * kKvHeads + kv_head) * 1024u + thread % 32u;
      for (var p = 0u; p < 32u; p++) { v[p] = halves[at + min(p, here - 1u) * 32u]; }
    }

    for (var first = 0u; first < seen; first += BATCH) {
      for (var i = 0u; i < BATCH; i += 64u) {
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
          if (SUBGROUPS) {
            let score = sum_of_four_lanes(c);
            if (thread % 4u == 0u) { keep_score(score, h, first + row, seen); }
          } else {
            pool[thread % 4u * kLaneStride + h * BATCH + row] = c;
          }
        }
      }
      workgroupBarrier();
      if (!SUBGROUPS) {
        for (var i = thread; i < HEADS * BATCH; i += THREADS) {
          let score = (pool[i] + pool[kLaneStride + i]) +
                      (pool[2u * kLaneStride + i] + pool[3u * kLaneStride + i]);
          keep_score(score, i / BATCH, first + i % BATCH, seen);
        }
        workgroupBarrier();
      }
    }

    if (thread < HEADS * kRunBlocks) {
      var most = kNothing;
      for (var i = 0u; i < 32u; i++) { most = max(most, weights[thread * kBlockStride + i]); }
      // A block that is not seen has no scores.
      greatest[thread] = select(kNothing, most, thread % kRunBlocks * 32u < seen);
    }
    workgroupBarrier();
    if (thread < HEADS * kRunBlocks) {
      var before = kNothing;
      for (var b = 0u; b < kRunBlocks; b++) {
        let other = greatest[thread / kRunBlocks * kRunBlocks + b];
        before = select(before, max(before, other), b < thread % kRunBlocks);
      }
      let now = max(before, greatest[thread]);
      factors[thread] = power_of_two(before - now);
    }
    for (var i = thread; i < HEADS * kRunPositions; i += THREADS) {
      let cell = i / 32u;  // [head][block]
      var now = kNothing;
      for (var b = 0u; b < kRunBlocks; b++) {
        let other = greatest[cell / kRunBlocks * kRunBlocks + b];
        now = select(now, max(now, other), b <= cell % kRunBlocks);
      }
      let at = cell * kBlockStride + i % 32u;
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

    var even: array<vec2<f32>, HEADS>;
    var odd: array<vec2<f32>, HEADS>;
    for (var h = 0u; h < HEADS; h++) {
      even[h] = vec2<f32>(0.0);
      odd[h] = vec2<f32>(0.0);
    }
    if (block * 32u < seen) {
      for (var p = 0u; p < 32u; p++) {
        let v_even = bitcast<vec2<f32>>(v[p] << vec2<u32>(16u));
        let v_odd = bitcast<vec2<f32>>(v[p] & vec2<u32>(0xffff0000u));
        for (var h = 0u; h < HEADS; h++) {
          let w = vec2<f32>(weights[h * kHeadStride + block * kBlockStride + p]);
          even[h] = fma(w, v_even, even[h]);
          odd[h] = fma(w, v_odd, odd[h]);
        }
      }
    }

    let blocks = (seen + 31u) / 32u;
    for (var pair = 0u; pair < PAIRS; pair++) {
      for (var i = 0u; i < min(2u, HEADS - 2u * pair); i++) {
        let to = i * 1024u + block * 128u + thread % 32u;
        pool[to] = even[2u * pair + i].x;
        pool[to + 32u] = odd[2u * pair + i].x;
        pool[to + 64u] = even[2u * pair + i].y;
        pool[to + 96u] = odd[2u * pair + i].y;
      }
      workgroupBarrier();
      let h = 2u * pair + thread / 128u;
      if (h < HEADS) {
        var out = 0.0;
        var sum = 0.0;
        var most = kNothing;
        for (var b = 0u; b < kRunBlocks; b++) {
          let factor = factors[h * kRunBlocks + b];
          let next = fma(out, factor, pool[thread / 128u * 1024u + b * 128u + thread % 128u]);
          out = select(out, next, b < blocks);
          sum = select(sum, fma(sum, factor, sums[h * kRunBlocks + b]), b < blocks);
          most = max(most, greatest[h * kRunBlocks + b]);
        }
        if (task.runs != 0u) {
          let at = ((task.state + run) * kQueryHeads + first_head + h) * kStateFloats;
          states[at + dim] = out;
          if (thread % 128u == 0u) {
            states[at + 128u] = most;
            states[at + 129u] = sum;
          }
        } else if (run == task.run_begin) {
          total[pair] = out;
          total_greatest[pair] = most;
          total_sum[pair] = sum;
        } else {
          let now = max(total_greatest[pair], most);
          let a = power_of_two(total_greatest[pair] - now);
          let b = power_of_two(most - now);
          total[pair] = fma(total[pair], a, out * b);
          total_sum[pair] = fma(total_sum[pair], a, sum * b);
          total_greatest[pair] = now;
        }
      }
      workgroupBarrier();
    }
  }
  if (task.runs == 0u) {
    for (var pair = 0u; pair < PAIRS; pair++) {
      let h = 2u * pair + thread / 128u;
      if (h < HEADS) {
        ctx[(task.row * kQueryHeads + first_head + h) * 128u + dim] =
            total[pair] * (1.0 / total_sum[pair]);
      }
    }
  }
}
