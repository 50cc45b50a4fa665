// As attend_wide.wgsl, over bit planes; needs tiered.wgsl. A tile lies within one block of 32
// positions, so that all its queries read a block alike. Codes lie in workgroup memory as bytes.
@group(0) @binding(1) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> cache: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> tables: array<u32>;
@group(0) @binding(4) var<storage, read> step_rows: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> turned_queries: array<vec4<f32>>;  // [row][query head][33]
@group(0) @binding(6) var<storage, read_write> states: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> ctx: array<vec4<f32>>;

const THREADS = 4u * QUERIES;
const PIECES = 512u / THREADS;            // of 16 bytes of a block's BF16 rows, by thread
const kWeightStride = QUERIES / 4u + 1u;  // spreads positions over the banks

// BF16 [position][16 pieces], bytes [position][8 pieces]; piece p of a position at p ^ position % 8.
var<workgroup> rows: array<vec4<u32>, 512>;
var<workgroup> weights: array<vec4<f32>, 32u * kWeightStride>;    // [position][quad]; scores at first
var<workgroup> parts: array<vec4<f32>, THREADS>;  // greatest scores; sums of weights, scaled, offsets
var<workgroup> factors: array<vec2<f32>, QUERIES>;  // and what code_values() adds
var<workgroup> params: array<vec4<f32>, 32>;        // scale, offset of keys, of values
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

fn word_at(at: u32) -> u32 { return cache[at / 4u][at % 4u]; }

fn parameters_of(id: u32, value: u32, head: u32, position: u32, width: u32) -> vec2<f32> {
  if (width == kRows) { return vec2<f32>(1.0, 0.0); }
  let at = parameters_at(id, value, head, position, width);
  return vec2<f32>(half_of(word_at(at), position), half_of(word_at(at + 128u), position));
}

fn bf16_piece(unit: u32, piece: u32) -> vec4<u32> {
  if ((unit & kInStep) != 0u) { return step_rows[(unit & ~kInStep) * 512u + piece]; }
  return cache[unit * 512u + piece];
}

// Half a position's row of every plane: words 4 half .. + 3, of low4 those and the ones 8 further on.
fn plane_pieces(table: u32, head: u32, thread: u32, width: u32) -> array<vec4<u32>, 4> {
  let at = head * 64u + thread;  // [position][half]
  var pieces: array<vec4<u32>, 4>;
  pieces[0] = cache[tables[table] * 512u + at];
  if (width >= 4u) { pieces[1] = cache[tables[table + 1u] * 512u + at]; }
  if (width == 8u) {
    let low = tables[table + 2u + head / 4u] * 512u + head % 4u * 128u + thread / 2u * 4u;
    pieces[2] = cache[low + thread % 2u];
    pieces[3] = cache[low + 2u + thread % 2u];
  }
  return pieces;
}

// Their bytes into rows[].
fn store_bytes(pieces: array<vec4<u32>, 4>, thread: u32, width: u32) {
  var p = pieces;
  let position = thread / 2u;
  let b0 = code_bytes(width, p[0].x, p[1].x, vec2<u32>(p[2].x, p[3].x));
  let b1 = code_bytes(width, p[0].y, p[1].y, vec2<u32>(p[2].y, p[3].y));
  let b2 = code_bytes(width, p[0].z, p[1].z, vec2<u32>(p[2].z, p[3].z));
  let b3 = code_bytes(width, p[0].w, p[1].w, vec2<u32>(p[2].w, p[3].w));
  for (var g = 0u; g < 4u; g++) {
    rows[position * 8u + ((2u * g + thread % 2u) ^ (position % 8u))] =
        vec4<u32>(b0[g], b1[g], b2[g], b3[g]);
  }
}

