// One workgroup of 256 threads and a tile of 4096 elements: rows of one head and position each,
// rotated, coded and packed where a row is one group (per token, group size = head width). Included
// after codec.wgsl; it takes 16 KiB of workgroup memory, which is all that WebGPU promises.
//
// The tile holds [row][channel] for kvq_tile_rows(width) rows, 32 of 128 channels: one head of one
// block. The thread of part j in a row of `width` channels owns the 16 channels
// 4j + b + q * width / 4 (b, q = 0 .. 3), which are what one word of hi2 and mid2 and two words of
// low4 pack: word j of the row in hi2 and mid2, words j and j + width / 16 in low4. FORMAT.md draws
// it.
//
// An encoder, all threads together:
//   kvq_put(i, bits) for every element i of the tile, by whichever thread: its BF16
//   workgroupBarrier()
//   kvq_rotate(width, thread) where the scheme rotates
//   let row = kvq_encode_row(scheme, width, rotated, thread)
//   the thread writes the words of `row`
//   let words = kvq_gather(row, width, thread), and thread t < rows / 2 writes word t of each
// With a head width that does not divide 4096 the threads past the last row do as the last row
// does: kvq_tile_rows() tells them apart.

const kvq_threads = 256u;
const kvq_tile_elements = 4096u;

var<workgroup> kvq_tile: array<u32, kvq_tile_elements>;  // f32 bits, or integers

// What a thread has made of its 16 channels, and of its row.
struct KvqRow {
  codes: KvqPacked,
  range: KvqParams,
  fitted: KvqParams,  // 0 where the scheme has none
}

fn kvq_tile_rows(width: u32) -> u32 {
  return kvq_tile_elements / width;
}

fn kvq_put(element: u32, bf16_bits: u32) {
  kvq_tile[element] = bitcast<u32>(kvq_lifted(bf16_bits));
}

// Every row of the tile turned by the Walsh-Hadamard transform, but for its scale. `width` is a
// power of two. Begins with no barrier and ends with one.
fn kvq_rotate(width: u32, thread: u32) {
  for (var half = 1u; half < width; half *= 2u) {
    for (var pair = thread; pair < kvq_tile_elements / 2u; pair += kvq_threads) {
      let low = pair & (half - 1u);
      let at = 2u * (pair - low) + low;
      let a = bitcast<f32>(kvq_tile[at]);
      let b = bitcast<f32>(kvq_tile[at + half]);
      kvq_tile[at] = bitcast<u32>(a + b);
      kvq_tile[at + half] = bitcast<u32>(a - b);
    }
    workgroupBarrier();
  }
}

// Codes and parameters of the rows in the tile, which it uses up. Called by all threads alike; ends
// with a barrier, so that the tile may be filled again.
fn kvq_encode_row(scheme: KvqScheme, width: u32, rotated: bool, thread: u32) -> KvqRow {
  let parts = width / 16u;
  let row = min(thread / parts, kvq_tile_rows(width) - 1u);
  let part = thread % parts;
  let first = row * parts;  // thread of the row's first part
  let quarter = width / 4u;
  let scale = select(1.0, kvq_hadamard_scale(width), rotated);

  var values: array<f32, 16>;  // [q][b]
  var smallest = 0x1p30f;
  var largest = -0x1p30f;
  for (var i = 0u; i < 16u; i++) {
    let at = row * width + (i / 4u) * quarter + part * 4u + i % 4u;
    let value = kvq_settled(bitcast<f32>(kvq_tile[at]), scale);
    values[i] = value;
    smallest = min(smallest, value);
    largest = max(largest, value);
  }
  workgroupBarrier();
  kvq_tile[2u * thread] = bitcast<u32>(smallest);
  kvq_tile[2u * thread + 1u] = bitcast<u32>(largest);
  workgroupBarrier();
  for (var other = first; other < first + parts; other++) {
    smallest = min(smallest, bitcast<f32>(kvq_tile[2u * other]));
    largest = max(largest, bitcast<f32>(kvq_tile[2u * other + 1u]));
  }
  workgroupBarrier();

  var result: KvqRow;
  result.range = kvq_fit_range(scheme, smallest, largest);
  let e = kvq_encoder(scheme, result.range);
  var sums = KvqSums(0i, 0i, 0i, 0i, 0i);
  for (var i = 0u; i < 16u; i++) {
    let code = kvq_encode(e, values[i]);
    sums = kvq_add_code(sums, scheme, code);
    result.codes = kvq_pack(result.codes, scheme.bits, u32(code), i);
  }
  if (scheme.fitted) {
    kvq_tile[4u * thread] = u32(sums.h);
    kvq_tile[4u * thread + 1u] = u32(sums.hh);
    kvq_tile[4u * thread + 2u] = bitcast<u32>(sums.code);
    kvq_tile[4u * thread + 3u] = bitcast<u32>(sums.h_code);
  }
  workgroupBarrier();
  if (scheme.fitted) {
    var all = KvqSums(i32(width), 0i, 0i, 0i, 0i);
    for (var other = first; other < first + parts; other++) {
      all.h += i32(kvq_tile[4u * other]);
      all.hh += i32(kvq_tile[4u * other + 1u]);
      all.code += bitcast<i32>(kvq_tile[4u * other + 2u]);
      all.h_code += bitcast<i32>(kvq_tile[4u * other + 3u]);
    }
    result.fitted = kvq_fit_levels(scheme, result.range, all);
  }
  workgroupBarrier();
  return result;
}

// The parameters of rows 2t (low half) and 2t + 1 in the words that a plane packs them into, at the
// threads t below half the number of rows; elsewhere they mean nothing. Called by all threads alike
// after kvq_encode_row(); ends with a barrier.
struct KvqWords {
  range: KvqParams,
  fitted: KvqParams,
}

fn kvq_gather(row: KvqRow, width: u32, thread: u32) -> KvqWords {
  let parts = width / 16u;
  let rows = kvq_tile_rows(width);
  if (thread % parts == 0u && thread / parts < rows) {
    let at = 2u * (thread / parts);
    kvq_tile[at] = row.range.scale | (row.range.offset << 16u);
    kvq_tile[at + 1u] = row.fitted.scale | (row.fitted.offset << 16u);
  }
  workgroupBarrier();
  var words: KvqWords;
  if (thread < rows / 2u) {
    let low = vec2<u32>(kvq_tile[4u * thread], kvq_tile[4u * thread + 1u]);
    let high = vec2<u32>(kvq_tile[4u * thread + 2u], kvq_tile[4u * thread + 3u]);
    let scales = (low & vec2(0xffffu)) | (high << vec2(16u));
    let offsets = (low >> vec2(16u)) | (high & vec2(0xffff0000u));
    words = KvqWords(KvqParams(scales.x, offsets.x), KvqParams(scales.y, offsets.y));
  }
  workgroupBarrier();
  return words;
}
