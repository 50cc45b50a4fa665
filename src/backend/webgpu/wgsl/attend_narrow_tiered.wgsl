// As attend_narrow.wgsl, over bit planes: two to four times fewer bytes, which have to be unpacked.
// Needs tiered.wgsl and attend_codes.wgsl; HEADS and BATCH as there.
//
//   keys     thread (position, lane) of a block: words 2 lane, 2 lane + 1 of its planes' rows
//   values   thread (block of four, class, word): word `word` of positions class, class + 4, ...;
//            of BF16 rows four dimensions of all positions
@group(0) @binding(1) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> cache: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> words: array<u32>;   // the same memory
@group(0) @binding(4) var<storage, read> tables: array<u32>;
@group(0) @binding(5) var<storage, read> coded: array<u32>;   // [row][query head][kCodedWords]
@group(0) @binding(6) var<storage, read_write> states: array<f32>;
@group(0) @binding(7) var<storage, read_write> ctx: array<f32>;

const THREADS = 128u;
const PARTS = GROUP / HEADS;
const BLOCKS = BATCH / 32u;
const kBlockStride = 33u;                        // of scores: spreads blocks over the banks
const kHeadStride = kRunBlocks * kBlockStride;
const kLaneStride = HEADS * BATCH + 8u;
const kClassStride = 136u;                       // of values' sums
const kValueStride = 4u * kClassStride;

var<workgroup> places: array<u32, 8u * kRunBlocks>;  // [block][key, value][hi2, mid2, low4, bf16]
var<workgroup> ids: array<u32, kRunBlocks>;
var<workgroup> weights: array<f32, HEADS * kHeadStride>;  // scores; then times scales of values
var<workgroup> pool: array<u32, max(max(4u * kLaneStride, 2u * HEADS * kHeadStride),
                                    4u * kValueStride)>;
var<workgroup> greatest: array<f32, HEADS * kRunBlocks>;
var<workgroup> factors: array<f32, HEADS * kRunBlocks>;
var<workgroup> sums: array<f32, 3u * HEADS * kRunBlocks>;  // of weights, scaled, times offsets

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

