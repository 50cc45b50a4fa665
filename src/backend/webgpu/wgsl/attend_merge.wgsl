// Joins the states that the runs of a split token left, in ascending order: one workgroup for a
// token and a query head, one thread for a dimension. finished() comes from attend_rows.wgsl or
// attend_codes.wgsl.
@group(0) @binding(1) var<storage, read> states: array<f32>;
@group(0) @binding(2) var<storage, read_write> ctx: array<f32>;

const THREADS = 128u;
const kMergeWords = 4u;  // row, runs, the state of its first run

const BATCH = 16u;       // runs whose values are asked for together

var<workgroup> most: array<f32, 2u * THREADS>;  // of runs up to it, on the way there
var<workgroup> before: array<f32, THREADS>;     // factors of what was before, and of the run
var<workgroup> own: array<f32, THREADS>;
var<workgroup> sums: array<f32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let merge = step[kMergesAt] + group.x * kMergeWords;
  let runs = step[merge + 1u];
  let first = step[merge + 2u];
  let stride = kQueryHeads * kStateFloats;
  var out = 0.0;
  var codes = 0.0;
  var sum = 0.0;
  var greatest = kNothing;
  for (var begin = 0u; begin < runs; begin += THREADS) {
    let here = min(runs - begin, THREADS);
    let at = ((first + begin) * kQueryHeads + group.y) * kStateFloats;
    var mine = kNothing;
    if (thread < here) {
      mine = states[at + thread * stride + 128u * VECTORS];
      sums[thread] = states[at + thread * stride + 128u * VECTORS + 1u];
    }
    var upto = mine;
    var side = 0u;
    for (var reach = 1u; reach < THREADS; reach *= 2u) {
      most[side + thread] = upto;
      workgroupBarrier();
      if (thread >= reach) { upto = max(upto, most[side + thread - reach]); }
      side = THREADS - side;  // so that one barrier a step is enough
    }
    most[side + thread] = upto;
    workgroupBarrier();
    var earlier = greatest;
    if (thread > 0u) { earlier = max(earlier, most[side + thread - 1u]); }
    let now = max(earlier, mine);
    before[thread] = power_of_two(earlier - now);
    own[thread] = power_of_two(mine - now);
    greatest = max(greatest, most[side + THREADS - 1u]);
    workgroupBarrier();
    for (var i = 0u; i < here; i += BATCH) {
      var x: array<f32, BATCH>;
      var y: array<f32, BATCH>;
      for (var j = 0u; j < BATCH; j++) {
        let of_run = at + min(i + j, here - 1u) * stride + thread;
        x[j] = states[of_run];
        if (VECTORS == 2u) { y[j] = states[of_run + 128u]; }
      }
      for (var j = 0u; j < BATCH; j++) {
        let run = min(i + j, here - 1u);
        let factor = before[run];
        let next = vec3<f32>(fma(out, factor, x[j] * own[run]), fma(codes, factor, y[j] * own[run]),
                             fma(sum, factor, sums[run] * own[run]));
        if (i + j < here) {
          out = next.x;
          codes = next.y;
          sum = next.z;
        }
      }
    }
    workgroupBarrier();
  }
  ctx[(step[merge] * kQueryHeads + group.y) * 128u + thread] =
      finished(out, codes, thread, thread) * (1.0 / sum);
}
