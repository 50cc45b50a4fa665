#include "backend/webgpu/device_kv.h"

#include <algorithm>
#include <string>

#include "backend/webgpu/gpu_error.h"
#include "backend/webgpu/shaders.h"
#include "model/memory.h"
#include "model/rope.h"

namespace kipp::webgpu {

namespace {

using gpu::Access;

constexpr std::size_t kHalf = kHeadDim / 2;
constexpr std::size_t kStateFloats = kHeadDim + 4;  // wgsl/attention.wgsl
constexpr std::size_t kLayerBlockBytes =
    std::size_t{2} * kKvWidth * kBlockPositions * sizeof(std::uint16_t);

int positions_of(const ModelConfig& config, const KvConfig& kv) {
  return std::min(config.context_length, kv.blocks * kBlockPositions);
}

// Shapes of attend_narrow: query heads of a workgroup, and positions whose scores are added up at
// once. As many heads as fit, since each further workgroup reads the keys and values again.
struct NarrowShape {
  std::uint32_t heads, batch;

  std::uint32_t workgroup_bytes() const {
    const std::uint32_t pool = std::max(4 * (heads * batch + 8), 1024u);
    return 4 * (128 * heads + heads * 8 * 33 + pool + 3 * 8 * heads);
  }
};

NarrowShape narrow_shape(std::uint32_t group, std::uint32_t workgroup_bytes) {
  NarrowShape shape = {};
  for (std::uint32_t heads = group; heads > 0; --heads) {
    if (group % heads != 0) continue;
    shape = {heads, 256};
    while (shape.batch > 32 && shape.heads * shape.batch > 512) shape.batch /= 2;
    if (shape.workgroup_bytes() <= workgroup_bytes) break;
  }
  return shape;
}

// Queries of a tile of attend_wide: 32 in 13.9 KiB, 64 in 19.3.
constexpr std::uint32_t kWideQueries[] = {64, 32};
constexpr std::uint32_t wide_bytes(std::uint32_t queries) {
  return 512 * 16 + 32 * (queries / 4 + 1) * 16 + queries * (16 + 4 + 16);
}

std::uint32_t wide_queries(std::uint32_t threads, std::uint32_t workgroup_bytes) {
  for (const std::uint32_t queries : kWideQueries) {
    if (wide_bytes(queries) <= workgroup_bytes && 4 * queries <= threads) return queries;
  }
  return kWideQueries[1];
}

std::uint32_t workgroup_bytes_of(const gpu::Device& device, const DeviceKv::Limits& limits) {
  const std::uint32_t most = device.adapter().limits.max_workgroup_bytes;
  return limits.workgroup_bytes == 0 ? most : std::min(most, limits.workgroup_bytes);
}

AttentionPlan::Limits plan_limits(const ModelConfig& config, const KvConfig& kv,
                                  const DeviceKv::Limits& limits, int tile_queries) {
  return {.queries_per_kv_head = config.queries_per_kv_head(),
          .tile_queries = tile_queries,
          .max_step_tokens = limits.max_step_tokens,
          .max_table_blocks = limits.max_step_tokens * blocks_for(positions_of(config, kv)),
          .state_slots = 4 * limits.max_step_tokens,
          .workgroups = limits.workgroups,
          .tiles_end_at_blocks = false};
}

std::size_t states_bytes(const AttentionPlan::Limits& plan, const ModelConfig& config) {
  return static_cast<std::size_t>(plan.state_slots) * static_cast<std::size_t>(config.query_heads) *
         kStateFloats * sizeof(float);
}

std::size_t rope_bytes(const ModelConfig& config, const KvConfig& kv) {
  return static_cast<std::size_t>(positions_of(config, kv)) * kHeadDim * sizeof(float);
}

std::size_t layer_bytes(const KvConfig& kv) {
  return static_cast<std::size_t>(kv.blocks) * kLayerBlockBytes;
}

}  // namespace

std::size_t DeviceKv::bytes_needed(const ModelConfig& config, const KvConfig& kv,
                                   const Limits& limits) {
  const auto plan = plan_limits(config, kv, limits, 0);
  const auto layers = static_cast<std::size_t>(config.layers);
  return layers * (layer_bytes(kv) + kLayerBlockBytes) + rope_bytes(config, kv) +
         AttentionPlan::bytes_needed(plan) + states_bytes(plan, config);
}

DeviceKv::DeviceKv(gpu::Device& device, const ModelConfig& config, const KvConfig& kv,
                   const Limits& limits)
    : device_(device),
      config_(config),
      kv_(kv),
      plan_(plan_limits(config, kv, limits,
                        static_cast<int>(wide_queries(device.adapter().limits.max_workgroup_threads,
                                                      workgroup_bytes_of(device, limits))))) {}

DeviceKv::~DeviceKv() = default;

Result<std::unique_ptr<DeviceKv>> DeviceKv::create(gpu::Device& device, const ModelConfig& config,
                                                   const KvConfig& kv, const Limits& limits,
                                                   const Activations& activations,
                                                   std::span<const LayerNorms> norms) {
  std::unique_ptr<DeviceKv> cache(new DeviceKv(device, config, kv, limits));
  KIPP_TRY(cache->create_kernels(workgroup_bytes_of(device, limits)));
  KIPP_TRY(cache->create_buffers());
  KIPP_TRY(cache->bind(activations, norms));
  return cache;
}

Result<void> DeviceKv::create_kernels(std::uint32_t workgroup_bytes) {
  const auto group = static_cast<std::uint32_t>(config_.queries_per_kv_head());
  const auto make = [&](const char* name, const std::string& constants,
                        std::vector<Access> bindings) {
    std::string text = fmt::format("const GROUP = {}u;\n{}", group, constants);
    text += shader("attention");
    text += shader(name);
    return engine_result(device_.create_kernel(
        {.name = name, .wgsl = std::move(text), .bindings = std::move(bindings)}));
  };
  constexpr Access kRead = Access::read, kWrite = Access::read_write;
  const NarrowShape narrow = narrow_shape(group, workgroup_bytes);
  narrow_parts_ = group / narrow.heads;
  const std::uint32_t queries =
      wide_queries(device_.adapter().limits.max_workgroup_threads, workgroup_bytes);
  KIPP_TRY_ASSIGN(append, make("kv_append", "", {kRead, kRead, kRead, kRead, kWrite, kWrite}));
  KIPP_TRY_ASSIGN(
      few, make("attend_narrow",
                fmt::format("const HEADS = {}u;\nconst BATCH = {}u;\n", narrow.heads, narrow.batch),
                {kRead, kRead, kRead, kWrite, kWrite}));
  KIPP_TRY_ASSIGN(many, make("attend_wide", fmt::format("const QUERIES = {}u;\n", queries),
                             {kRead, kRead, kRead, kWrite, kWrite}));
  KIPP_TRY_ASSIGN(merge, make("attend_merge", "", {kRead, kRead, kWrite}));
  append_ = std::move(append);
  narrow_ = std::move(few);
  wide_ = std::move(many);
  merge_ = std::move(merge);
  return {};
}

Result<void> DeviceKv::create_buffers() {
  const auto make = [&](std::size_t bytes, const std::string& what) {
    return engine_result(device_.create_buffer(bytes, what));
  };
  for (int layer = 0; layer < config_.layers; ++layer) {
    KIPP_TRY_ASSIGN(
        cache,
        make(layer_bytes(kv_), fmt::format("keys and values of {} blocks in a layer", kv_.blocks)));
    layers_.push_back({.cache = std::move(cache), .append = {}, .narrow = {}, .wide = {}});
  }
  KIPP_TRY_ASSIGN(rope, make(rope_bytes(config_, kv_), "rotations"));
  KIPP_TRY_ASSIGN(step, make(AttentionPlan::bytes_needed(plan_.limits()), "tables of a step"));
  KIPP_TRY_ASSIGN(states, make(states_bytes(plan_.limits(), config_), "states of attention"));
  KIPP_TRY_ASSIGN(bounce, make(block_bytes(), "a block on its way"));
  rope_ = std::move(rope);
  step_ = std::move(step);
  states_ = std::move(states);
  bounce_ = std::move(bounce);

  std::vector<double> inverse_frequency(kHalf);
  rope_inverse_frequency(config_.rope_theta, inverse_frequency);
  std::vector<float> angles(static_cast<std::size_t>(positions_of(config_, kv_)) * kHeadDim);
  for (std::size_t at = 0; at < angles.size(); at += kHeadDim) {
    rope_angles(static_cast<int>(at / kHeadDim), inverse_frequency,
                std::span(angles).subspan(at, kHalf), std::span(angles).subspan(at + kHalf, kHalf));
  }
  device_.write(rope_, 0, std::as_bytes(std::span(angles)));
  return {};
}

Result<void> DeviceKv::bind(const Activations& activations, std::span<const LayerNorms> norms) {
  const auto bind_to = [&](gpu::Arguments& arguments, const gpu::Kernel& kernel,
                           std::initializer_list<gpu::Binding> bindings) -> Result<void> {
    KIPP_TRY_ASSIGN(bound,
                    engine_result(device_.bind(kernel, {bindings.begin(), bindings.size()})));
    arguments = std::move(bound);
    return {};
  };
  const auto whole = [](const gpu::Buffer& buffer) { return gpu::Binding{.buffer = &buffer}; };
  const gpu::Binding step = whole(step_), qkv = whole(activations.qkv),
                     ctx = whole(activations.ctx), states = whole(states_);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    const gpu::Binding cache = whole(layer.cache);
    KIPP_TRY(bind_to(layer.append, append_,
                     {step, whole(rope_), norms[i].query, norms[i].key, qkv, cache}));
    KIPP_TRY(bind_to(layer.narrow, narrow_, {step, qkv, cache, states, ctx}));
    KIPP_TRY(bind_to(layer.wide, wide_, {step, qkv, cache, states, ctx}));
  }
  return bind_to(merge_arguments_, merge_, {step, states, ctx});
}

