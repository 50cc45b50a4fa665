// The end of attention over codes where each 128 threads of a workgroup have the dimensions of a
// head.

var<workgroup> turning: array<f32, 512>;

// The sum of values from rows and of those from codes, which are turned back: all threads
// together, thread by thread the dimension `dim`.
fn finished(rows: f32, codes: f32, dim: u32, thread: u32) -> f32 {
  if (place.rotated == 0u) { return rows + codes; }
  var value = codes;
  var side = thread / 128u * 256u;
  for (var half = 1u; half < 128u; half *= 2u) {
    turning[side + dim] = value;
    workgroupBarrier();
    let other = turning[side + (dim ^ half)];
    value = select(value + other, other - value, (dim & half) != 0u);
    side ^= 128u;  // so that one barrier a stage is enough
  }
  return fma(value, kHadamardScale, rows);
}
