// What each thread gets from its neighbours by shuffles: [thread][neighbour 1, neighbour 2].
@group(0) @binding(0) var<storage, read_write> found: array<vec2<u32>>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) thread: u32) {
  found[thread] = vec2<u32>(subgroupShuffleXor(thread, 1u), subgroupShuffleXor(thread, 2u));
}
