// For many rows: bound by multiply-adds. A workgroup of 16 x 16 threads makes 16 * TM rows by
// 16 * TN outputs, 32 columns at a time through workgroup memory, where W is decoded once for all
// rows. Thread (tx, ty) has rows ty, ty + 16, ... and outputs 4 tx, 4 tx + 1, ... + 3 of every 64.
// TM and TN (a multiple of 4) are put in front.

@group(0) @binding(6) var<storage, read> inverse: array<f32>;  // of each row, of normed products

fn factor_of(row: u32) -> f32 {
  if (shape.normed == 1u) { return inverse[row]; }
  return 1.0;
}

const BM = 16u * TM;
const BN = 16u * TN;
const QN = TN / 4u;      // groups of four outputs
const STRIDE = BM + 1u;  // spreads the columns of one row over the banks

var<workgroup> xs: array<vec4<f32>, 8u * STRIDE>;     // [column / 4][row]
var<workgroup> ws: array<vec4<f32>, 32u * BN / 4u>;   // [column][out / 4]

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let tx = thread % 16u;
  let ty = thread / 16u;
  let first_out = group.x * BN;
  let first_row = group.y * BM;
  let rows = rows_of_step();
  let units = shape.cols / 32u;
  var acc: array<vec4<f32>, TM * QN>;
  var total: array<vec4<f32>, TM * QN>;
  for (var i = 0u; i < TM * QN; i++) {
    acc[i] = vec4<f32>(0.0);
    total[i] = vec4<f32>(0.0);
  }
  for (var unit = 0u; unit < units; unit++) {
    for (var i = thread; i < BM * 8u; i += 256u) {
      let row = i / 8u;
      let source = min(first_row + row, rows - 1u);
      xs[(i % 8u) * STRIDE + row] = x[(source * shape.cols + unit * 32u) / 4u + i % 8u];
    }
    if (thread < BN) {
      let out = min(first_out + thread, shape.outs - 1u);
      var stored = load_weights(out / 8u, out % 8u, unit, units);
      for (var j = 0u; j < 8u; j++) {
        let w = decode_x4(&stored, j);
        for (var k = 0u; k < 4u; k++) {
          ws[(4u * j + k) * (BN / 4u) + thread / 4u][thread % 4u] = w[k];
        }
      }
    }
    workgroupBarrier();
    for (var j = 0u; j < 8u; j++) {
      var a: array<vec4<f32>, TM>;
      for (var m = 0u; m < TM; m++) { a[m] = xs[j * STRIDE + ty + 16u * m]; }
      for (var k = 0u; k < 4u; k++) {
        for (var n = 0u; n < QN; n++) {
          let b = ws[(4u * j + k) * (BN / 4u) + tx + 16u * n];
          for (var m = 0u; m < TM; m++) {
            acc[m * QN + n] = fma(vec4<f32>(a[m][k]), b, acc[m * QN + n]);
          }
        }
      }
    }
    if (unit % 2u == 1u || unit + 1u == units) {
      for (var i = 0u; i < TM * QN; i++) {
        total[i] += acc[i];
        acc[i] = vec4<f32>(0.0);
      }
    }
    workgroupBarrier();
  }
  for (var m = 0u; m < TM; m++) {
    let row = first_row + ty + 16u * m;
    if (row >= rows) { continue; }
    let factor = factor_of(row);
    for (var n = 0u; n < QN; n++) {
      let out = first_out + 64u * n + 4u * tx;
      for (var i = 0u; i < 4u; i++) {
        if (out + i < shape.outs) { store(row, out + i, total[m * QN + n][i] * factor); }
      }
    }
  }
}
