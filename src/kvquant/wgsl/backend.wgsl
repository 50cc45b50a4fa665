// The kernels of WgpuBackend, after codec.wgsl and codec_tile.wgsl. Each works on one side of one
// block; `job` is that side, the same for all kernels of a submission.
//
// A completed block goes through append_rows and then either encode_rows, where a group is one
// head's row, or prepare_rows, fit_groups and pack_codes, which take any grouping. Both ways make
// their numbers with codec.wgsl. Code planes are cleared before, since their padding is zero.

struct Job {
  heads: u32,
  width: u32,     // of a head
  position: u32,  // of the first row appended or read
  count: u32,     // rows
  bits: u32,
  symmetric: u32,
  fitted: u32,
  clip_percent: u32,
  rotated: u32,
  group_size: u32,
  groups: u32,
  grouping: u32,
  read_bits: u32,
  // Words from the start of `planes`. Parameters of a pair that is not there are not looked at.
  bf16: u32,
  hi2: u32,
  mid2: u32,
  low4: u32,
  range_scales: u32,
  range_offsets: u32,
  fitted_scales: u32,
  fitted_offsets: u32,
  rows: u32,    // words from the start of `rows`
  values: u32,  // words from the start of `values`
  unused: u32,
}

const kPositions = 32u;

// Job::grouping
const kWithinHead = 0u;
const kAcrossHeads = 1u;
const kPerChannel = 2u;

@group(0) @binding(0) var<uniform> job: Job;
@group(0) @binding(1) var<storage, read_write> rows: array<u32>;  // f32 bits, [row][head][channel]
@group(0) @binding(2) var<storage, read_write> planes: array<u32>;
// [head][position][channel]: the f32 bits of what is coded, then its code.
@group(0) @binding(3) var<storage, read_write> values: array<u32>;

fn scheme() -> KvqScheme {
  return KvqScheme(job.bits, job.symmetric != 0u, job.fitted != 0u, job.clip_percent);
}

// Rows of a head and position, [head][position], that one workgroup takes: an even number, since
// parameters of two rows share a word.
fn rows_of_a_tile() -> u32 {
  return kvq_tile_rows(job.width) & ~1u;
}

fn bf16_at(element: u32) -> u32 {
  return (planes[job.bf16 + element / 2u] >> (16u * (element & 1u))) & 0xffffu;
}

// One thread, two neighbouring channels.
@compute @workgroup_size(256)
fn append_rows(@builtin(global_invocation_id) id: vec3<u32>) {
  let row = job.heads * job.width;
  let element = 2u * id.x;
  if (element >= job.count * row) {
    return;
  }
  let position = job.position + element / row;
  let head = element % row / job.width;
  let channel = element % job.width;
  let low = kvq_to_bf16(rows[job.rows + element]);
  let high = kvq_to_bf16(rows[job.rows + element + 1u]);
  let at = (head * kPositions + position) * job.width + channel;
  planes[job.bf16 + at / 2u] = low | (high << 16u);
}

// The tile's rows from the BF16 plane, rotated where the scheme says so. `first` is the tile's
// first row.
fn fill_tile(first: u32, thread: u32) {
  let end = kPositions * job.heads * job.width;
  for (var i = thread; i < rows_of_a_tile() * job.width; i += kvq_threads) {
    let element = first * job.width + i;
    if (element < end) {
      kvq_put(i, bf16_at(element));
    }
  }
  workgroupBarrier();
  if (job.rotated != 0u) {
    kvq_rotate(job.width, thread);
  }
}

@compute @workgroup_size(256)
fn encode_rows(@builtin(workgroup_id) group: vec3<u32>,
               @builtin(local_invocation_index) thread: u32) {
  let all = kPositions * job.heads;
  let first = group.x * rows_of_a_tile();
  fill_tile(first, thread);
  let coded = kvq_encode_row(scheme(), job.width, job.rotated != 0u, thread);
  let parts = job.width / 16u;
  let row = first + thread / parts;
  if (thread / parts < rows_of_a_tile() && row < all) {
    write_codes(row, thread % parts, coded.codes);
  }
  let words = kvq_gather(coded, job.width, thread);
  if (thread < rows_of_a_tile() / 2u && first + 2u * thread < all) {
    write_params(first / 2u + thread, words.range, words.fitted);
  }
}