fn pair_at(at: u32, lane: u32) -> vec2<u32> {
  let four = cache[at];
  return select(four.xy, four.zw, lane % 2u == 1u);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let task = task_at(step[kNarrowAt] + group.x * kTaskWords);
  let kv_head = group.y / PARTS;
  let first_head = kv_head * GROUP + group.y % PARTS * HEADS;
  let query_block = task.position / 32u;
  let lane = thread % 4u;
  let row = thread / 4u;
  let query_at = (task.row * kQueryHeads + first_head) * kCodedWords;

  // The lane's words of the queries: [head][plane word 2 lane + i][g], of high bytes and low ones.
  var high: array<u32, 8u * HEADS>;
  var low: array<u32, 8u * HEADS>;
  for (var h = 0u; h < HEADS; h++) {
    for (var i = 0u; i < 8u; i++) {
      let at = query_at + h * kCodedWords + i % 4u * 8u + 2u * lane + i / 4u;
      high[h * 8u + i] = coded[at];
      low[h * 8u + i] = coded[at + 32u];
    }
  }

  // Of all runs so far; the sums of dimension `dim`.
  let dim = thread / 32u * 32u + thread % 8u * 4u + thread / 8u % 4u;
  var all_rows: array<f32, HEADS>;
  var all_codes: array<f32, HEADS>;
  var all_greatest: array<f32, HEADS>;
  var all_sum: array<f32, HEADS>;

  for (var run = task.run_begin; run < task.run_end; run++) {
    let seen = min(task.position + 1u - run * kRunPositions, kRunPositions);
    let blocks = (seen + 31u) / 32u;
    let first_block = run * kRunBlocks;
    if (thread < 8u * kRunBlocks) {
      let id = step[task.blocks + first_block + min(thread / 8u, blocks - 1u)];
      let side = thread / 4u % 2u;
      let plane = thread % 4u;
      let table = place.tables_at + (id * 2u + side) * kUnitsOfSide;
      var of_plane = plane;
      var in_unit = kv_head * 64u;
      if (plane == 2u) {
        of_plane = 2u + kv_head / 4u;
        in_unit = kv_head % 4u * 128u;
      } else if (plane == 3u) {
        of_plane = 4u + kv_head;
        in_unit = 0u;
      }
      places[thread] = tables[table + of_plane] * 512u + in_unit;
      ids[thread / 8u] = id;
    }
    workgroupBarrier();

    for (var first = 0u; first < blocks; first += BLOCKS) {
      var hi2: array<vec2<u32>, BLOCKS>;
      var mid2: array<vec2<u32>, BLOCKS>;
      var low4: array<vec4<u32>, BLOCKS>;
      var widest = 0u;
      for (var i = 0u; i < BLOCKS; i++) {
        let b = min(first + i, blocks - 1u);
        let width = widths(query_block, first_block + b).x;
        widest = max(widest, select(width, 0u, width == kRows));
        let at = row * 2u + lane / 2u;
        hi2[i] = pair_at(places[b * 8u] + at, lane);
        mid2[i] = pair_at(places[b * 8u + 1u] + at, lane);
      }
      if (widest == 8u) {
        for (var i = 0u; i < BLOCKS; i++) {
          let at = places[min(first + i, blocks - 1u) * 8u + 2u] + row * 4u + lane / 2u;
          low4[i] = vec4<u32>(pair_at(at, lane), pair_at(at + 2u, lane));
        }
      }
      for (var i = 0u; i < BLOCKS; i++) {
        let b = first + i;
        if (b >= blocks) { break; }
        let width = widths(query_block, first_block + b).x;
        let to = lane * kLaneStride + i * 32u + row;
        if (width == kRows) {
          // Past the last position the last one is read again: its score is not used.
          let position = min(b * 32u + row, seen - 1u) % 32u;
          let at = places[b * 8u + 3u] + position * 16u + lane;
          let q = (task.row * kQkvQuads + first_head * 32u) + lane * 2u;
          for (var h = 0u; h < HEADS; h++) {
            var c = 0.0;
            for (var k = 0u; k < 4u; k++) {
              c = chain(c, cache[at + 4u * k], qkv[q + h * 32u + 8u * k],
                        qkv[q + h * 32u + 8u * k + 1u]);
            }
            pool[to + h * BATCH] = bitcast<u32>(c);
          }
          continue;
        }
        let flip = vec4<u32>(0x80808080u);
        let k0 = code_bytes(width, hi2[i].x, mid2[i].x, low4[i].xz) ^ flip;
        let k1 = code_bytes(width, hi2[i].y, mid2[i].y, low4[i].yw) ^ flip;
        for (var h = 0u; h < HEADS; h++) {
          var upper = 0;
          var lower = 0;
          for (var g = 0u; g < 4u; g++) {
            upper += dot4I8Packed(k0[g], high[h * 8u + g]);
            lower += dot4I8Packed(k0[g], low[h * 8u + g]);
            upper += dot4I8Packed(k1[g], high[h * 8u + 4u + g]);
            lower += dot4I8Packed(k1[g], low[h * 8u + 4u + g]);
          }
          pool[to + h * BATCH] = bitcast<u32>(upper * 256 + lower);
        }
      }
      workgroupBarrier();
      for (var i = thread; i < HEADS * BATCH; i += THREADS) {
        let h = i / BATCH;
        let position = first * 32u + i % BATCH;
        let b = position / 32u;
        let to = h * kHeadStride + b * kBlockStride + position % 32u;
        if (position >= seen) {
          weights[to] = kNothing;
          continue;
        }
        let width = widths(query_block, first_block + b).x;
        let lanes = vec4<u32>(pool[i], pool[kLaneStride + i], pool[2u * kLaneStride + i],
                              pool[3u * kLaneStride + i]);
        if (width == kRows) {
          let c = bitcast<vec4<f32>>(lanes);
          weights[to] = ((c.x + c.y) + (c.z + c.w)) * kScoreScale;
        } else {
          let s = bitcast<vec4<i32>>(lanes);
          let at = parameters_at(ids[b], 0u, kv_head, position % 32u, width);
          let query = query_at + h * kCodedWords + 64u;
          weights[to] = code_score(s.x + s.y + s.z + s.w, bitcast<i32>(coded[query + 1u]),
                                   bitcast<f32>(coded[query]), width,
                                   half_of(words[at], position), half_of(words[at + 128u], position));
        }
      }
      workgroupBarrier();
    }

    if (thread < HEADS * kRunBlocks) {
      var most = kNothing;
      if (thread % kRunBlocks < blocks) {
        for (var i = 0u; i < 32u; i++) { most = max(most, weights[thread * kBlockStride + i]); }
      }
      greatest[thread] = most;
    }
    workgroupBarrier();
    if (thread < HEADS * kRunBlocks) {
      var before = kNothing;
      for (var b = thread / kRunBlocks * kRunBlocks; b < thread; b++) {
        before = max(before, greatest[b]);
      }
      factors[thread] = power_of_two(before - max(before, greatest[thread]));
    }
    for (var i = thread; i < HEADS * kRunPositions; i += THREADS) {
      let head_block = i / 32u;  // [head][block]
      let b = head_block % kRunBlocks;
      var now = kNothing;
      for (var e = head_block - b; e <= head_block; e++) { now = max(now, greatest[e]); }
      let at = head_block * kBlockStride + i % 32u;
      var w = 0.0;
      var scaled = 0.0;
      var offset = 0.0;
      if (i % kRunPositions < seen) {
        w = power_of_two(weights[at] - now);
        scaled = w;
        let width = widths(query_block, first_block + b).y;
        if (width != kRows) {
          let parameters = parameters_at(ids[b], 1u, kv_head, i % 32u, width);
          scaled = w * half_of(words[parameters], i);
          offset = w * half_of(words[parameters + 128u], i);
        }
      }
      weights[at] = scaled;
      pool[at] = bitcast<u32>(w);
      pool[HEADS * kHeadStride + at] = bitcast<u32>(offset);
    }
    workgroupBarrier();
    for (var i = thread; i < 3u * HEADS * kRunBlocks; i += THREADS) {
      let kind = i / (HEADS * kRunBlocks);
      var s = vec4<f32>(0.0);
      for (var p = 0u; p < 32u; p += 4u) {
        let at = i % (HEADS * kRunBlocks) * kBlockStride + p;
        if (kind == 1u) {
          s += vec4<f32>(weights[at], weights[at + 1u], weights[at + 2u], weights[at + 3u]);
        } else {
          let source = at + select(0u, HEADS * kHeadStride, kind == 2u);
          s += bitcast<vec4<f32>>(vec4<u32>(pool[source], pool[source + 1u], pool[source + 2u],
                                            pool[source + 3u]));
        }
      }
      sums[i] = (s.x + s.y) + (s.z + s.w);
    }
    workgroupBarrier();

    var rows: array<f32, HEADS>;
    var codes: array<f32, HEADS>;
    for (var h = 0u; h < HEADS; h++) {
      rows[h] = 0.0;
      codes[h] = 0.0;
    }
    for (var first = 0u; first < blocks; first += 4u) {
      let b = first + thread / 32u;
      let word = thread % 8u;
      let class_of = thread / 8u % 4u;
      var acc: array<vec4<f32>, 4u * HEADS>;
      for (var i = 0u; i < 4u * HEADS; i++) { acc[i] = vec4<f32>(0.0); }
      if (b < blocks) {
        let width = widths(query_block, first_block + b).y;
        if (width == kRows) {
          let here = min(seen - b * 32u, 32u);
          let at = places[b * 8u + 7u] + thread % 32u / 2u;
          for (var p = 0u; p < here; p++) {
            let v = pair_at(at + p * 16u, thread);
            let x = bitcast<vec4<f32>>(vec4<u32>(v.x << 16u, v.x & 0xffff0000u, v.y << 16u,
                                                 v.y & 0xffff0000u));
            for (var h = 0u; h < HEADS; h++) {
              let w = vec4<f32>(weights[h * kHeadStride + b * kBlockStride + p]);
              acc[4u * h] = fma(w, x, acc[4u * h]);
            }
          }
        } else {
          var hi2: array<u32, 8>;
          var mid2: array<u32, 8>;
          var low4: array<vec2<u32>, 8>;
          for (var i = 0u; i < 8u; i++) {
            let at = (4u * i + class_of) * 8u + word;
            hi2[i] = words[places[b * 8u + 4u] * 4u + at];
            mid2[i] = words[places[b * 8u + 5u] * 4u + at];
          }
          if (width == 8u) {
            for (var i = 0u; i < 8u; i++) {
              let at = places[b * 8u + 6u] * 4u + (4u * i + class_of) * 16u + word;
              low4[i] = vec2<u32>(words[at], words[at + 8u]);
            }
          }
          for (var i = 0u; i < 8u; i++) {
            let bytes = code_bytes(width, hi2[i], mid2[i], low4[i]);
            for (var g = 0u; g < 4u; g++) {
              let x = byte_floats(bytes[g]);
              for (var h = 0u; h < HEADS; h++) {
                let w = weights[h * kHeadStride + b * kBlockStride + 4u * i + class_of];
                acc[4u * h + g] = fma(vec4<f32>(w), x, acc[4u * h + g]);
              }
            }
          }
        }
      }
      for (var h = 0u; h < HEADS; h++) {
        if (b < blocks) {
          let to = thread / 32u * kValueStride;
          if (widths(query_block, first_block + b).y == kRows) {
            for (var i = 0u; i < 4u; i++) {
              pool[to + (class_of * 4u + i) * 8u + word] = bitcast<u32>(acc[4u * h][i]);
            }
          } else {
            for (var i = 0u; i < 16u; i++) {
              pool[to + class_of * kClassStride + i * 8u + word] =
                  bitcast<u32>(acc[4u * h + i / 4u][i % 4u]);
            }
          }
        }
        workgroupBarrier();
        for (var e = first; e < min(first + 4u, blocks); e++) {
          let source = (e - first) * kValueStride + thread;
          let width = widths(query_block, first_block + e).y;
          let at = h * kRunBlocks + e;
          let factor = factors[at];
          if (width == kRows) {
            rows[h] = fma(rows[h], factor, bitcast<f32>(pool[source]));
            codes[h] = codes[h] * factor;
          } else {
            let sum = ((bitcast<f32>(pool[source]) + bitcast<f32>(pool[source + kClassStride])) +
                       bitcast<f32>(pool[source + 2u * kClassStride])) +
                      bitcast<f32>(pool[source + 3u * kClassStride]);
            let as_values = code_values(width, sums[HEADS * kRunBlocks + at],
                                        sums[2u * HEADS * kRunBlocks + at]);
            codes[h] = fma(codes[h], factor, fma(sum, as_values.x, as_values.y));
            rows[h] = rows[h] * factor;
          }
        }
        workgroupBarrier();
      }
    }

    for (var h = 0u; h < HEADS; h++) {
      var sum = 0.0;
      var most = kNothing;
      for (var b = 0u; b < blocks; b++) {
        sum = fma(sum, factors[h * kRunBlocks + b], sums[h * kRunBlocks + b]);
        most = max(most, greatest[h * kRunBlocks + b]);
      }
      if (task.runs != 0u) {
        let at = ((task.state + run) * kQueryHeads + first_head + h) * kStateFloats;
        states[at + dim] = rows[h];
        states[at + 128u + dim] = codes[h];
        if (thread == 0u) {
          states[at + 256u] = most;
          states[at + 257u] = sum;
        }
      } else if (run == task.run_begin) {
        all_rows[h] = rows[h];
        all_codes[h] = codes[h];
        all_greatest[h] = most;
        all_sum[h] = sum;
      } else {
        let now = max(all_greatest[h], most);
        let before = power_of_two(all_greatest[h] - now);
        let own = power_of_two(most - now);
        all_rows[h] = fma(all_rows[h], before, rows[h] * own);
        all_codes[h] = fma(all_codes[h], before, codes[h] * own);
        all_sum[h] = fma(all_sum[h], before, sum * own);
        all_greatest[h] = now;
      }
    }
    workgroupBarrier();  // the next run's tables take the place of these
  }
  if (task.runs == 0u) {
    for (var h = 0u; h < HEADS; h++) {
      let out = finished(all_rows[h], all_codes[h], dim, thread) * (1.0 / all_sum[h]);
      ctx[(task.row * kQueryHeads + first_head + h) * 128u + dim] = out;
      workgroupBarrier();
    }
  }
}
