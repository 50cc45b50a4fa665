// What the kernels between qkv and ctx share. GROUP (query heads of a KV head) and VECTORS (sums of
// values apart: 1, of a tiered cache 2) are put in front.
//
// A query's result is a function of the query and of the positions it sees; every kernel makes it
// in this order, so that it has the same bits wherever it is computed:
//
//   score    four chains of fused multiply-adds, chain j over the dimensions 8 (4 k + j) .. + 7 of
//            k = 0 .. 3 in ascending order; (c0 + c1) + (c2 + c3); times kScoreScale in base 2
//   block    of 32 positions: the greatest score so far, weights 2^(score - greatest), their sums
//            of positions p, p + 4, ... as (s0 + s1) + (s2 + s3), and per dimension one chain of
//            the weighted values from 0
//   run      of 256 positions: total = total * 2^(greatest before - greatest) + block, block after
//            block
//   query    the states of runs, merged likewise in ascending order; then divided by the sum
//
// A step's tables lie in one buffer of words, written once per step (attention_plan.h).
const kRowsAt = 0u;    // header: where the tables begin
const kNarrowAt = 1u;
const kWideAt = 2u;
const kMergesAt = 3u;
const kCompletedAt = 4u;  // of a tiered cache
const kTaskWords = 8u;

@group(0) @binding(0) var<storage, read> step: array<u32>;

const kKvHeads = 8u;
const kRunPositions = 256u;
const kRunBlocks = 8u;
const kScoreScale = 0.12751743082;  // log2(e) / sqrt(128)
const kNothing = -1e30;             // below every score

const kQueryHeads = GROUP * kKvHeads;
const kQkvQuads = (kQueryHeads + 2u * kKvHeads) * 32u;  // of a row of qkv
// A state: VECTORS sums of weighted values, then the greatest score and the sum of weights.
const kStateFloats = 128u * VECTORS + 4u;
const kStateQuads = 32u * VECTORS + 1u;

struct Task {
  row: u32,
  tokens: u32,
  position: u32,   // of its first token
  blocks: u32,     // where its sequence's block table begins
  run_begin: u32,
  run_end: u32,
  state: u32,      // its first slot of states
  runs: u32,       // 0: these are all of its runs, slot state + token holds their total on the way;
                   // else of how many, and slot state + token * runs + run is a run's own
}

fn task_at(index: u32) -> Task {
  return Task(step[index], step[index + 1u], step[index + 2u], step[index + 3u], step[index + 4u],
              step[index + 5u], step[index + 6u], step[index + 7u]);
}

// Zero, which no compiler knows: tables are shorter than 2^31 words.
fn unknown_zero() -> u32 { return step[kRowsAt] >> 31u; }

// A product that is rounded before anything is added to it: left to itself, a compiler may fuse the
// two in one kernel and not in another, and takes fma(a, b, 0.0) for a plain product.
fn rounded_product(a: f32, b: f32) -> f32 {
  return bitcast<f32>(bitcast<u32>(a * b) | unknown_zero());
}

fn rounded_pair(a: vec2<f32>, b: f32) -> vec2<f32> {
  return bitcast<vec2<f32>>(bitcast<vec2<u32>>(a * b) | vec2<u32>(unknown_zero()));
}

// 2^x within 2 units in the last place for x <= 0, the same on every device. Nothing below 2^-125.
fn power_of_two(x: f32) -> f32 {
  let whole = floor(max(x, -126.0) + 0.5);
  let rest = max(x, -126.0) - whole;
  var p = 1.5252734e-5;
  p = fma(p, rest, 1.5403530e-4);
  p = fma(p, rest, 1.3333558e-3);
  p = fma(p, rest, 9.6181291e-3);
  p = fma(p, rest, 5.5504109e-2);
  p = fma(p, rest, 2.4022651e-1);
  p = fma(p, rest, 6.9314718e-1);
  p = fma(p, rest, 1.0);
  return select(0.0, p * bitcast<f32>(u32(i32(whole) + 127) << 23u), x >= -125.0);
}
