// For one row, with what comes before the product done on the way to it: bound by the bytes of W and
// by the gaps between dispatches. A workgroup makes one tile of eight outputs; LANES threads share
// an output and take its chunks of 64 columns in turns. The row goes through workgroup memory.
//
// Put in front: LANES, and INPUT, which says what a column of the row is:
//   0  x
//   1  x * norm, and outputs are multiplied by 1 / sqrt(mean(x^2) + 1e-6): the bits of rms_norm.wgsl
//      and a product after it. Of the head, x is the row whose logits are asked for.
//   2  silu(gate) * up of [gate | up], with the bits of silu_mul.wgsl
@group(0) @binding(6) var<storage, read> norm: array<vec4<f32>>;

const THREADS = 8u * LANES;
const ROUND = 64u * LANES;  // columns that all threads take at once
const SLOTS = 4u;           // rounds whose sums are kept before they are added up
const STRIDE = LANES / 4u + 1u;  // of an output's sums, four to a vector: spreads them over the banks

var<workgroup> row: array<vec4<f32>, ROUND / 4u>;
var<workgroup> sums: array<vec4<f32>, SLOTS * 8u * STRIDE>;  // [round][out][lane]

// Where the row begins, in fours.
fn row_at() -> u32 {
  return select(0u, step.first_logit_row * (shape.cols / 4u), shape.of_logits == 1u);
}

fn input(i: u32) -> vec4<f32> {
  let v = x[row_at() + i];
  if (INPUT == 1u) { return v * norm[i]; }
  if (INPUT == 2u) { return v / (1.0 + exp(-v)) * x[shape.cols / 4u + i]; }
  return v;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let tile = group.x;
  let out = thread % 8u;
  let lane = thread / 8u;
  let units = shape.cols / 32u;
  let chunks = (units + 1u) / 2u;
  // Weights are on their way while the row is made ready.
  var first = load_weights(tile, out, min(2u * lane, units - 1u), units);
  var second = load_weights(tile, out, min(2u * lane + 1u, units - 1u), units);
  if (INPUT == 1u) {
    for (var part = thread; part < 128u; part += THREADS) {
      sum_squares(part, row_at(), shape.cols / 4u);
    }
  }
  var total = 0.0;  // of output `thread`
  var slot = 0u;
  for (var round = 0u; round < chunks; round += LANES) {
    for (var i = thread; i < ROUND / 4u; i += THREADS) {
      let quad = round * 16u + i;
      if (quad < shape.cols / 4u) { row[i] = input(quad); }
    }
    workgroupBarrier();
    if (INPUT == 1u && round == 0u && thread < 8u) { fold_squares(thread); }
    let unit = 2u * (round + lane);
    var sum = 0.0;
    if (unit < units) {
      for (var j = 0u; j < 8u; j++) {
        let w = decode_x4(&first, j);
        let v = row[lane * 16u + j];
        sum = fma(w.w, v.w, fma(w.z, v.z, fma(w.y, v.y, fma(w.x, v.x, sum))));
      }
    }
    if (unit + 1u < units) {
      for (var j = 0u; j < 8u; j++) {
        let w = decode_x4(&second, j);
        let v = row[lane * 16u + 8u + j];
        sum = fma(w.w, v.w, fma(w.z, v.z, fma(w.y, v.y, fma(w.x, v.x, sum))));
      }
    }
    let next = unit + 2u * LANES;
    if (round + LANES < chunks) {
      first = load_weights(tile, out, min(next, units - 1u), units);
      second = load_weights(tile, out, min(next + 1u, units - 1u), units);
    }
    sums[(slot * 8u + out) * STRIDE + lane / 4u][lane % 4u] = sum;
    workgroupBarrier();
    slot++;
    if (slot == SLOTS || round + LANES >= chunks) {
      // What no chunk was summed into is zero and changes nothing: the total is never minus zero.
      if (thread < 8u) {
        for (var s = 0u; s < slot; s++) {
          for (var l = 0u; l < LANES / 4u; l++) {
            let four = sums[(s * 8u + thread) * STRIDE + l];
            total = (((total + four.x) + four.y) + four.z) + four.w;
          }
        }
      }
      slot = 0u;
    }
  }
  if (thread < 8u) {
    if (INPUT == 1u) { total *= inverse_size(shape.cols); }
    store(0u, tile * 8u + thread, total);
  }
}
