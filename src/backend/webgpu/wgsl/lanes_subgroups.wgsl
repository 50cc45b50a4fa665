// Four neighbouring threads add up with shuffles: no workgroup memory, no barrier. Where a device's
// subgroups hold threads in their order (subgroups.h).
const SUBGROUPS = true;

// (c0 + c1) + (c2 + c3) of threads 4 i .. 4 i + 3, in the first of them.
fn sum_of_four_lanes(c: f32) -> f32 {
  let pair = c + subgroupShuffleXor(c, 1u);
  return pair + subgroupShuffleXor(pair, 2u);
}