// Word `at` of the parameters, each of two groups.
fn write_params(at: u32, range: KvqParams, fitted: KvqParams) {
  planes[job.range_scales + at] = range.scale;
  if (job.symmetric == 0u) {
    planes[job.range_offsets + at] = range.offset;
  }
  if (job.fitted != 0u) {
    planes[job.fitted_scales + at] = fitted.scale;
    if (job.symmetric == 0u) {
      planes[job.fitted_offsets + at] = fitted.offset;
    }
  }
}

@compute @workgroup_size(256)
fn prepare_rows(@builtin(workgroup_id) group: vec3<u32>,
                @builtin(local_invocation_index) thread: u32) {
  let first = group.x * rows_of_a_tile();
  fill_tile(first, thread);
  let scale = select(1.0, kvq_hadamard_scale(job.width), job.rotated != 0u);
  let end = kPositions * job.heads * job.width;
  for (var i = thread; i < rows_of_a_tile() * job.width; i += kvq_threads) {
    let element = first * job.width + i;
    if (element < end) {
      values[job.values + element] = bitcast<u32>(kvq_settled(bitcast<f32>(kvq_tile[i]), scale));
    }
  }
}

// Element i of a group as an index into `values`.
fn element_of(group: u32, i: u32) -> u32 {
  if (job.grouping == kWithinHead) {
    return group * job.group_size + i;
  }
  if (job.grouping == kAcrossHeads) {
    let groups_of_row = job.heads * job.width / job.group_size;
    let position = group / groups_of_row;
    let in_row = group % groups_of_row * job.group_size + i;
    return (in_row / job.width * kPositions + position) * job.width + in_row % job.width;
  }
  let channel = group % job.width;
  let run = group / job.width;  // of group_size positions, [head][run]: 32 / group_size a head
  return (run * job.group_size + i) * job.width + channel;
}

struct FittedGroup {
  range: KvqParams,
  fitted: KvqParams,
}

// Leaves codes in place of values.
fn fit_group(group: u32) -> FittedGroup {
  var smallest = 0x1p30f;
  var largest = -0x1p30f;
  for (var i = 0u; i < job.group_size; i++) {
    let value = bitcast<f32>(values[job.values + element_of(group, i)]);
    smallest = min(smallest, value);
    largest = max(largest, value);
  }
  let how = scheme();
  var result: FittedGroup;
  result.range = kvq_fit_range(how, smallest, largest);
  let e = kvq_encoder(how, result.range);
  var sums = KvqSums(0i, 0i, 0i, 0i, 0i);
  for (var i = 0u; i < job.group_size; i++) {
    let at = job.values + element_of(group, i);
    let code = kvq_encode(e, bitcast<f32>(values[at]));
    sums = kvq_add_code(sums, how, code);
    values[at] = u32(code);
  }
  if (how.fitted) {
    result.fitted = kvq_fit_levels(how, result.range, sums);
  }
  return result;
}

// One thread, two groups: the number of groups is a multiple of 16.
@compute @workgroup_size(64)
fn fit_groups(@builtin(global_invocation_id) id: vec3<u32>) {
  if (2u * id.x >= job.groups) {
    return;
  }
  var range = KvqParams(0u, 0u);
  var fitted = KvqParams(0u, 0u);
  for (var i = 0u; i < 2u; i++) {
    let group = fit_group(2u * id.x + i);
    range.scale |= group.range.scale << (16u * i);
    range.offset |= group.range.offset << (16u * i);
    fitted.scale |= group.fitted.scale << (16u * i);
    fitted.offset |= group.fitted.offset << (16u * i);
  }
  write_params(id.x, range, fitted);
}

// One thread, the 16 channels of a row that codec_tile.wgsl calls a part.
@compute @workgroup_size(256)
fn pack_codes(@builtin(global_invocation_id) id: vec3<u32>) {
  let parts = job.width / 16u;
  let row = id.x / parts;
  let part = id.x % parts;
  if (row >= kPositions * job.heads) {
    return;
  }
  var packed = KvqPacked(0u, 0u, vec2<u32>(0u));
  for (var i = 0u; i < 16u; i++) {
    let channel = (i / 4u) * (job.width / 4u) + part * 4u + i % 4u;
    packed = kvq_pack(packed, job.bits, values[job.values + row * job.width + channel], i);
  }
  write_codes(row, part, packed);
}

