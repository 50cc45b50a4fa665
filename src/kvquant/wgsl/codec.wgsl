// The arithmetic of ../codec.h in WGSL: number formats, range and level fitting, codes, levels.
// Functions, constants and structs only: a shader that includes this text brings its own bindings.
// All names begin with kvq_ or Kvq.
//
// Codes and parameters have the bits of codec.h on every device, whatever a driver does that WGSL
// allows it to do:
// - division need not be correctly rounded: kvq_divide() is long division on integers;
// - denormals may be flushed: values are made from bits, and rotation runs on rows lifted by 2^100,
//   where the smallest BF16 is a normal number;
// - a product may be fused with the sum that follows, and sums may be reassociated: products here
//   are exact, or pass kvq_rounded() or an integer before they meet a sum;
// - integers of more than 24 bits need not convert to the nearest float: kvq_difference() rounds.
//
// What a group goes through: kvq_fit_range() of its smallest and largest value, kvq_encoder(),
// kvq_encode() of every value, kvq_add_code() of every code, kvq_fit_levels() of the sums.
// codec_tile.wgsl does so for rows that are one group each, with one workgroup for 4096 elements.

// The fields of QuantScheme that arithmetic depends on.
struct KvqScheme {
  bits: u32,  // 8, 4 or 2
  symmetric: bool,
  fitted: bool,  // has_fitted_pair(): codes wider than int2 whose narrowest width is int2
  clip_percent: u32,
}

// FP16 bit patterns. Symmetric groups have offset 0 and do not store it.
struct KvqParams {
  scale: u32,
  offset: u32,
}

struct KvqEncoder {
  offset: f32,
  inverse: f32,  // 1 / scale, 0 for a group of one value
  middle: i32,
  smallest: i32,
  largest: i32,
}

// LevelSums of codec.h. A group has at most 8192 elements: i32 holds each of them.
struct KvqSums {
  count: i32,
  h: i32,
  hh: i32,
  code: i32,
  h_code: i32,
}

// --- number formats

fn kvq_bf16_to_f32(bits: u32) -> f32 {
  return bitcast<f32>(bits << 16u);
}

// Of the bits of an f32, so that a denormal reaches it whole. Finite input only.
fn kvq_to_bf16(f32_bits: u32) -> u32 {
  return (f32_bits + 0x7fffu + ((f32_bits >> 16u) & 1u)) >> 16u;
}

// Finite input only.
fn kvq_fp16_to_f32(bits: u32) -> f32 {
  let exponent = (bits >> 10u) & 0x1fu;
  let mantissa = bits & 0x3ffu;
  let small = bitcast<u32>(f32(mantissa) * 0x1p-24f);
  let magnitude = select(((exponent + 112u) << 23u) | (mantissa << 13u), small, exponent == 0u);
  return bitcast<f32>(magnitude | ((bits & 0x8000u) << 16u));
}

// |x| <= 65504 cut off to FP16, and what is left below it, to be compared with half.
struct KvqFp16Parts {
  magnitude: u32,
  rest: u32,
  half: u32,
}

fn kvq_fp16_truncate(f32_bits: u32) -> KvqFp16Parts {
  let bits = f32_bits & 0x7fffffffu;
  if (bits >= 0x38800000u) {
    return KvqFp16Parts((bits - 0x38000000u) >> 13u, bits & 0x1fffu, 0x1000u);
  }
  let exponent = bits >> 23u;
  if (exponent < 102u) {
    return KvqFp16Parts(0u, min(bits, 1u), 2u);
  }
  let shift = 126u - exponent;  // 14 to 24
  let mantissa = (bits & 0x7fffffu) | 0x800000u;
  return KvqFp16Parts(mantissa >> shift, mantissa & ((1u << shift) - 1u), 1u << (shift - 1u));
}

fn kvq_fp16_nearest(value: f32) -> u32 {
  let bits = bitcast<u32>(value);
  let p = kvq_fp16_truncate(bits);
  let up = p.rest > p.half || (p.rest == p.half && (p.magnitude & 1u) != 0u);
  return ((bits >> 16u) & 0x8000u) | (p.magnitude + select(0u, 1u, up));
}

