// The size of a row of x, in one order for all: 128 sums of every 128th four columns, eight sums of
// 16 of these, and three halvings. A barrier lies between one step and the next.
var<workgroup> squares: array<vec4<f32>, 32>;
var<workgroup> eighths: array<f32, 8>;

// Sum `part` (0..127) of the row of `quads` fours that begins at `at`.
fn sum_squares(part: u32, at: u32, quads: u32) {
  var sum = 0.0;
  for (var i = part; i < quads; i += 128u) {
    let v = x[at + i];
    sum = fma(v.w, v.w, fma(v.z, v.z, fma(v.y, v.y, fma(v.x, v.x, sum))));
  }
  squares[part / 4u][part % 4u] = sum;
}

fn fold_squares(eighth: u32) {
  var sum = 0.0;
  for (var i = 0u; i < 4u; i++) {
    let four = squares[eighth * 4u + i];
    sum = (((sum + four.x) + four.y) + four.z) + four.w;
  }
  eighths[eighth] = sum;
}

fn inverse_size(cols: u32) -> f32 {
  let sum = ((eighths[0] + eighths[1]) + (eighths[2] + eighths[3])) +
            ((eighths[4] + eighths[5]) + (eighths[6] + eighths[7]));
  return 1.0 / sqrt(sum / f32(cols) + 1e-6);
}