fn write_codes(row: u32, part: u32, packed: KvqPacked) {
  let parts = job.width / 16u;
  planes[job.hi2 + row * parts + part] = packed.hi2;
  if (job.bits >= 4u) {
    planes[job.mid2 + row * parts + part] = packed.mid2;
  }
  if (job.bits == 8u) {
    planes[job.low4 + row * 2u * parts + part] = packed.low4.x;
    planes[job.low4 + row * 2u * parts + parts + part] = packed.low4.y;
  }
}

// --- reading

// The two bits of a channel in a plane of two-bit codes; `row` counts [head][position].
fn two_bits(plane: u32, row: u32, channel: u32) -> u32 {
  let quarter = job.width / 4u;
  let byte = channel % quarter;
  let word = planes[plane + row * (job.width / 16u) + byte / 4u];
  return (word >> (8u * (byte & 3u) + 2u * (channel / quarter))) & 3u;
}

fn four_bits(plane: u32, row: u32, channel: u32) -> u32 {
  let half = job.width / 2u;
  let byte = channel % half;
  let word = planes[plane + row * (job.width / 8u) + byte / 4u];
  return (word >> (8u * (byte & 3u) + 4u * (channel / half))) & 15u;
}

fn half_at(words: u32, i: u32) -> f32 {
  return kvq_fp16_to_f32((planes[words + i / 2u] >> (16u * (i & 1u))) & 0xffffu);
}

fn group_of(position: u32, head: u32, channel: u32) -> u32 {
  if (job.grouping == kWithinHead) {
    return (head * kPositions + position) * (job.width / job.group_size) + channel / job.group_size;
  }
  if (job.grouping == kAcrossHeads) {
    return position * (job.heads * job.width / job.group_size) +
           (head * job.width + channel) / job.group_size;
  }
  return (head * (kPositions / job.group_size) + position / job.group_size) * job.width + channel;
}

fn decoded(position: u32, head: u32, channel: u32) -> f32 {
  let row = head * kPositions + position;
  var top = two_bits(job.hi2, row, channel);
  if (job.read_bits >= 4u) {
    top = top * 4u + two_bits(job.mid2, row, channel);
  }
  if (job.read_bits == 8u) {
    top = top * 16u + four_bits(job.low4, row, channel);
  }
  let how = scheme();
  let by_fit = how.fitted && job.read_bits == 2u;
  let group = group_of(position, head, channel);
  let scale = half_at(select(job.range_scales, job.fitted_scales, by_fit), group);
  var level = kvq_level(how, job.read_bits, top);
  if (by_fit) {
    level = kvq_fitted_level(how, top);
  }
  var offset = 0.0;
  if (!how.symmetric) {
    offset = half_at(select(job.range_offsets, job.fitted_offsets, by_fit), group);
  }
  return offset + scale * level;
}

// Into `rows`, a tile of [row][head] at a time.
@compute @workgroup_size(256)
fn read_rows(@builtin(workgroup_id) group: vec3<u32>,
             @builtin(local_invocation_index) thread: u32) {
  let elements = kvq_tile_rows(job.width) * job.width;  // of a tile
  let first = group.x * elements;
  let end = job.count * job.heads * job.width;
  for (var i = thread; i < elements; i += kvq_threads) {
    let element = first + i;
    if (element < end) {
      let channel = element % job.width;
      let head = element / job.width % job.heads;
      let position = job.position + element / (job.width * job.heads);
      if (job.read_bits == 16u) {
        kvq_tile[i] = bf16_at((head * kPositions + position) * job.width + channel) << 16u;
      } else {
        kvq_tile[i] = bitcast<u32>(decoded(position, head, channel));
      }
    }
  }
  workgroupBarrier();
  let turn_back = job.rotated != 0u && job.read_bits != 16u;
  if (turn_back) {
    kvq_rotate(job.width, thread);
  }
  let scale = kvq_hadamard_scale(job.width);
  for (var i = thread; i < elements; i += kvq_threads) {
    if (first + i < end) {
      var bits = kvq_tile[i];  // a BF16 may be a denormal, and passes as it is
      if (turn_back) {
        bits = bitcast<u32>(bitcast<f32>(bits) * scale);
      }
      rows[job.rows + first + i] = bits;
    }
  }
}
