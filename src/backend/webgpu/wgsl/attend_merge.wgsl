// Joins the states that the runs of a split token left, in ascending order: one workgroup for a
// token and a query head, one thread for a dimension. finished() comes from attend_rows.wgsl or
// attend_codes.wgsl.
@group(0) @binding(1) var<storage, read> states: array<f32>;
@group(0) @binding(2) var<storage, read_write> ctx: array<f32>;

const THREADS = 128u;
const kMergeWords = 4u;  // row, runs, the state of its first run

var<workgroup> most: array<f32, THREADS>;     // of runs; then of all runs up to it
var<workgroup> before: array<f32, THREADS>;   // factors of what was before, and of the run
var<workgroup> own: array<f32, THREADS>;
var<workgroup> sums: array<f32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let merge = step[kMergesAt] + group.x * kMergeWords;
  let runs = step[merge + 1u];
  let first = step[merge + 2u];
  var out = 0.0;
  var codes = 0.0;
  var sum = 0.0;
  var greatest = kNothing;
  for (var begin = 0u; begin < runs; begin += THREADS) {
    let here = min(runs - begin, THREADS);
    let at = ((first + begin) * kQueryHeads + group.y) * kStateFloats;
    let stride = kQueryHeads * kStateFloats;
    if (thread < here) {
      most[thread] = states[at + thread * stride + 128u * VECTORS];
      sums[thread] = states[at + thread * stride + 128u * VECTORS + 1u];
    }
    workgroupBarrier();
    if (thread < here) {
      var earlier = greatest;
      for (var i = 0u; i < thread; i++) { earlier = max(earlier, most[i]); }
      let now = max(earlier, most[thread]);
      before[thread] = power_of_two(earlier - now);
      own[thread] = power_of_two(most[thread] - now);
    }
    workgroupBarrier();
    for (var i = 0u; i < here; i++) {
      out = fma(out, before[i], states[at + i * stride + thread] * own[i]);
      if (VECTORS == 2u) {
        codes = fma(codes, before[i], states[at + i * stride + 128u + thread] * own[i]);
      }
      sum = fma(sum, before[i], sums[i] * own[i]);
      greatest = max(greatest, most[i]);
    }
    workgroupBarrier();
  }
  ctx[(step[merge] * kQueryHeads + group.y) * 128u + thread] =
      finished(out, codes, thread, thread) * (1.0 / sum);
}
