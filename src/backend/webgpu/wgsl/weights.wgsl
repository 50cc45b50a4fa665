// Weights as float32, the value that the reference backend decodes: one rounding where a scheme has
// a scale, two where it has an offset as well. SCHEME (0 bf16, 1 q8_0, 2 affine4_gs32,
// 3 scale4_gs32) is put in front; `codes` and `scales` are matmul.wgsl's.
//
// Eight rows of a matrix are a tile, in which the same 16 bytes of all eight rows lie side by side:
// threads of neighbouring rows then load neighbouring addresses (device_weights.h has the layout).

// Pieces of 16 bytes that 32 weights take.
const PIECES = array<u32, 4>(4u, 2u, 1u, 1u)[SCHEME];

// 32 weights of a row as they are stored.
struct Stored {
  bits: array<vec4<u32>, PIECES>,
  scale: u32,  // as one word of `scales`
}

// Weights [32 * unit, 32 * unit + 32) of row `out` (0..7) of a tile. units: of a row.
fn load_weights(tile: u32, out: u32, unit: u32, units: u32) -> Stored {
  var stored: Stored;
  let at = (tile * units + unit) * PIECES * 8u + out;
  for (var i = 0u; i < PIECES; i++) { stored.bits[i] = codes[at + i * 8u]; }
  if (SCHEME == 2u) {
    stored.scale = scales[(tile * units + unit) * 8u + out];
  } else if (SCHEME != 0u) {
    let pair = scales[(tile * ((units + 1u) / 2u) + unit / 2u) * 8u + out];
    stored.scale = pair >> (16u * (unit % 2u));
  }
  return stored;
}

// An integer below 2^23 as float without a conversion, which is slow on many GPUs: the bits of
// 2^23 + n, less 2^23.
fn small_float(n: u32, offset: f32) -> f32 {
  return bitcast<f32>(n | 0x4b000000u) - (8388608.0 + offset);
}

// Four signed bytes whose top bits were turned over.
fn bytes_x4(word: u32) -> vec4<f32> {
  return vec4<f32>(small_float(word & 0xffu, 128.0), small_float((word >> 8u) & 0xffu, 128.0),
                   small_float((word >> 16u) & 0xffu, 128.0), small_float(word >> 24u, 128.0));
}

// The low nibbles of four bytes, less `middle`.
fn nibbles_x4(word: u32, middle: f32) -> vec4<f32> {
  return vec4<f32>(small_float(word & 0xfu, middle), small_float((word >> 8u) & 0xfu, middle),
                   small_float((word >> 16u) & 0xfu, middle),
                   small_float((word >> 24u) & 0xfu, middle));
}

// Weights 4 j .. 4 j + 3 of the 32; j is a constant once loops are unrolled.
fn decode_x4(stored: ptr<function, Stored>, j: u32) -> vec4<f32> {
  if (SCHEME == 0u) {
    let bits = (*stored).bits[min(j / 2u, PIECES - 1u)];
    if (j % 2u == 0u) { return bf16x4(bits.x, bits.y); }
    return bf16x4(bits.z, bits.w);
  }
  let parameters = unpack2x16float((*stored).scale);
  if (SCHEME == 1u) {
    let bits = (*stored).bits[min(j / 4u, PIECES - 1u)];
    return parameters.x * bytes_x4(bits[j % 4u] ^ 0x80808080u);
  }
  let word = (*stored).bits[0][j % 4u] >> (4u * (j / 4u));
  if (SCHEME == 2u) {
    return fma(vec4<f32>(parameters.x), nibbles_x4(word, 0.0), vec4<f32>(parameters.y));
  }
  return parameters.x * nibbles_x4(word, 8.0);
}
