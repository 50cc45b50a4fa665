// As attend_narrow.wgsl, over bit planes: two to four times fewer bytes, which have to be unpacked.
// Needs tiered.wgsl, attend_codes.wgsl and lanes_*.wgsl. HEADS as there; BATCH is 32 times the blocks
// whose sums of values lie in workgroup memory at once.
//
//   keys     thread (position of 64, lane): words 2 lane, 2 lane + 1 of its planes' rows, of two
//            positions at a time
//   values   thread (block of the run, class, word): word `word` of positions class, class + 4, ...;
//            of BF16 rows four dimensions of all positions
@group(0) @binding(1) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> cache: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> words: array<u32>;   // the same memory
@group(0) @binding(4) var<storage, read> tables: array<u32>;
@group(0) @binding(5) var<storage, read> turned: array<f32>;  // [row][query head][kTurnedFloats]
@group(0) @binding(6) var<storage, read_write> states: array<f32>;
@group(0) @binding(7) var<storage, read_write> ctx: array<f32>;

const THREADS = 256u;
const PARTS = GROUP / HEADS;
const PAIRS = (HEADS + 1u) / 2u;
const kBlockStride = 33u;                        // of scores: spreads blocks over the banks
const kHeadStride = kRunBlocks * kBlockStride;
const SLOTS = BATCH / 32u;
const kLaneStride = HEADS * 128u + 8u;
const kClassStride = 136u;                       // of values' sums
const kValueStride = 4u * kClassStride;

var<workgroup> places: array<u32, 8u * kRunBlocks>;  // [block][key, value][hi2, mid2, low4, bf16]
var<workgroup> read_at: array<vec2<u32>, kRunBlocks>;  // widths of keys and values
var<workgroup> ids: array<u32, kRunBlocks>;
var<workgroup> queries: array<vec4<f32>, HEADS * 32u>;  // [head][word]
var<workgroup> query_sums: array<f32, HEADS>;
var<workgroup> weights: array<f32, HEADS * kHeadStride>;  // scores; then times scales of values
var<workgroup> pool: array<u32, max(max(4u * kLaneStride, 2u * HEADS * kHeadStride),
                                    SLOTS * kValueStride)>;
var<workgroup> values: array<f32, HEADS * kRunBlocks * 128u>;  // weighted sums of blocks
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

// Words with scale and offset of a position; of rows, which have none, any.
fn parameter_words(block: u32, value: u32, head: u32, position: u32) -> vec2<u32> {
  let width = read_at[block][value];
  let at = parameters_at(ids[block], value, head, position, width);
  if (width == kRows) { return vec2<u32>(0u); }
  return vec2<u32>(words[at], words[at + 128u]);
}

// What a lane needs of one position's key codes.
struct KeyPiece {
  hi2: vec2<u32>,
  mid2: vec2<u32>,
  low4: vec4<u32>,
  parameters: vec2<u32>,
  width: u32,
}

fn key_piece(block: u32, kv_head: u32, row: u32, lane: u32) -> KeyPiece {
  let at = row * 2u + lane / 2u;
  var piece: KeyPiece;
  piece.hi2 = pair_at(places[block * 8u] + at, lane);
  piece.mid2 = pair_at(places[block * 8u + 1u] + at, lane);
  if (read_at[block].x == 8u) {
    let low = places[block * 8u + 2u] + row * 4u + lane / 2u;
    piece.low4 = vec4<u32>(pair_at(low, lane), pair_at(low + 2u, lane));
  }
  piece.parameters = parameter_words(block, 0u, kv_head, row);
  piece.width = read_at[block].x;
  return piece;
}

// A lane's chain over a BF16 row. Past the last position the last one is read again: its score is
// not used.
fn row_part(block: u32, row: u32, lane: u32, seen: u32, token: u32, head: u32) -> f32 {
  let position = min(block * 32u + row, seen - 1u) % 32u;
  let at = places[block * 8u + 3u] + position * 16u + lane;
  let q = token * kQkvQuads + head * 32u + lane * 2u;
  var c = 0.0;
  for (var k = 0u; k < 4u; k++) {
    c = chain(c, cache[at + 4u * k], qkv[q + 8u * k], qkv[q + 8u * k + 1u]);
  }
  return c;
}

fn lanes_in_pool(at: u32) -> f32 {
  return (bitcast<f32>(pool[at]) + bitcast<f32>(pool[kLaneStride + at])) +
         (bitcast<f32>(pool[2u * kLaneStride + at]) + bitcast<f32>(pool[3u * kLaneStride + at]));
}