Result<void> DeviceKv::begin_step(const StepPlan& step) {
  plan_.begin_step(step);
  rows_ = static_cast<std::uint32_t>(step.rows());
  device_.write(step_, 0, std::as_bytes(plan_.words()));
  return {};
}

void DeviceKv::append(gpu::Recorder& recorder, int layer) const {
  const auto heads = static_cast<std::uint32_t>(config_.query_heads + 2 * kKvHeads);
  recorder.dispatch(append_, layers_[static_cast<std::size_t>(layer)].append, rows_, heads);
}

void DeviceKv::attend(gpu::Recorder& recorder, int layer) const {
  const Layer& l = layers_[static_cast<std::size_t>(layer)];
  recorder.dispatch(wide_, l.wide, plan_.wide_tasks(), kKvHeads);
  recorder.dispatch(narrow_, l.narrow, plan_.narrow_tasks(), kKvHeads * narrow_parts_);
  recorder.dispatch(merge_, merge_arguments_, plan_.merges(),
                    static_cast<std::uint32_t>(config_.query_heads));
}

Result<void> DeviceKv::copy_blocks(std::span<const BlockCopy> copies) {
  gpu::Recorder recorder = device_.record();
  for (const BlockCopy& copy : copies) {
    for (const Layer& layer : layers_) {
      recorder.copy(bounce_, 0, layer.cache, static_cast<std::size_t>(copy.from) * kLayerBlockBytes,
                    kLayerBlockBytes);
      recorder.copy(layer.cache, static_cast<std::size_t>(copy.to) * kLayerBlockBytes, bounce_, 0,
                    kLayerBlockBytes);
    }
  }
  return engine_result(device_.submit(std::move(recorder)));
}

std::size_t DeviceKv::block_bytes() const { return layers_.size() * kLayerBlockBytes; }

Result<void> DeviceKv::check(BlockId block, std::size_t bytes) const {
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

Result<void> DeviceKv::read_block(BlockId block, std::span<std::byte> out) {
  KIPP_TRY(check(block, out.size()));
  gpu::Recorder recorder = device_.record();
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    recorder.copy(bounce_, i * kLayerBlockBytes, layers_[i].cache,
                  static_cast<std::size_t>(block) * kLayerBlockBytes, kLayerBlockBytes);
  }
  return engine_result(device_.submit_and_read(std::move(recorder), bounce_, 0, out));
}

Result<void> DeviceKv::write_block(BlockId block, std::span<const std::byte> in) {
  KIPP_TRY(check(block, in.size()));
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    device_.write(layers_[i].cache, static_cast<std::size_t>(block) * kLayerBlockBytes,
                  in.subspan(i * kLayerBlockBytes, kLayerBlockBytes));
  }
  return {};
}

}  // namespace kipp::webgpu