// Dimensions 8 lane .. + 7 of a head, turned as all 128; the lanes of a quad together.
fn turned(start_a: vec4<f32>, start_b: vec4<f32>, thread: u32) -> array<vec4<f32>, 2> {
  var a = start_a;
  var b = start_b;
  a = vec4<f32>(a.x + a.y, a.x - a.y, a.z + a.w, a.z - a.w);
  b = vec4<f32>(b.x + b.y, b.x - b.y, b.z + b.w, b.z - b.w);
  a = vec4<f32>(a.xy + a.zw, a.xy - a.zw);
  b = vec4<f32>(b.xy + b.zw, b.xy - b.zw);
  let sum = a + b;
  b = a - b;
  a = sum;
  for (var half = 1u; half < 16u; half *= 2u) {
    rows[2u * thread] = bitcast<vec4<u32>>(a);
    rows[2u * thread + 1u] = bitcast<vec4<u32>>(b);
    workgroupBarrier();
    let other_a = bitcast<vec4<f32>>(rows[2u * (thread ^ half)]);
    let other_b = bitcast<vec4<f32>>(rows[2u * (thread ^ half) + 1u]);
    workgroupBarrier();
    let upper = (thread & half) != 0u;
    a = select(a + other_a, other_a - a, upper);
    b = select(b + other_b, other_b - b, upper);
  }
  return array<vec4<f32>, 2>(a, b);
}

