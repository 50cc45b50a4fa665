#include "backend/webgpu/paged_device_kv.h"

#include <algorithm>

#include "backend/webgpu/gpu_error.h"
#include "backend/webgpu/shaders.h"
#include "backend/webgpu/subgroups.h"

namespace kipp::webgpu {

namespace {

using gpu::Access;

constexpr Access kRead = Access::read;
constexpr Access kWrite = Access::read_write;
constexpr std::size_t kLayerBlockBytes =
    std::size_t{2} * kKvWidth * kBlockPositions * sizeof(std::uint16_t);
constexpr int kVectors = 1;

// Of attend_narrow: query heads of a workgroup, and positions whose scores are added up at once. As
// many heads as fit, since each further workgroup reads the keys and values again.
struct NarrowShape {
  std::uint32_t heads, batch;

  std::uint32_t workgroup_bytes() const {
    const std::uint32_t pool = std::max(4 * (heads * batch + 8), 2048u);
    return 4 * (128 * heads + heads * 8 * 33 + pool + 3 * 8 * heads);
  }
};

NarrowShape narrow_shape(std::uint32_t group, std::uint32_t workgroup_bytes) {
  NarrowShape shape = {};
  for (std::uint32_t heads = group; heads > 0; --heads) {
    if (group % heads != 0) continue;
    shape = {heads, 256};
    while (shape.batch > 64 && shape.heads * shape.batch > 512) shape.batch /= 2;
    if (shape.workgroup_bytes() <= workgroup_bytes) break;
  }
  return shape;
}

// Queries of a tile of attend_wide: 32 in 13.9 KiB, 64 in 19.3.
constexpr std::uint32_t kWideQueries[] = {64, 32};

std::uint32_t wide_queries(std::uint32_t threads, std::uint32_t workgroup_bytes) {
  for (const std::uint32_t queries : kWideQueries) {
    const std::uint32_t bytes = 512 * 16 + 32 * (queries / 4 + 1) * 16 + queries * (16 + 4 + 16);
    if (bytes <= workgroup_bytes && 4 * queries <= threads) return queries;
  }
  return kWideQueries[1];
}

std::size_t layer_bytes(const KvConfig& kv) {
  return static_cast<std::size_t>(kv.blocks) * kLayerBlockBytes;
}

std::size_t at(BlockId block) { return static_cast<std::size_t>(block) * kLayerBlockBytes; }

}  // namespace

std::size_t PagedDeviceKv::bytes_needed(const ModelConfig& config, const KvConfig& kv,
                                        const Limits& limits) {
  return static_cast<std::size_t>(config.layers) * (layer_bytes(kv) + kLayerBlockBytes) +
         common_bytes(config, kv, limits, kVectors);
}

Result<std::unique_ptr<DeviceKv>> PagedDeviceKv::create(gpu::Device& device,
                                                        const ModelConfig& config,
                                                        const KvConfig& kv, const Limits& limits,
                                                        const Activations& activations,
                                                        std::span<const LayerNorms> norms) {
  const std::uint32_t bytes = workgroup_bytes(device, limits);
  const NarrowShape narrow =
      narrow_shape(static_cast<std::uint32_t>(config.queries_per_kv_head()), bytes);
  const Shape shape = {
      .vectors = kVectors,
      .tiles_end_at_blocks = false,
      .narrow_heads = narrow.heads,
      .narrow_batch = narrow.batch,
      .wide_queries = wide_queries(device.adapter().limits.max_workgroup_threads, bytes)};
  std::unique_ptr<PagedDeviceKv> cache(new PagedDeviceKv(device, config, kv, limits, shape));
  KIPP_TRY(cache->create_common());
  KIPP_TRY(cache->create_kernels());
  KIPP_TRY(cache->create_layers(activations, norms));
  return cache;
}

Result<void> PagedDeviceKv::create_kernels() {
  KIPP_TRY_ASSIGN(append, make_kernel({"kv_append", {shader("head_row")}}, "",
                                      {kRead, kRead, kRead, kRead, kWrite, kWrite}));
  KIPP_TRY_ASSIGN(shuffles, neighbours_shuffle(device()));
  const std::string lanes(shader(shuffles ? "lanes_subgroups" : "lanes_plain"));
  KIPP_TRY_ASSIGN(narrow, make_kernel({"attend_narrow", {}}, narrow_constants() + lanes,
                                      {kRead, kRead, kRead, kWrite, kWrite, kRead}));
  KIPP_TRY_ASSIGN(wide, make_kernel({"attend_wide", {}}, wide_constants(),
                                    {kRead, kRead, kRead, kWrite, kWrite}));
  KIPP_TRY_ASSIGN(
      merge, make_kernel({"attend_merge", {shader("attend_rows")}}, "", {kRead, kRead, kWrite}));
  append_ = std::move(append);
  narrow_ = std::move(narrow);
  wide_ = std::move(wide);
  merge_ = std::move(merge);
  return {};
}

Result<void> PagedDeviceKv::create_layers(const Activations& activations,
                                          std::span<const LayerNorms> norms) {
  const gpu::Binding step = {&step_}, qkv = {&activations.qkv}, ctx = {&activations.ctx},
                     states = {&states_};
  for (std::size_t i = 0; i < static_cast<std::size_t>(config_.layers); ++i) {
    Layer layer;
    KIPP_TRY_ASSIGN(
        memory, make_buffer(layer_bytes(kv_),
                            fmt::format("keys and values of {} blocks in a layer", kv_.blocks)));
    layer.cache = std::move(memory);
    const gpu::Binding cache = {&layer.cache};
    KIPP_TRY_ASSIGN(append,
                    bind(append_, {step, {&rope_}, norms[i].query, norms[i].key, qkv, cache}));
    KIPP_TRY_ASSIGN(narrow, bind(narrow_, {step, qkv, cache, states, ctx, cache}));
    KIPP_TRY_ASSIGN(wide, bind(wide_, {step, qkv, cache, states, ctx}));
    layer.append = std::move(append);
    layer.narrow = std::move(narrow);
    layer.wide = std::move(wide);
    layers_.push_back(std::move(layer));
  }
  KIPP_TRY_ASSIGN(merge, bind(merge_, {step, states, ctx}));
  merge_arguments_ = std::move(merge);
  KIPP_TRY_ASSIGN(bounce, make_buffer(block_bytes(), "a block on its way"));
  bounce_ = std::move(bounce);
  return {};
}

Result<void> PagedDeviceKv::begin_step(const StepPlan& step) {
  begin_tables(step, {});
  return {};
}

void PagedDeviceKv::append(gpu::Recorder& recorder, int layer) const {
  recorder.dispatch(append_, layers_[static_cast<std::size_t>(layer)].append, rows(),
                    append_heads());
}

void PagedDeviceKv::attend(gpu::Recorder& recorder, int layer) const {
  const Layer& l = layers_[static_cast<std::size_t>(layer)];
  dispatch(
      recorder,
      {.narrow = narrow_, .wide = wide_, .narrow_arguments = l.narrow, .wide_arguments = l.wide});
}

Result<void> PagedDeviceKv::copy_blocks(std::span<const BlockCopy> copies) {
  gpu::Recorder recorder = device().record();
  for (const BlockCopy& copy : copies) {
    for (const Layer& layer : layers_) {
      recorder.copy(bounce_, 0, layer.cache, at(copy.from), kLayerBlockBytes);
      recorder.copy(layer.cache, at(copy.to), bounce_, 0, kLayerBlockBytes);
    }
  }
  return engine_result(device().submit(std::move(recorder)));
}

std::size_t PagedDeviceKv::block_bytes(PlaneBits /*planes*/) const {
  return layers_.size() * kLayerBlockBytes;
}

Result<void> PagedDeviceKv::check(BlockId block, std::size_t bytes) const {
  if (block < 0 || block >= kv_.blocks) {
    return fail(ErrorCode::invalid, "block: expected one from 0 to {}, found {}", kv_.blocks - 1,
                block);
  }
  if (bytes != block_bytes()) {
    return fail(ErrorCode::invalid, "block {}: expected {} bytes, found {}", block, block_bytes(),
                bytes);
  }
  return {};
}

Result<void> PagedDeviceKv::read_block(BlockId block, std::span<std::byte> out) {
  KIPP_TRY(check(block, out.size()));
  gpu::Recorder recorder = device().record();
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    recorder.copy(bounce_, i * kLayerBlockBytes, layers_[i].cache, at(block), kLayerBlockBytes);
  }
  return engine_result(device().submit_and_read(std::move(recorder), bounce_, 0, out));
}

Result<void> PagedDeviceKv::write_block(BlockId block, std::span<const std::byte> in) {
  KIPP_TRY(check(block, in.size()));
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    device().write(layers_[i].cache, at(block), in.subspan(i * kLayerBlockBytes, kLayerBlockBytes));
  }
  return {};
}

}  // namespace kipp::webgpu