// Toward minus infinity; -0 becomes +0.
fn kvq_fp16_down(value: f32) -> u32 {
  let bits = bitcast<u32>(value);
  let p = kvq_fp16_truncate(bits);
  if (bits <= 0x80000000u) {
    return p.magnitude;
  }
  return 0x8000u | (p.magnitude + min(p.rest, 1u));
}

// Toward plus infinity; value >= 0.
fn kvq_fp16_up(value: f32) -> u32 {
  let p = kvq_fp16_truncate(bitcast<u32>(value));
  return p.magnitude + min(p.rest, 1u);
}

// The sum or product as it was rounded, |x| < 2^30: no compiler moves a sum or a product past a
// maximum whose outcome it cannot know.
fn kvq_rounded(x: f32) -> f32 {
  return max(x, -0x1p30f);
}

// a / b to the nearest, ties to even. b > 0; a, b and the quotient are normal numbers, or a is 0.
fn kvq_divide(a: f32, b: f32) -> f32 {
  let a_bits = bitcast<u32>(a);
  let b_bits = bitcast<u32>(b);
  if ((a_bits & 0x7fffffffu) == 0u) {
    return a;
  }
  var rest = (a_bits & 0x7fffffu) | 0x800000u;
  let divisor = (b_bits & 0x7fffffu) | 0x800000u;
  var exponent = 253u + ((a_bits >> 23u) & 0xffu) - (b_bits >> 23u);  // biased, and 127 more
  if (rest < divisor) {
    rest <<= 1u;
    exponent -= 1u;
  }
  rest -= divisor;
  var quotient = 1u;  // ends with 25 bits: the mantissa, and one to round by, as there are no ties
  for (var i = 0u; i < 24u; i++) {
    rest <<= 1u;
    let fits = rest >= divisor;
    rest -= select(0u, divisor, fits);
    quotient = (quotient << 1u) | select(0u, 1u, fits);
  }
  // The leading one of the mantissa counts one exponent up, and so does a carry out of it.
  let magnitude = ((exponent - 127u) << 23u) + ((quotient + 1u) >> 1u);
  return bitcast<f32>((a_bits & 0x80000000u) | magnitude);
}

// The 64 bits of a product: low word, high word.
fn kvq_product(a: u32, b: u32) -> vec2<u32> {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let cross = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
  let other = (a & 0xffffu) * (b >> 16u) + (cross & 0xffffu);
  return vec2<u32>((other << 16u) | (low & 0xffffu),
                   (a >> 16u) * (b >> 16u) + (cross >> 16u) + (other >> 16u));
}

// a * b - c * d, in 64-bit integers, as the nearest f32.
fn kvq_difference(a: u32, b: u32, c: u32, d: u32) -> f32 {
  let ab = kvq_product(a, b);
  let cd = kvq_product(c, d);
  let negative = ab.y < cd.y || (ab.y == cd.y && ab.x < cd.x);
  let most = select(ab, cd, negative);
  let least = select(cd, ab, negative);
  var low = most.x - least.x;
  var high = most.y - least.y - select(0u, 1u, most.x < least.x);
  if ((low | high) == 0u) {
    return 0.0;
  }
  // The leading one goes to bit 63, the 24 bits from there on are the mantissa.
  var shift = 0u;
  if (high == 0u) {
    high = low;
    low = 0u;
    shift = 32u;
  }
  let more = countLeadingZeros(high);
  if (more != 0u) {
    high = (high << more) | (low >> (32u - more));
    low <<= more;
  }
  shift += more;
  let mantissa = high >> 8u;
  let rest = high & 0xffu;
  let up = rest > 0x80u || (rest == 0x80u && (low != 0u || (mantissa & 1u) != 0u));
  let magnitude = ((189u - shift) << 23u) + mantissa + select(0u, 1u, up);
  return bitcast<f32>(magnitude | select(0u, 0x80000000u, negative));
}

// --- rotation

// A BF16 times 2^100. With it every sum of a rotated row is a normal number or zero: of at most 512
// multiples of 2^-33, below 2^121 in all.
fn kvq_lifted(bf16_bits: u32) -> f32 {
  let sign = (bf16_bits & 0x8000u) << 16u;
  let small = bitcast<u32>(f32(bf16_bits & 0x7fu) * 0x1p-33f);
  let normal = ((bf16_bits & 0x7fffu) << 16u) + (100u << 23u);
  return bitcast<f32>(sign | select(normal, small, (bf16_bits & 0x7f80u) == 0u));
}