// What a run leaves of query i of a quad. A function that is called four times and no loop: the
// barriers in it keep compilers from unrolling one, and the sums would have to lie in memory. `at`:
// run, thread, the quad's first query, lane.
fn leave(task: Task, at: vec4<u32>, i: u32, out_at: u32, token: u32, even: vec4<f32>,
         odd: vec4<f32>, codes_a: vec4<f32>, codes_b: vec4<f32>) {
  let run = at.x;
  let lane = at.w;
  let ours = at.z + i < task.tokens * GROUP;
  let f = run_factors[at.z + i];
  var rows_a = vec4<f32>(even.x, odd.x, even.y, odd.y) * f.y;
  var rows_b = vec4<f32>(even.z, odd.z, even.w, odd.w) * f.y;
  var all_a = codes_a * f.y;
  var all_b = codes_b * f.y;
  var slot = task.state + token * max(task.runs, 1u);
  if (task.runs != 0u) { slot += run; }
  let to = (slot * kQueryHeads + out_at % kQueryHeads) * kStateQuads + 2u * lane;
  if (task.runs == 0u && run > task.run_begin && ours) {
    rows_a = fma(states[to], vec4<f32>(f.x), rows_a);
    rows_b = fma(states[to + 1u], vec4<f32>(f.x), rows_b);
    all_a = fma(states[to + 32u], vec4<f32>(f.x), all_a);
    all_b = fma(states[to + 33u], vec4<f32>(f.x), all_b);
  }
  if (task.runs != 0u || run + 1u < task.run_end) {
    if (ours) {
      states[to] = rows_a;
      states[to + 1u] = rows_b;
      states[to + 32u] = all_a;
      states[to + 33u] = all_b;
      if (lane == 0u && task.runs != 0u) { states[to + 64u] = vec4<f32>(f.z, f.w, 0.0, 0.0); }
    }
    return;
  }
  if (place.rotated == 1u) {
    let back = turned(all_a, all_b, at.y);
    all_a = fma(back[0], vec4<f32>(kHadamardScale), rows_a);
    all_b = fma(back[1], vec4<f32>(kHadamardScale), rows_b);
  } else {
    all_a += rows_a;
    all_b += rows_b;
  }
  if (ours) {
    ctx[out_at * 32u + 2u * lane] = all_a * (1.0 / f.w);
    ctx[out_at * 32u + 2u * lane + 1u] = all_b * (1.0 / f.w);
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let task = task_at(step[kWideAt] + group.x * kTaskWords);
  let kv_head = group.y;
  let last = task.position + task.tokens - 1u;
  let query_block = task.position / 32u;
  let quad = thread / 16u;
  let lane = thread % 16u;

  // The rows of qkv and of ctx of the quad's queries; those past the last are copies of it.
  var query_at: vec4<u32>;
  var out_at: vec4<u32>;
  var turned_at: vec4<u32>;
  var token_of: vec4<u32>;
  for (var i = 0u; i < 4u; i++) {
    let query = min(4u * quad + i, task.tokens * GROUP - 1u);
    let token = query / GROUP;
    let head = kv_head * GROUP + query % GROUP;
    token_of[i] = token;
    query_at[i] = (task.row + token) * kQkvQuads + head * 32u;
    out_at[i] = (task.row + token) * kQueryHeads + head;
    turned_at[i] = out_at[i] * (kTurnedFloats / 4u);
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
    var codes_a: array<vec4<f32>, 4>;  // of codes: dimensions 8 lane .. + 3
    var codes_b: array<vec4<f32>, 4>;
    for (var i = 0u; i < 4u; i++) {
      even[i] = vec4<f32>(0.0);
      odd[i] = vec4<f32>(0.0);
      codes_a[i] = vec4<f32>(0.0);
      codes_b[i] = vec4<f32>(0.0);
    }

    for (var b = 0u; b < blocks; b++) {
      let id = step[task.blocks + run * kRunBlocks + b];
      let width = widths(query_block, run * kRunBlocks + b);
      let key_table = place.tables_at + id * 2u * kUnitsOfSide;
      let value_table = key_table + kUnitsOfSide;
      if (width.x == kRows) {
        for (var i = 0u; i < PIECES; i++) {
          let piece = i * THREADS + thread;
          rows[piece ^ (piece / 16u % 8u)] = bf16_piece(tables[key_table + 4u + kv_head], piece);
        }
      } else if (thread < 64u) {
        let pieces = plane_pieces(key_table, kv_head, thread, width.x);
        store_bytes(pieces, thread, width.x);
      }
      var values: array<vec4<u32>, max(PIECES, 4u)>;
      if (width.y == kRows) {
        for (var i = 0u; i < PIECES; i++) {
          // What lies past the tile's last position is nobody's.
          let piece = i * THREADS + thread;
          values[i] = select(vec4<u32>(0u), bf16_piece(tables[value_table + 4u + kv_head], piece),
                             begin + b * 32u + piece / 16u <= last);
        }
      } else if (thread < 64u) {
        values = plane_pieces(value_table, kv_head, thread, width.y);
      }
      if (thread < 32u) {
        params[thread] = vec4<f32>(parameters_of(id, 0u, kv_head, thread, width.x),
                                   parameters_of(id, 1u, kv_head, thread, width.y));
      }
      workgroupBarrier();

      var low: vec4<f32>;
      var high: vec4<f32>;
      if (width.x == kRows) {
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
        for (var i = 0u; i < 4u; i++) {
          let score = rounded_pair((c[i] + c[4u + i]) + (c[8u + i] + c[12u + i]), kScoreScale);
          low[i] = score.x;
          high[i] = score.y;
        }
      } else {
        var c: array<vec2<f32>, 16>;  // [chain][query]
        for (var i = 0u; i < 16u; i++) { c[i] = vec2<f32>(0.0); }
        for (var i = 0u; i < 2u; i++) {
          for (var g = 0u; g < 4u; g++) {
            for (var j = 0u; j < 4u; j++) {
              let word = 8u * g + 2u * j + i;
              let at = lane * 8u + ((word / 4u) ^ (lane % 8u));
              let x0 = byte_floats(rows[at][word % 4u]);
              let x1 = byte_floats(rows[at + 128u][word % 4u]);
              for (var e = 0u; e < 4u; e++) {
                let q = turned_queries[turned_at[e] + word];
                c[j * 4u + e] = vec2<f32>(word_chain(c[j * 4u + e].x, x0, q),
                                          word_chain(c[j * 4u + e].y, x1, q));
              }
            }
          }
        }
        let of_low = params[lane];
        let of_high = params[lane + 16u];
        for (var e = 0u; e < 4u; e++) {
          let chains = (c[e] + c[4u + e]) + (c[8u + e] + c[12u + e]);
          let sum = turned_queries[turned_at[e] + 32u].x;
          low[e] = code_score(chains.x, sum, width.x, of_low.x, of_low.y);
          high[e] = code_score(chains.y, sum, width.x, of_high.x, of_high.y);
        }
      }
      weights[lane * kWeightStride + quad] = low;
      weights[(lane + 16u) * kWeightStride + quad] = high;
      workgroupBarrier();

      if (width.y == kRows) {
        for (var i = 0u; i < PIECES; i++) {
          let piece = i * THREADS + thread;
          rows[piece ^ (piece / 16u % 8u)] = values[i];
        }
      } else if (thread < 64u) {
        store_bytes(values, thread, width.y);
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
      parts[thread].x = most;
      workgroupBarrier();
      let of_query = thread - part;
      let now = max(greatest, max(max(parts[of_query].x, parts[of_query + 1u].x),
                                  max(parts[of_query + 2u].x, parts[of_query + 3u].x)));
      let factor = power_of_two(greatest - now);
      greatest = now;
      var s = vec3<f32>(0.0);
      for (var i = 0u; i < 8u; i++) {
        let p = 4u * i + part;
        let w = select(0.0, power_of_two(score[i] - now), begin + b * 32u + p <= position);
        let scaled = rounded_product(w, params[p].z);
        weights[p * kWeightStride + at][of_quad] = scaled;
        s += vec3<f32>(w, scaled, rounded_product(w, params[p].w));
      }
      workgroupBarrier();  // all have read the greatest scores
      parts[thread] = vec4<f32>(s, 0.0);
      workgroupBarrier();
      let all = (parts[of_query] + parts[of_query + 1u]) +
                (parts[of_query + 2u] + parts[of_query + 3u]);
      sum = fma(sum, factor, all.x);
      if (part == 0u) {
        factors[thread / 4u] = vec2<f32>(factor, code_values(width.y, all.y, all.z).y);
      }
      workgroupBarrier();

      if (width.y == kRows) {
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
          let f = vec4<f32>(factors[4u * quad + i].x);
          even[i] = fma(even[i], f, block_even[i]);
          odd[i] = fma(odd[i], f, block_odd[i]);
          codes_a[i] *= f;
          codes_b[i] *= f;
        }
      } else {
        var sum_a: array<vec4<f32>, 4>;
        var sum_b: array<vec4<f32>, 4>;
        for (var i = 0u; i < 4u; i++) {
          sum_a[i] = vec4<f32>(0.0);
          sum_b[i] = vec4<f32>(0.0);
        }
        for (var r = 0u; r < 4u; r++) {
          var chain_a: array<vec4<f32>, 4>;
          var chain_b: array<vec4<f32>, 4>;
          for (var i = 0u; i < 4u; i++) {
            chain_a[i] = vec4<f32>(0.0);
            chain_b[i] = vec4<f32>(0.0);
          }
          for (var p = r; p < 32u; p += 4u) {
            let piece = rows[p * 8u + ((lane / 2u) ^ p % 8u)];
            let pair = select(piece.xy, piece.zw, lane % 2u == 1u);
            let x_a = byte_floats(pair.x);
            let x_b = byte_floats(pair.y);
            let w = weights[p * kWeightStride + quad];
            for (var i = 0u; i < 4u; i++) {
              chain_a[i] = fma(vec4<f32>(w[i]), x_a, chain_a[i]);
              chain_b[i] = fma(vec4<f32>(w[i]), x_b, chain_b[i]);
            }
          }
          for (var i = 0u; i < 4u; i++) {
            sum_a[i] += chain_a[i];
            sum_b[i] += chain_b[i];
          }
        }
        let step_of = vec4<f32>(code_values(width.y, 0.0, 0.0).x);
        for (var i = 0u; i < 4u; i++) {
          let f = vec4<f32>(factors[4u * quad + i].x);
          let more = vec4<f32>(factors[4u * quad + i].y);
          codes_a[i] = fma(codes_a[i], f, fma(sum_a[i], step_of, more));
          codes_b[i] = fma(codes_b[i], f, fma(sum_b[i], step_of, more));
          even[i] *= f;
          odd[i] *= f;
        }
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
    let to = vec4<u32>(run, thread, 4u * quad, lane);
    leave(task, to, 0u, out_at.x, token_of.x, even[0], odd[0], codes_a[0], codes_b[0]);
    leave(task, to, 1u, out_at.y, token_of.y, even[1], odd[1], codes_a[1], codes_b[1]);
    leave(task, to, 2u, out_at.z, token_of.z, even[2], odd[2], codes_a[2], codes_b[2]);
    leave(task, to, 3u, out_at.w, token_of.w, even[3], odd[3], codes_a[3], codes_b[3]);
  }
}