fn keep_score(head: u32, block: u32, row: u32, seen: u32, chains: f32, piece: KeyPiece) {
  var score = rounded_product(chains, kScoreScale);
  if (piece.width != kRows) {
    score = code_score(chains, query_sums[head], piece.width, half_of(piece.parameters.x, row),
                       half_of(piece.parameters.y, row));
  }
  weights[head * kHeadStride + block * kBlockStride + row] =
      select(kNothing, score, block * 32u + row < seen);
}

// A thread's sums of a head into `pool`, if its block is one of SLOTS from `first` on.
fn put_sums(first: u32, thread: u32, acc: array<vec4<f32>, 4>) {
  let block = thread / 32u;
  if (block < first || block >= first + SLOTS) { return; }
  let of_rows = read_at[block].y == kRows;
  var to = (block - first) * kValueStride + thread % 8u;
  if (of_rows) {
    to += thread / 8u % 4u * 32u;
  } else {
    to += thread / 8u % 4u * kClassStride;
  }
  for (var g = 0u; g < 4u; g++) {
    if (of_rows && g > 0u) { break; }
    pool[to + g * 32u] = bitcast<u32>(acc[g].x);
    pool[to + g * 32u + 8u] = bitcast<u32>(acc[g].y);
    pool[to + g * 32u + 16u] = bitcast<u32>(acc[g].z);
    pool[to + g * 32u + 24u] = bitcast<u32>(acc[g].w);
  }
}

