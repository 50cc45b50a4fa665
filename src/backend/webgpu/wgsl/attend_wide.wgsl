// Attention of a tile of tokens, all query heads of one KV head: prompts and drafts. Bound by
// multiply-adds. Keys, then values of 32 positions at a time lie in workgroup memory, where all
// QUERIES queries (token by token, head by head; a multiple of 8) meet them. QUERIES is put in
// front.
//
// Thread (quad, lane): queries 4 quad .. + 3. Of keys it has positions lane and lane + 16, of values
// the dimensions 8 lane .. + 7. Softmax is thread (query, part)'s: positions part, part + 4, ...
@group(0) @binding(1) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> cache: array<vec4<u32>>;  // [block][k, v][head][32][16]
@group(0) @binding(3) var<storage, read_write> states: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> ctx: array<vec4<f32>>;

const THREADS = 4u * QUERIES;
const PIECES = 512u / THREADS;          // of 16 bytes of a block's keys or values, by thread
const kWeightStride = QUERIES / 4u + 1u;  // spreads positions over the banks

var<workgroup> rows: array<vec4<u32>, 512>;                       // [position][piece ^ position % 8]
var<workgroup> weights: array<vec4<f32>, 32u * kWeightStride>;    // [position][quad]; scores at first
var<workgroup> parts: array<f32, THREADS>;                        // greatest scores, then sums
var<workgroup> factors: array<f32, QUERIES>;
var<workgroup> run_factors: array<vec4<f32>, QUERIES>;  // before, own, greatest, sum of all so far

