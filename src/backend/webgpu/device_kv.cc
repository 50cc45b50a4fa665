#include "backend/webgpu/device_kv.h"

#include <algorithm>

#include "backend/webgpu/gpu_error.h"
#include "backend/webgpu/paged_device_kv.h"
#include "backend/webgpu/shaders.h"
#include "backend/webgpu/tiered_device_kv.h"
#include "model/rope.h"

namespace kipp::webgpu {

namespace {

constexpr std::size_t kHalf = kHeadDim / 2;

int positions_of(const ModelConfig& config, const KvConfig& kv) {
  return std::min(config.context_length, kv.blocks * kBlockPositions);
}

AttentionPlan::Limits plan_limits(const ModelConfig& config, const KvConfig& kv,
                                  const DeviceKv::Limits& limits, int tile_queries,
                                  bool tiles_end_at_blocks) {
  return {.queries_per_kv_head = config.queries_per_kv_head(),
          .tile_queries = tile_queries,
          .max_step_tokens = limits.max_step_tokens,
          .max_table_blocks = limits.max_step_tokens * blocks_for(positions_of(config, kv)),
          .state_slots = 4 * limits.max_step_tokens,
          .workgroups = limits.workgroups,
          .tiles_end_at_blocks = tiles_end_at_blocks};
}

std::size_t states_bytes(const AttentionPlan::Limits& plan, const ModelConfig& config,
                         int vectors) {
  return static_cast<std::size_t>(plan.state_slots) * static_cast<std::size_t>(config.query_heads) *
         static_cast<std::size_t>(vectors * kHeadDim + 4) * sizeof(float);
}

std::size_t rope_bytes(const ModelConfig& config, const KvConfig& kv) {
  return static_cast<std::size_t>(positions_of(config, kv)) * kHeadDim * sizeof(float);
}

}  // namespace

std::size_t DeviceKv::bytes_needed(const ModelConfig& config, const KvConfig& kv,
                                   const Limits& limits) {
  return kv.store == KvStore::tiered ? TieredDeviceKv::bytes_needed(config, kv, limits)
                                     : PagedDeviceKv::bytes_needed(config, kv, limits);
}

Result<std::unique_ptr<DeviceKv>> DeviceKv::create(gpu::Device& device, const ModelConfig& config,
                                                   const KvConfig& kv, const Limits& limits,
                                                   const Activations& activations,
                                                   std::span<const LayerNorms> norms) {
  if (kv.store == KvStore::tiered) {
    return TieredDeviceKv::create(device, config, kv, limits, activations, norms);
  }
  return PagedDeviceKv::create(device, config, kv, limits, activations, norms);
}

std::size_t DeviceKv::common_bytes(const ModelConfig& config, const KvConfig& kv,
                                   const Limits& limits, int vectors) {
  const auto plan = plan_limits(config, kv, limits, 0, false);
  return rope_bytes(config, kv) + AttentionPlan::bytes_needed(plan) +
         states_bytes(plan, config, vectors);
}

std::uint32_t DeviceKv::workgroup_bytes(const gpu::Device& device, const Limits& limits) {
  const std::uint32_t most = device.adapter().limits.max_workgroup_bytes;
  return limits.workgroup_bytes == 0 ? most : std::min(most, limits.workgroup_bytes);
}

DeviceKv::DeviceKv(gpu::Device& device, const ModelConfig& config, const KvConfig& kv,
                   const Limits& limits, const Shape& shape)
    : config_(config),
      kv_(kv),
      device_(device),
      shape_(shape),
      plan_(plan_limits(config, kv, limits, static_cast<int>(shape.wide_queries),
                        shape.tiles_end_at_blocks)) {}

DeviceKv::~DeviceKv() = default;

Result<gpu::Buffer> DeviceKv::make_buffer(std::size_t bytes, const std::string& what) {
  return engine_result(device_.create_buffer(bytes, what));
}

Result<gpu::Kernel> DeviceKv::make_kernel(const Texts& texts, const std::string& constants,
                                          std::vector<gpu::Access> bindings) {
  std::string wgsl = fmt::format("const GROUP = {}u;\nconst VECTORS = {}u;\n{}",
                                 config_.queries_per_kv_head(), shape_.vectors, constants);
  wgsl += shader("attention");
  for (const std::string_view part : texts.parts) wgsl += part;
  wgsl += shader(texts.name);
  return engine_result(device_.create_kernel(
      {.name = texts.name, .wgsl = std::move(wgsl), .bindings = std::move(bindings)}));
}

Result<gpu::Arguments> DeviceKv::bind(const gpu::Kernel& kernel,
                                      std::initializer_list<gpu::Binding> bindings) {
  return engine_result(device_.bind(kernel, {bindings.begin(), bindings.size()}));
}

std::string DeviceKv::narrow_constants() const {
  return fmt::format("const HEADS = {}u;\nconst BATCH = {}u;\n", shape_.narrow_heads,
                     shape_.narrow_batch);
}

std::string DeviceKv::wide_constants() const {
  return fmt::format("const QUERIES = {}u;\n", shape_.wide_queries);
}

Result<void> DeviceKv::create_common() {
  KIPP_TRY_ASSIGN(rope, make_buffer(rope_bytes(config_, kv_), "rotations"));
  KIPP_TRY_ASSIGN(step,
                  make_buffer(AttentionPlan::bytes_needed(plan_.limits()), "tables of a step"));
  KIPP_TRY_ASSIGN(states, make_buffer(states_bytes(plan_.limits(), config_, shape_.vectors),
                                      "states of attention"));
  rope_ = std::move(rope);
  step_ = std::move(step);
  states_ = std::move(states);

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

void DeviceKv::begin_tables(const StepPlan& step,
                            std::span<const AttentionPlan::Completed> completed) {
  plan_.begin_step(step, completed);
  rows_ = static_cast<std::uint32_t>(step.rows());
  device_.write(step_, 0, std::as_bytes(plan_.words()));
}

void DeviceKv::dispatch(gpu::Recorder& recorder, const Attention& attention) const {
  const auto parts =
      static_cast<std::uint32_t>(config_.queries_per_kv_head()) / shape_.narrow_heads;
  recorder.dispatch(attention.wide, attention.wide_arguments, plan_.wide_tasks(), kKvHeads);
  recorder.dispatch(attention.narrow, attention.narrow_arguments, plan_.narrow_tasks(),
                    kKvHeads * parts);
  recorder.dispatch(merge_, merge_arguments_, plan_.merges(),
                    static_cast<std::uint32_t>(config_.query_heads));
}

}  // namespace kipp::webgpu
