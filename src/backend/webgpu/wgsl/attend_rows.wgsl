// What attend_merge.wgsl needs of a cache without codes.
fn finished(rows: f32, codes: f32, dim: u32, thread: u32) -> f32 { return rows; }
