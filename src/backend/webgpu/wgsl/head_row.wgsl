// A head's row on its way from qkv: its norm and rotation, and its rounding.

// Dimensions i and i + 64 of thread i. `mean`: of the head's squares. Needs `rope`.
fn rotated(pair: vec2<f32>, mean: f32, weight: vec2<f32>, position: u32, thread: u32) -> vec2<f32> {
  let normed = pair * (1.0 / sqrt(mean + 1e-6)) * weight;
  let cosine = rope[position * 128u + thread];
  let sine = rope[position * 128u + 64u + thread];
  return vec2<f32>(fma(normed.x, cosine, -(normed.y * sine)),
                   fma(normed.y, cosine, normed.x * sine));
}

// To nearest, ties to even; a NaN stays one, whatever rounding would carry.
fn bf16_of(value: f32) -> u32 {
  let bits = bitcast<u32>(value);
  let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
  return select(rounded, (bits >> 16u) | 0x40u, (bits & 0x7fffffffu) > 0x7f800000u);
}
