// For a few rows: bound by the bytes of W, which are read once for ROWS rows. A workgroup makes one
// tile of eight outputs for ROWS rows; LANES threads share an output and take its chunks of 64
// columns in turns. ROWS and LANES (at least ROWS) are put in front.

@group(0) @binding(6) var<storage, read> inverse: array<f32>;  // of each row, of normed products

fn factor_of(row: u32) -> f32 {
  if (shape.normed == 1u) { return inverse[row]; }
  return 1.0;
}

const THREADS = 8u * LANES;

var<workgroup> sums: array<f32, THREADS * ROWS>;  // [lane][row][out] of a round of chunks

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let tile = group.x;
  let first_row = group.y * ROWS;
  let rows = rows_of_step();
  let out = thread % 8u;
  let lane = thread / 8u;
  let units = shape.cols / 32u;
  let chunks = (units + 1u) / 2u;
  var total = 0.0;  // of output thread % 8 of row thread / 8
  for (var round = 0u; round < chunks; round += LANES) {
    var acc: array<f32, ROWS>;
    for (var r = 0u; r < ROWS; r++) { acc[r] = 0.0; }
    let end = min(2u * (round + lane) + 2u, units);
    for (var unit = 2u * (round + lane); unit < end; unit++) {
      var w = load_weights(tile, out, unit, units);
      for (var j = 0u; j < 8u; j++) {
        let w4 = decode_x4(&w, j);
        for (var r = 0u; r < ROWS; r++) {
          let v = x[(min(first_row + r, rows - 1u) * shape.cols + unit * 32u) / 4u + j];
          acc[r] = fma(w4.w, v.w, fma(w4.z, v.z, fma(w4.y, v.y, fma(w4.x, v.x, acc[r]))));
        }
      }
    }
    for (var r = 0u; r < ROWS; r++) { sums[(lane * ROWS + r) * 8u + out] = acc[r]; }
    workgroupBarrier();
    // What no chunk was summed into is zero and changes nothing: the total is never minus zero.
    if (lane < ROWS) {
      for (var l = 0u; l < LANES; l++) { total += sums[l * ROWS * 8u + thread]; }
    }
    workgroupBarrier();
  }
  if (lane < ROWS && first_row + lane < rows) {
    store(first_row + lane, tile * 8u + out, total * factor_of(first_row + lane));
  }
}