// A lifted element times the scale of its rotation (1 where there is none), lowered again; zero
// where it is below 2^-40.
fn kvq_settled(lifted: f32, scale: f32) -> f32 {
  let product = lifted * scale;
  return select(kvq_rounded(product * 0x1p-100f), 0.0, abs(product) < 0x1p60f);
}

// 1 / sqrt(width), width a power of two.
fn kvq_hadamard_scale(width: u32) -> f32 {
  var scale = 1.0;
  var rest = width;
  while (rest >= 4u) {
    scale *= 0.5;
    rest /= 4u;
  }
  return select(scale, scale * 0x1.6a09e6p-1f, rest == 2u);
}

// --- groups

// The largest code.
fn kvq_code_levels(scheme: KvqScheme) -> i32 {
  return (1i << scheme.bits) - 1i;
}

// The code that stands for zero in a symmetric group.
fn kvq_code_middle(scheme: KvqScheme) -> i32 {
  return select(0i, 1i << (scheme.bits - 1u), scheme.symmetric);
}

// Of values that kvq_settled() returned.
fn kvq_fit_range(scheme: KvqScheme, group_smallest: f32, group_largest: f32) -> KvqParams {
  if (scheme.symmetric) {
    let keep = kvq_divide(f32(scheme.clip_percent), 100.0);
    let magnitude = max(max(-group_smallest, group_largest) * keep, 0.0);
    return KvqParams(kvq_fp16_up(kvq_divide(magnitude, f32(kvq_code_levels(scheme) / 2i))), 0u);
  }
  var smallest = group_smallest;
  var largest = group_largest;
  if (scheme.clip_percent < 100u) {
    let share = kvq_divide(f32(100u - scheme.clip_percent), 200.0);
    let cut = kvq_rounded(largest - smallest) * share;
    let cut_bf16 = kvq_bf16_to_f32(kvq_to_bf16(bitcast<u32>(cut)));
    smallest = kvq_rounded(smallest + cut_bf16);
    largest = kvq_rounded(largest - cut_bf16);
  }
  let offset = kvq_fp16_down(smallest);
  let range = largest - kvq_fp16_to_f32(offset);
  return KvqParams(kvq_fp16_up(kvq_divide(range, f32(kvq_code_levels(scheme)))), offset);
}

fn kvq_encoder(scheme: KvqScheme, params: KvqParams) -> KvqEncoder {
  var inverse = 0.0;
  if (params.scale != 0u) {
    inverse = kvq_divide(1.0, kvq_fp16_to_f32(params.scale));
  }
  return KvqEncoder(kvq_fp16_to_f32(params.offset), inverse, kvq_code_middle(scheme),
                    select(0i, 1i, scheme.symmetric), kvq_code_levels(scheme));
}

fn kvq_encode(e: KvqEncoder, value: f32) -> i32 {
  let steps = kvq_rounded(value - e.offset) * e.inverse;
  let below = f32(e.smallest - e.middle);
  let above = f32(e.largest - e.middle);
  return i32(round(min(max(steps, below), above))) + e.middle;
}

// --- reading codes at fewer bits

// Level of a code read at `bits`, from its top bits: the centre of the cell that they stand for.
// value = offset + scale * level, a product that is exact: fma() or not, the same.
fn kvq_level(scheme: KvqScheme, bits: u32, top: u32) -> f32 {
  let cell = 1i << (scheme.bits - bits);
  return f32(2i * (i32(top) * cell - kvq_code_middle(scheme)) + (cell - 1i)) * 0.5;
}

// Level of the top two bits under the fitted pair.
fn kvq_fitted_level(scheme: KvqScheme, h: u32) -> f32 {
  return f32(h) - select(0.0, 1.5, scheme.symmetric);
}

fn kvq_add_code(sums: KvqSums, scheme: KvqScheme, code: i32) -> KvqSums {
  let h = code >> (scheme.bits - 2u);
  let from_middle = code - kvq_code_middle(scheme);
  return KvqSums(sums.count + 1i, sums.h + h, sums.hh + h * h, sums.code + from_middle,
                 sums.h_code + h * from_middle);
}

