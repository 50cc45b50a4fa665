// Four BF16 of two words as float32.
fn bf16x4(low: u32, high: u32) -> vec4<f32> {
  return vec4<f32>(bitcast<f32>(low << 16u), bitcast<f32>(low & 0xffff0000u),
                   bitcast<f32>(high << 16u), bitcast<f32>(high & 0xffff0000u));
}
