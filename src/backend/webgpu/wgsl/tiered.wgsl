// Where the bit planes of a tiered cache lie and what their codes mean, after attention.wgsl. A layer
// is [units of 8 KiB][parameters of blocks]; `tables` has the units of a block's planes.
//
// Codes of any width are handled as bytes, the planes that are read in their top bits:
//   x = offset + scale * (byte * unit + bias)
//   int8   hi2 : mid2 : low4    unit 1       bias 0
//   int4   hi2 : mid2 : 0       unit 1       bias 7.5
//   int2   hi2 : 0 : 0          unit 1 / 64  bias 0, scale and offset the fitted ones
// Byte c of a row's 32 words is channel c: word (8 g + j) has its bits in word j of a plane's row.
//
// What differs between layers and policies is a uniform, so that one shader serves them all. Put in
// front: PLACE, its binding.
//
//   score    the query, turned like the keys, times 1 + byte / 256: four chains of fused
//            multiply-adds, chain j over the words 8 g + 2 j, g = 0 .. 3, then 8 g + 2 j + 1;
//            (c0 + c1) + (c2 + c3); what the 1 is too much is taken off with the query's sum
//   block    of values from codes: four chains of weight * scale times (1 + byte / 256) of positions
//            r, r + 4, ..., added as ((c0 + c1) + c2) + c3, and what the 1 is too much taken off
//   query    values from codes and from rows are summed apart; those from codes are turned back at
//            the end, times 1 / sqrt(128), and added

struct Place {
  layer: u32,
  tables_at: u32,     // words: where the tables of the layer's group begin
  params_at: u32,     // of the layer: where its parameters begin
  step_rows_at: u32,  // of the buffer of the step's queries and rows: where the rows begin
  bands: vec4<u32>,   // blocks: sink, recent, recent and mid
  keys: vec4<u32>,    // widths of keys: sink, recent, mid, far
  values: vec4<u32>,
  pairs: vec2<u32>,   // of parameters of keys and of values
  limits: vec2<u32>,  // the largest BF16 magnitudes that are coded
  rotated: u32,       // 1: codes are of rows turned by the Hadamard transform
  planes_at: u32,     // the word of a completed block's entry with the planes of the layer's group
}
@group(0) @binding(PLACE) var<uniform> place: Place;

const kRows = 16u;        // a width: BF16
const kUnitsOfSide = 12u; // hi2, mid2, low4 (2), bf16 (8)
const kInStep = 0x80000000u;  // a unit that is not in the layer but in the rows of the step
const kTurnedFloats = 132u;  // of a turned query: 128, their sum, and nothing
const kHadamardScale = 0.08838834764;  // 1 / sqrt(128)

// Bits of keys and of values, as they are read by a query of that block.
fn widths(query_block: u32, key_block: u32) -> vec2<u32> {
  let distance = query_block - key_block;
  if (distance == 0u) { return vec2<u32>(kRows); }
  if (key_block < place.bands.x) { return vec2<u32>(place.keys.x, place.values.x); }
  if (distance <= place.bands.y) { return vec2<u32>(place.keys.y, place.values.y); }
  if (distance <= place.bands.z) { return vec2<u32>(place.keys.z, place.values.z); }
  return vec2<u32>(place.keys.w, place.values.w);
}

// The four words 8 g + j, g = 0 .. 3, of what word j of each plane holds (of low4 words j and j + 8).
fn code_bytes(width: u32, hi2: u32, mid2: u32, low4: vec2<u32>) -> vec4<u32> {
  var bytes = vec4<u32>(hi2 << 6u, hi2 << 4u, hi2 << 2u, hi2) & vec4<u32>(0xc0c0c0c0u);
  if (width >= 4u) {
    bytes |= vec4<u32>(mid2 << 4u, mid2 << 2u, mid2, mid2 >> 2u) & vec4<u32>(0x30303030u);
  }
  if (width == 8u) {
    bytes |= vec4<u32>(low4.x, low4.y, low4.x >> 4u, low4.y >> 4u) & vec4<u32>(0x0f0f0f0fu);
  }
  return bytes;
}

// 1 + byte / 256 of the four bytes of a word: one shift and one logical operation each.
fn byte_floats(word: u32) -> vec4<f32> {
  return bitcast<vec4<f32>>(
      (vec4<u32>(word << 15u, word << 7u, word >> 1u, word >> 9u) & vec4<u32>(0x007f8000u)) |
      vec4<u32>(0x3f800000u));
}

fn unit_of(width: u32) -> f32 { return select(1.0, 0.015625, width == 2u); }
fn bias_of(width: u32) -> f32 { return select(0.0, 7.5, width == 4u); }

// The word of the layer with the scale of `position`, in its half position % 2; 128 words on that of
// the offset.
fn parameters_at(block: u32, value: u32, head: u32, position: u32, width: u32) -> u32 {
  let pair = select(0u, 1u, width == 2u);
  let before = block * (place.pairs.x + place.pairs.y) + value * place.pairs.x + pair;
  return place.params_at + before * 256u + head * 16u + position / 2u;
}

fn half_of(word: u32, position: u32) -> f32 {
  let both = unpack2x16float(word);
  return select(both.x, both.y, position % 2u == 1u);
}

// One word of a key against four dimensions of a turned query.
fn word_chain(start: f32, x: vec4<f32>, q: vec4<f32>) -> f32 {
  return fma(x.w, q.w, fma(x.z, q.z, fma(x.y, q.y, fma(x.x, q.x, start))));
}

// `chains`: of the four chains; `sum`: of the query. Base 2, times 1 / sqrt(128).
fn code_score(chains: f32, sum: f32, width: u32, scale: f32, offset: f32) -> f32 {
  let levels = fma(chains - sum, 256.0 * unit_of(width), sum * bias_of(width));
  return fma(levels, scale, sum * offset) * kScoreScale;
}

// What a block's sum of weight * scale * (1 + byte / 256) becomes: fma() with these two. `scaled`:
// the sum of weight * scale, `offsets`: of weight * offset.
fn code_values(width: u32, scaled: f32, offsets: f32) -> vec2<f32> {
  let step = 256.0 * unit_of(width);
  return vec2<f32>(step, fma(bias_of(width) - step, scaled, offsets));
}