// One key piece of two positions against one query's eight dimensions.
fn chain(start: vec2<f32>, a: vec4<u32>, b: vec4<u32>, q0: vec4<f32>, q1: vec4<f32>) -> vec2<f32> {
  let a_even = bitcast<vec4<f32>>(a << vec4<u32>(16u));
  let a_odd = bitcast<vec4<f32>>(a & vec4<u32>(0xffff0000u));
  let b_even = bitcast<vec4<f32>>(b << vec4<u32>(16u));
  let b_odd = bitcast<vec4<f32>>(b & vec4<u32>(0xffff0000u));
  var c = fma(vec2<f32>(a_even.x, b_even.x), vec2<f32>(q0.x), start);
  c = fma(vec2<f32>(a_odd.x, b_odd.x), vec2<f32>(q0.y), c);
  c = fma(vec2<f32>(a_even.y, b_even.y), vec2<f32>(q0.z), c);
  c = fma(vec2<f32>(a_odd.y, b_odd.y), vec2<f32>(q0.w), c);
  c = fma(vec2<f32>(a_even.z, b_even.z), vec2<f32>(q1.x), c);
  c = fma(vec2<f32>(a_odd.z, b_odd.z), vec2<f32>(q1.y), c);
  c = fma(vec2<f32>(a_even.w, b_even.w), vec2<f32>(q1.z), c);
  return fma(vec2<f32>(a_odd.w, b_odd.w), vec2<f32>(q1.w), c);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let task = task_at(step[kWideAt] + group.x * kTaskWords);
  let kv_head = group.y;
  let last = task.position + task.tokens - 1u;
  let quad = thread / 16u;
  let lane = thread % 16u;

  // The rows of qkv and of ctx of the quad's queries; those past the last are copies of it.
  var query_at: vec4<u32>;
  var out_at: vec4<u32>;
  var token_of: vec4<u32>;
  for (var i = 0u; i < 4u; i++) {
    let query = min(4u * quad + i, task.tokens * GROUP - 1u);
    let token = query / GROUP;
    let head = kv_head * GROUP + query % GROUP;
    token_of[i] = token;
    query_at[i] = (task.row + token) * kQkvQuads + head * 32u;
    out_at[i] = (task.row + token) * kQueryHeads + head;
  }
  // Softmax: of query thread / 4.
  let position = task.position + min(thread / 4u, task.tokens * GROUP - 1u) / GROUP;
  let part = thread % 4u;
  var all_greatest = kNothing;  // of all runs so far
  var all_sum = 0.0;

  for (var run = task.run_begin; run < task.run_end; run++) {
    let begin = run * kRunPositions;
    let blocks = min((last - begin) / 32u + 1u, kRunBlocks);
    var greatest = kNothing;
    var sum = 0.0;
    var even: array<vec4<f32>, 4>;
    var odd: array<vec4<f32>, 4>;
    for (var i = 0u; i < 4u; i++) {
      even[i] = vec4<f32>(0.0);
      odd[i] = vec4<f32>(0.0);
    }

    for (var b = 0u; b < blocks; b++) {
      let cache_at = (step[task.blocks + run * kRunBlocks + b] * 2u * kKvHeads + kv_head) * 512u;
      for (var i = 0u; i < PIECES; i++) {
        let piece = i * THREADS + thread;
        rows[piece ^ (piece / 16u % 8u)] = cache[cache_at + piece];
      }
      var values: array<vec4<u32>, PIECES>;
      for (var i = 0u; i < PIECES; i++) {
        // What lies past the tile's last position is nobody's.
        let piece = i * THREADS + thread;
        values[i] = select(vec4<u32>(0u), cache[cache_at + kKvHeads * 512u + piece],
                           begin + b * 32u + piece / 16u <= last);
      }
      workgroupBarrier();

      var c: array<vec2<f32>, 16>;  // [chain][query]
      for (var i = 0u; i < 16u; i++) { c[i] = vec2<f32>(0.0); }
      for (var k = 0u; k < 4u; k++) {
        for (var j = 0u; j < 4u; j++) {
          let piece = k * 4u + j;
          let at = lane * 16u + (piece ^ lane % 8u);
          let k0 = rows[at];
          let k1 = rows[at + 256u];
          for (var i = 0u; i < 4u; i++) {
            let q = query_at[i] + 2u * piece;
            c[j * 4u + i] = chain(c[j * 4u + i], k0, k1, qkv[q], qkv[q + 1u]);
          }
        }
      }
      var low: vec4<f32>;
      var high: vec4<f32>;
      for (var i = 0u; i < 4u; i++) {
        let score = rounded_pair((c[i] + c[4u + i]) + (c[8u + i] + c[12u + i]), kScoreScale);
        low[i] = score.x;
        high[i] = score.y;
      }
      weights[lane * kWeightStride + quad] = low;
      weights[(lane + 16u) * kWeightStride + quad] = high;
      workgroupBarrier();

      for (var i = 0u; i < PIECES; i++) {
        let piece = i * THREADS + thread;
        rows[piece ^ (piece / 16u % 8u)] = values[i];
      }
      let at = thread / 16u;
      let of_quad = thread / 4u % 4u;
      var score: array<f32, 8>;
      var most = kNothing;
      for (var i = 0u; i < 8u; i++) {
        let p = 4u * i + part;
        score[i] = select(kNothing, weights[p * kWeightStride + at][of_quad],
                          begin + b * 32u + p <= position);
        most = max(most, score[i]);
      }
      parts[thread] = most;
      workgroupBarrier();
      let of_query = thread - part;
      let now = max(greatest, max(max(parts[of_query], parts[of_query + 1u]),
                                  max(parts[of_query + 2u], parts[of_query + 3u])));
      let factor = power_of_two(greatest - now);
      greatest = now;
      var s = 0.0;
      for (var i = 0u; i < 8u; i++) {
        let p = 4u * i + part;
        let w = select(0.0, power_of_two(score[i] - now), begin + b * 32u + p <= position);
        weights[p * kWeightStride + at][of_quad] = w;
        s += w;
      }
      workgroupBarrier();  // all have read the greatest scores
      parts[thread] = s;
      if (part == 0u) { factors[thread / 4u] = factor; }
      workgroupBarrier();
      sum = fma(sum, factor, (parts[of_query] + parts[of_query + 1u]) +
                                 (parts[of_query + 2u] + parts[of_query + 3u]));

      var block_even: array<vec4<f32>, 4>;
      var block_odd: array<vec4<f32>, 4>;
      for (var i = 0u; i < 4u; i++) {
        block_even[i] = vec4<f32>(0.0);
        block_odd[i] = vec4<f32>(0.0);
      }
      for (var p = 0u; p < 32u; p++) {
        let v = rows[p * 16u + (lane ^ p % 8u)];
        let v_even = bitcast<vec4<f32>>(v << vec4<u32>(16u));
        let v_odd = bitcast<vec4<f32>>(v & vec4<u32>(0xffff0000u));
        let w = weights[p * kWeightStride + quad];
        for (var i = 0u; i < 4u; i++) {
          block_even[i] = fma(vec4<f32>(w[i]), v_even, block_even[i]);
          block_odd[i] = fma(vec4<f32>(w[i]), v_odd, block_odd[i]);
        }
      }
      for (var i = 0u; i < 4u; i++) {
        let f = vec4<f32>(factors[4u * quad + i]);
        even[i] = fma(even[i], f, block_even[i]);
        odd[i] = fma(odd[i], f, block_odd[i]);
      }
      workgroupBarrier();  // rows and weights are free again
    }

    // The run's state leaves, joins what the slot has, or is all there is.
    let now = max(all_greatest, greatest);
    let before = power_of_two(all_greatest - now);
    let own = power_of_two(greatest - now);
    all_sum = fma(all_sum, before, sum * own);
    all_greatest = now;
    if (part == 0u) {
      if (task.runs != 0u) {
        run_factors[thread / 4u] = vec4<f32>(0.0, 1.0, greatest, sum);
      } else {
        run_factors[thread / 4u] = vec4<f32>(before, own, all_greatest, all_sum);
      }
    }
    workgroupBarrier();
    for (var i = 0u; i < 4u; i++) {
      if (4u * quad + i >= task.tokens * GROUP) { continue; }
      let f = run_factors[4u * quad + i];
      var first_half = vec4<f32>(even[i].x, odd[i].x, even[i].y, odd[i].y) * f.y;
      var second_half = vec4<f32>(even[i].z, odd[i].z, even[i].w, odd[i].w) * f.y;
      let head = out_at[i] % kQueryHeads;
      if (task.runs != 0u) {
        let slot = task.state + token_of[i] * task.runs + run;
        let to = (slot * kQueryHeads + head) * kStateQuads;
        states[to + 2u * lane] = first_half;
        states[to + 2u * lane + 1u] = second_half;
        if (lane == 0u) { states[to + 32u] = vec4<f32>(f.z, f.w, 0.0, 0.0); }
        continue;
      }
      let slot = ((task.state + token_of[i]) * kQueryHeads + head) * kStateQuads + 2u * lane;
      if (run > task.run_begin) {
        first_half = fma(states[slot], vec4<f32>(f.x), first_half);
        second_half = fma(states[slot + 1u], vec4<f32>(f.x), second_half);
      }
      if (run + 1u < task.run_end) {
        states[slot] = first_half;
        states[slot + 1u] = second_half;
      } else {
        let to = out_at[i] * 32u + 2u * lane;
        ctx[to] = first_half * (1.0 / f.w);
        ctx[to + 1u] = second_half * (1.0 / f.w);
      }
    }
  }
}