fn kvq_fit_symmetric(scale: f32, cell: i32, sums: KvqSums) -> KvqParams {
  let top = 3i * (2i * sums.h_code - 3i * sums.code);  // below 2^24, as is the other
  let bottom = 4i * sums.hh - 12i * sums.h + 9i * sums.count;
  let outer = i32(round(kvq_divide(f32(top), f32(bottom)) * 16.0));
  let sixteenths = clamp(outer, 16i * cell - 8i, 32i * cell - 8i);
  return KvqParams(kvq_fp16_nearest(kvq_divide(scale * f32(sixteenths), 24.0)), 0u);
}

// The int2 pair: the pair of the range and the sums over all codes of the group.
fn kvq_fit_levels(scheme: KvqScheme, params: KvqParams, sums: KvqSums) -> KvqParams {
  let scale = kvq_fp16_to_f32(params.scale);
  let cell = 1i << (scheme.bits - 2u);  // 64 or 4
  if (scheme.symmetric) {
    return kvq_fit_symmetric(scale, cell, sums);
  }
  let half = f32(cell - 1i) * 0.5;
  let count = u32(sums.count);
  let h = u32(sums.h);
  let hh = u32(sums.hh);
  let code = u32(sums.code);
  let h_code = u32(sums.h_code);
  // Distances of the levels 0 and 3 from the centres of their cells, sixteenths of a code.
  var first = 0i;
  var last = 0i;
  let bottom = kvq_difference(count, hh, h, h);
  if (bottom == 0.0) {
    let mean = kvq_divide(f32(sums.code - cell * sums.h), f32(sums.count));
    first = i32(round(kvq_rounded(mean - half) * 16.0));
    last = first;
  } else {
    // What codec.h writes as top + 3 * slope is, with its products collected, one such difference.
    let at_first = kvq_divide(kvq_difference(code, hh, h, h_code), bottom);
    let at_last = kvq_divide(kvq_difference(h_code, 3u * count - h, code, 3u * h - hh), bottom);
    first = i32(round(kvq_rounded(at_first - half) * 16.0));
    last = i32(round(kvq_rounded(kvq_rounded(at_last - half) - f32(3i * cell)) * 16.0));
    let room = 8i * cell;
    let size = max(abs(first), abs(last));
    if (size > room) {
      first = first * room / size;
      last = last * room / size;
    }
  }
  let offset = kvq_fp16_to_f32(params.offset);
  let level0 = half + f32(first) * 0.0625;
  let level3 = half + f32(48i * cell + last) * 0.0625;
  let target_offset = max(offset + scale * level0, -65504.0);
  var fitted = kvq_fp16_nearest(target_offset);
  let moved = kvq_rounded(kvq_fp16_to_f32(fitted) - offset);
  if (moved < scale * -0.5) {
    fitted = params.offset;
  }
  if (moved > scale * (f32(cell) - 0.5)) {
    fitted = kvq_fp16_down(target_offset);
  }
  let kept = kvq_rounded(kvq_fp16_to_f32(fitted) - offset);
  let outer = scale * level3 - kept;
  return KvqParams(kvq_fp16_nearest(kvq_divide(outer, 3.0)), fitted);
}

// --- planes

// The words that pack the 16 channels 4j + b + q * width / 4 (b, q = 0 .. 3) of a row: word j of
// the row in hi2 and mid2, words j and j + width / 16 in low4.
struct KvqPacked {
  hi2: u32,
  mid2: u32,        // 0 below 4 bits
  low4: vec2<u32>,  // 0 below 8 bits
}

// Adds a code of `bits` bits: channel i = 4q + b of those 16, not there yet.
fn kvq_pack(packed: KvqPacked, bits: u32, code: u32, i: u32) -> KvqPacked {
  let whole = code << (8u - bits);  // hi2, mid2 and low4 from the top down
  let q = i / 4u;
  let at = 8u * (i % 4u) + 2u * q;
  let low = (whole & 15u) << (8u * (i % 4u) + 4u * (q / 2u));
  return KvqPacked(packed.hi2 | ((whole >> 6u) << at), packed.mid2 | (((whole >> 4u) & 3u) << at),
                   packed.low4 | select(vec2(0u, low), vec2(low, 0u), q % 2u == 0u));
}
