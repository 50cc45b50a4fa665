// Codes of the blocks that a step has completed, from their BF16 rows: one workgroup for a block and
// a head of keys (0 .. 7) or values (8 .. 15). Comes after attention.wgsl, tiered.wgsl and kvquant's
// codec.wgsl and codec_tile.wgsl, so the bits are kvquant's. Rows that kvquant refuses leave a note
// in `refused`; their codes mean nothing.
@group(0) @binding(1) var<storage, read_write> cache: array<u32>;
@group(0) @binding(2) var<storage, read> tables: array<u32>;
@group(0) @binding(3) var<storage, read> step_rows: array<u32>;
// How many notes there are, at least; then for each workgroup [1 + layer, element, its BF16 bits, 0],
// of the first layer that had one.
@group(0) @binding(4) var<storage, read_write> refused: array<u32>;

const kCompletedWords = 4u;  // block, planes of either group of layers
const kNoteAt = 4u;
const kNoteWords = 4u;

var<workgroup> first_refused: atomic<u32>;
var<workgroup> refused_element: u32;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let entry = step[kCompletedAt] + group.x * kCompletedWords;
  let block = step[entry];
  let planes = step[entry + place.planes_at];  // a bit for each: key hi2, mid2, low4, bf16, value ...
  if ((planes & 0x77u) == 0u) { return; }
  let value = group.y / kKvHeads;
  let head = group.y % kKvHeads;
  let table = place.tables_at + (block * 2u + value) * kUnitsOfSide;

  if (thread == 0u) { atomicStore(&first_refused, 4096u); }
  workgroupBarrier();
  let unit = tables[table + 4u + head];
  let limit = place.limits[value];
  for (var i = thread; i < 2048u; i += 256u) {
    var word: u32;
    if ((unit & kInStep) != 0u) {
      word = step_rows[(unit & ~kInStep) * 2048u + i];
    } else {
      word = cache[unit * 2048u + i];
    }
    if ((word & 0x7fffu) > limit) { atomicMin(&first_refused, 2u * i); }
    if (((word >> 16u) & 0x7fffu) > limit) { atomicMin(&first_refused, 2u * i + 1u); }
    kvq_put(2u * i, word & 0xffffu);
    kvq_put(2u * i + 1u, word >> 16u);
  }
  workgroupBarrier();
  if (thread == 0u) { refused_element = atomicLoad(&first_refused); }
  let bad = workgroupUniformLoad(&refused_element);
  if (bad < 4096u) {
    if (thread == 0u) {
      let note = kNoteAt + (group.x * 2u * kKvHeads + group.y) * kNoteWords;
      if (refused[note] == 0u) {
        var word: u32;
        if ((unit & kInStep) != 0u) {
          word = step_rows[(unit & ~kInStep) * 2048u + bad / 2u];
        } else {
          word = cache[unit * 2048u + bad / 2u];
        }
        refused[note] = 1u + place.layer;
        refused[note + 1u] = bad;
        refused[note + 2u] = (word >> (16u * (bad % 2u))) & 0xffffu;
      }
      refused[0] = 1u;
    }
    return;
  }
  let held = (planes >> (4u * value)) & 7u;
  if (held == 0u) { return; }
  let rotated = place.rotated == 1u;

  if (rotated) { kvq_rotate(128u, thread); }
  let fitted = place.pairs[value] == 2u;
  let coded = kvq_encode_row(KvqScheme(8u, false, fitted, 100u), 128u, rotated, thread);
  let row = thread / 8u;
  let part = thread % 8u;
  if ((held & 1u) != 0u) {
    cache[tables[table] * 2048u + head * 256u + row * 8u + part] = coded.codes.hi2;
  }
  if ((held & 2u) != 0u) {
    cache[tables[table + 1u] * 2048u + head * 256u + row * 8u + part] = coded.codes.mid2;
  }
  if ((held & 4u) != 0u) {
    let low = tables[table + 2u + head / 4u] * 2048u + head % 4u * 512u + row * 16u + part;
    cache[low] = coded.codes.low4.x;
    cache[low + 8u] = coded.codes.low4.y;
  }
  let words = kvq_gather(coded, 128u, thread);
  if (thread < 16u) {
    let range = parameters_at(block, value, head, 2u * thread, 8u);
    cache[range] = words.range.scale;
    cache[range + 128u] = words.range.offset;
    if (fitted) {
      let pair = parameters_at(block, value, head, 2u * thread, 2u);
      cache[pair] = words.fitted.scale;
      cache[pair + 128u] = words.fitted.offset;
    }
  }
}