// The classes of those sums added up, as values.
fn put_values(first: u32, head: u32, thread: u32) {
  for (var i = 0u; i < SLOTS; i += 2u) {
    let slot = i + thread / 128u;
    let b = first + slot;
    let source = slot * kValueStride + thread % 128u;
    let c0 = bitcast<f32>(pool[source]);
    let sum = ((c0 + bitcast<f32>(pool[source + kClassStride])) +
               bitcast<f32>(pool[source + 2u * kClassStride])) +
              bitcast<f32>(pool[source + 3u * kClassStride]);
    let as_values = code_values(read_at[b].y, sums[(HEADS + head) * kRunBlocks + b],
                                sums[(2u * HEADS + head) * kRunBlocks + b]);
    values[(head * kRunBlocks + b) * 128u + thread % 128u] =
        select(fma(sum, as_values.x, as_values.y), c0, read_at[b].y == kRows);
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let task = task_at(step[kNarrowAt] + group.x * kTaskWords);
  let kv_head = group.y / PARTS;
  let first_head = kv_head * GROUP + group.y % PARTS * HEADS;
  let lane = thread % 4u;
  let row = thread / 4u % 32u;
  let key_block = thread / 128u;  // of two
  let block = thread / 32u;       // of values
  let word = thread % 8u;
  let class_of = thread / 8u % 4u;
  let query_at = (task.row * kQueryHeads + first_head) * kTurnedFloats;

  for (var i = thread; i < HEADS * 32u; i += THREADS) {
    let at = query_at + i / 32u * kTurnedFloats + i % 32u * 4u;
    queries[i] = vec4<f32>(turned[at], turned[at + 1u], turned[at + 2u], turned[at + 3u]);
  }
  if (thread < HEADS) { query_sums[thread] = turned[query_at + thread * kTurnedFloats + 128u]; }

  // Of all runs so far; the sums of dimension `dim` of every other head.
  let dim = thread % 128u / 32u * 32u + thread % 8u * 4u + thread / 8u % 4u;
  var all_rows: array<f32, PAIRS>;
  var all_codes: array<f32, PAIRS>;
  var all_greatest: array<f32, PAIRS>;
  var all_sum: array<f32, PAIRS>;

  for (var run = task.run_begin; run < task.run_end; run++) {
    let seen = min(task.position + 1u - run * kRunPositions, kRunPositions);
    let blocks = (seen + 31u) / 32u;
    if (thread < 8u * kRunBlocks) {
      let b = thread / 8u;
      let id = step[task.blocks + run * kRunBlocks + min(b, blocks - 1u)];
      let side = thread / 4u % 2u;
      let plane = thread % 4u;
      var of_plane = plane;
      var in_unit = kv_head * 64u;
      if (plane == 2u) {
        of_plane = 2u + kv_head / 4u;
        in_unit = kv_head % 4u * 128u;
      } else if (plane == 3u) {
        of_plane = 4u + kv_head;
        in_unit = 0u;
      }
      let table = place.tables_at + (id * 2u + side) * kUnitsOfSide;
      places[thread] = tables[table + of_plane] * 512u + in_unit;
      ids[b] = id;
      read_at[b] = widths(task.position / 32u, run * kRunBlocks + min(b, blocks - 1u));
    }
    workgroupBarrier();

    let value_width = read_at[block].y;
    let value_parameters = parameter_words(block, 1u, kv_head, thread % 32u);
    // The bound is not constant, so that this stays a loop: unrolled, it takes so many registers that
    // a processor has one workgroup at a time.
    for (var first = 0u; first < blocks; first += 4u) {
      let b1 = first + key_block;
      let b2 = b1 + 2u;
      let piece1 = key_piece(b1, kv_head, row, lane);
      let piece2 = key_piece(b2, kv_head, row, lane);
      var part1: array<f32, HEADS>;
      var part2: array<f32, HEADS>;
      for (var h = 0u; h < HEADS; h++) {
        part1[h] = 0.0;
        part2[h] = 0.0;
      }
      for (var i = 0u; i < 2u; i++) {
        let bytes1 = code_bytes(piece1.width, piece1.hi2[i], piece1.mid2[i],
                                vec2<u32>(piece1.low4[i], piece1.low4[2u + i]));
        let bytes2 = code_bytes(piece2.width, piece2.hi2[i], piece2.mid2[i],
                                vec2<u32>(piece2.low4[i], piece2.low4[2u + i]));
        for (var g = 0u; g < 4u; g++) {
          let x1 = byte_floats(bytes1[g]);
          let x2 = byte_floats(bytes2[g]);
          for (var h = 0u; h < HEADS; h++) {
            let q = queries[h * 32u + 8u * g + 2u * lane + i];
            part1[h] = word_chain(part1[h], x1, q);
            part2[h] = word_chain(part2[h], x2, q);
          }
        }
      }
      for (var h = 0u; h < HEADS; h++) {
        let head = first_head + h;
        if (piece1.width == kRows) { part1[h] = row_part(b1, row, lane, seen, task.row, head); }
        if (piece2.width == kRows) { part2[h] = row_part(b2, row, lane, seen, task.row, head); }
      }
      if (!SUBGROUPS) {
        for (var h = 0u; h < HEADS; h++) {
          pool[lane * kLaneStride + h * 128u + thread / 4u] = bitcast<u32>(part1[h]);
          pool[lane * kLaneStride + h * 128u + 64u + thread / 4u] = bitcast<u32>(part2[h]);
        }
        workgroupBarrier();
      }
      for (var h = 0u; h < HEADS; h++) {
        var chains: vec2<f32>;
        if (SUBGROUPS) {
          chains = vec2<f32>(sum_of_four_lanes(part1[h]), sum_of_four_lanes(part2[h]));
        } else {
          chains = vec2<f32>(lanes_in_pool(h * 128u + thread / 4u),
                             lanes_in_pool(h * 128u + 64u + thread / 4u));
        }
        if (lane == h % 4u) {
          keep_score(h, b1, row, seen, chains.x, piece1);
          keep_score(h, b2, row, seen, chains.y, piece2);
        }
      }
      if (!SUBGROUPS) { workgroupBarrier(); }
    }
    workgroupBarrier();

    // Values are asked for while weights are made.
    var value_hi2: array<u32, 8>;
    var value_mid2: array<u32, 8>;
    for (var i = 0u; i < 8u; i++) {
      let at = (4u * i + class_of) * 8u + word;
      value_hi2[i] = words[places[block * 8u + 4u] * 4u + at];
      value_mid2[i] = words[places[block * 8u + 5u] * 4u + at];
    }

    if (thread < HEADS * kRunBlocks) {
      var most = kNothing;
      for (var i = 0u; i < 32u; i++) { most = max(most, weights[thread * kBlockStride + i]); }
      // A block that is not seen has no scores.
      greatest[thread] = select(kNothing, most, thread % kRunBlocks < blocks);
    }
    workgroupBarrier();
    for (var h = 0u; h < HEADS; h++) {
      var before = kNothing;
      for (var b = 0u; b < kRunBlocks; b++) {
        before = select(before, max(before, greatest[h * kRunBlocks + b]), b < block);
      }
      let now = max(before, greatest[h * kRunBlocks + block]);
      let at = h * kHeadStride + block * kBlockStride + thread % 32u;
      let w = select(0.0, power_of_two(weights[at] - now), thread < seen);
      var scaled = w;
      var offset = 0.0;
      if (read_at[block].y != kRows) {
        scaled = rounded_product(w, half_of(value_parameters.x, thread));
        offset = rounded_product(w, half_of(value_parameters.y, thread));
      }
      if (thread % 32u == 0u) { factors[h * kRunBlocks + block] = power_of_two(before - now); }
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

    // Two heads at a time, of which the sums of dimensions that a thread has are `one` and `two`.
    for (var pair = 0u; pair < PAIRS; pair++) {
      let h1 = 2u * pair;
      let h2 = min(h1 + 1u, HEADS - 1u);
      let weights1 = h1 * kHeadStride + block * kBlockStride;
      let weights2 = h2 * kHeadStride + block * kBlockStride;
      var one: array<vec4<f32>, 4>;
      var two: array<vec4<f32>, 4>;
      for (var g = 0u; g < 4u; g++) {
        one[g] = vec4<f32>(0.0);
        two[g] = vec4<f32>(0.0);
      }
      if (block < blocks && value_width == kRows) {
        let last = min(seen - block * 32u, 32u) - 1u;
        let at = places[block * 8u + 7u] + thread % 32u / 2u;
        for (var first = 0u; first < 32u; first += 8u) {
          // Past the last position weights are zero.
          var v: array<vec2<u32>, 8>;
          for (var i = 0u; i < 8u; i++) { v[i] = pair_at(at + min(first + i, last) * 16u, thread); }
          for (var i = 0u; i < 8u; i++) {
            let x = bitcast<vec4<f32>>(vec4<u32>(v[i].x << 16u, v[i].x & 0xffff0000u,
                                                 v[i].y << 16u, v[i].y & 0xffff0000u));
            one[0] = fma(vec4<f32>(weights[weights1 + first + i]), x, one[0]);
            two[0] = fma(vec4<f32>(weights[weights2 + first + i]), x, two[0]);
          }
        }
      } else if (block < blocks) {
        var low4: array<vec2<u32>, 8>;
        if (value_width == 8u) {
          for (var i = 0u; i < 8u; i++) {
            let at = places[block * 8u + 6u] * 4u + (4u * i + class_of) * 16u + word;
            low4[i] = vec2<u32>(words[at], words[at + 8u]);
          }
        }
        for (var i = 0u; i < 8u; i++) {
          let bytes = code_bytes(value_width, value_hi2[i], value_mid2[i], low4[i]);
          let w1 = vec4<f32>(weights[weights1 + 4u * i + class_of]);
          let w2 = vec4<f32>(weights[weights2 + 4u * i + class_of]);
          for (var g = 0u; g < 4u; g++) {
            let x = byte_floats(bytes[g]);
            one[g] = fma(w1, x, one[g]);
            two[g] = fma(w2, x, two[g]);
          }
        }
      }
      workgroupBarrier();
      for (var first = 0u; first < kRunBlocks; first += SLOTS) {
        put_sums(first, thread, one);
        workgroupBarrier();
        put_values(first, h1, thread);
        workgroupBarrier();
        put_sums(first, thread, two);
        workgroupBarrier();
        put_values(first, h2, thread);
        workgroupBarrier();
      }
    }

    for (var pair = 0u; pair < PAIRS; pair++) {
      let h = 2u * pair + thread / 128u;
      if (h >= HEADS) { continue; }
      var rows = 0.0;
      var codes = 0.0;
      var sum = 0.0;
      var most = kNothing;
      for (var b = 0u; b < kRunBlocks; b++) {
        let factor = factors[h * kRunBlocks + b];
        let x = values[(h * kRunBlocks + b) * 128u + thread % 128u];
        let of_rows = read_at[b].y == kRows;
        let next_rows = fma(rows, factor, select(0.0, x, of_rows));
        let next_codes = fma(codes, factor, select(x, 0.0, of_rows));
        rows = select(rows, next_rows, b < blocks);
        codes = select(codes, next_codes, b < blocks);
        sum = select(sum, fma(sum, factor, sums[h * kRunBlocks + b]), b < blocks);
        most = max(most, greatest[h * kRunBlocks + b]);
      }
      if (task.runs != 0u) {
        let at = ((task.state + run) * kQueryHeads + first_head + h) * kStateFloats;
        states[at + dim] = rows;
        states[at + 128u + dim] = codes;
        if (thread % 128u == 0u) {
          states[at + 256u] = most;
          states[at + 257u] = sum;
        }
      } else if (run == task.run_begin) {
        all_rows[pair] = rows;
        all_codes[pair] = codes;
        all_greatest[pair] = most;
        all_sum[pair] = sum;
      } else {
        let now = max(all_greatest[pair], most);
        let before = power_of_two(all_greatest[pair] - now);
        let own = power_of_two(most - now);
        all_rows[pair] = fma(all_rows[pair], before, rows * own);
        all_codes[pair] = fma(all_codes[pair], before, codes * own);
        all_sum[pair] = fma(all_sum[pair], before, sum * own);
        all_greatest[pair] = now;
      }
    }
    workgroupBarrier();  // the next run's tables take the place of these
  }
  if (task.runs == 0u) {
    for (var pair = 0u; pair < PAIRS; pair++) {
      let h = 2u * pair + thread / 128u;
      let out = finished(all_rows[pair], all_codes[pair], dim, thread);
      if (h < HEADS) {
        ctx[(task.row * kQueryHeads + first_head + h) * 128u + dim] = out * (1.0 / all_sum[pair]);
      }
      workgroupBarrier();
    }
  }
}
