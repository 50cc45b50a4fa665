#include "backend/webgpu/webgpu_backend.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "backend/webgpu/device_kv.h"
#include "backend/webgpu/device_weights.h"
#include "backend/webgpu/gpu_error.h"
#include "backend/webgpu/webgpu_ops.h"
#include "model/forward.h"
#include "model/step_plan.h"

namespace kipp::webgpu {

namespace {

constexpr int kMostThreads = 1024;
constexpr int kUploadThreads = 8;  // more do not pack faster than the bus takes it

Result<void> check_options(const KvConfig& kv, const LoadOptions& options) {
  if (kv.blocks < 1) {
    return fail(ErrorCode::invalid, "kv.blocks: expected at least 1, found {}", kv.blocks);
  }
  if (kv.store == KvStore::f32) {
    return fail(ErrorCode::invalid,
                "kv.store: expected bf16 or tiered, which webgpu keeps, found f32");
  }
  if (options.weights != WeightStore::packed) {
    return fail(ErrorCode::invalid,
                "weights: expected packed, found mapped; webgpu keeps them on the device");
  }
  if (options.threads < 0 || options.threads > kMostThreads) {
    return fail(ErrorCode::invalid, "threads: expected 1 to {}, or 0 for one per core, found {}",
                kMostThreads, options.threads);
  }
  return {};
}

}  // namespace

// In the order of dependence: the device goes last.
struct WebgpuBackend::State {
  std::unique_ptr<gpu::Device> device;
  DeviceWeights weights;
  Activations activations;
  std::unique_ptr<DeviceKv> kv;
  std::unique_ptr<WebgpuOps> ops;
  StepPlanner planner;
  std::vector<float> logits;         // [rows that were asked for so far, kVocabRows]
  std::optional<Error> cache_error;  // of calls that return nothing, for the eval that follows

  explicit State(std::unique_ptr<gpu::Device> opened, const StepLimits& limits)
      : device(std::move(opened)), planner(limits) {}

  void keep(Result<void> done) {
    if (!done && !cache_error) cache_error = std::move(done).error();
  }
};

WebgpuBackend::WebgpuBackend() = default;
WebgpuBackend::~WebgpuBackend() = default;

Result<void> WebgpuBackend::load(const Artifact& artifact, const KvConfig& kv,
                                 const LoadOptions& options) {
  if (state_ != nullptr) return fail(ErrorCode::invalid, "load: this backend is loaded already");
  KIPP_TRY(check_options(kv, options));
  const ModelConfig& config = artifact.config();
  KIPP_TRY_ASSIGN(device, engine_result(gpu::Device::open({.adapter = options.adapter})));
  // Positions beyond the pool cannot be held, and nothing is prepared for them.
  const auto held = static_cast<std::int64_t>(kv.blocks) * kBlockPositions;
  auto state = std::make_unique<State>(
      std::move(device), StepLimits{.max_step_tokens = kMaxStepTokens,
                                    .max_logit_rows = kMaxLogitRows,
                                    .kv_blocks = kv.blocks,
                                    .context_length = static_cast<int>(
                                        std::min<std::int64_t>(config.context_length, held))});

  KIPP_TRY_ASSIGN(activations,
                  Activations::create(*state->device, config, kMaxStepTokens, kMaxLogitRows));
  state->activations = std::move(activations);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  KIPP_TRY_ASSIGN(pool, ThreadPool::create(std::min(
                            kUploadThreads, options.threads != 0 ? options.threads : cores)));
  KIPP_TRY_ASSIGN(
      weights, DeviceWeights::upload(*state->device, artifact.weights(), *pool, options.progress));
  state->weights = std::move(weights);
  std::vector<DeviceKv::LayerNorms> norms;
  for (const auto& layer : state->weights.get().layers) {
    const auto binding = [&](std::span<const float> norm) {
      return gpu::Binding{&state->weights.norms(), state->weights.norm_offset(norm),
                          norm.size_bytes()};
    };
    norms.push_back({binding(layer.q_norm), binding(layer.k_norm)});
  }
  KIPP_TRY_ASSIGN(cache,
                  DeviceKv::create(*state->device, config, kv, {.max_step_tokens = kMaxStepTokens},
                                   {state->activations.qkv, state->activations.ctx}, norms));
  state->kv = std::move(cache);
  KIPP_TRY_ASSIGN(ops, WebgpuOps::create(*state->device, config, state->weights, state->activations,
                                         *state->kv, kMaxStepTokens, kMaxLogitRows));
  state->ops = std::move(ops);
  state_ = std::move(state);
  return {};
}

Result<LogitsView> WebgpuBackend::eval(std::span<const EvalItem> items) {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "eval: no artifact is loaded");
  State& state = *state_;
  if (state.cache_error) return tl::unexpected(*std::exchange(state.cache_error, std::nullopt));
  KIPP_TRY_ASSIGN(step, state.planner.plan(items));
  KIPP_TRY(state.kv->begin_step(*step));
  forward(*state.ops, state.weights.get(), *step);
  KIPP_TRY_ASSIGN(recorded, state.ops->take_recorded());
  const Rows& logits = state.ops->buffers().logits;
  const auto floats = static_cast<std::size_t>(logits.rows) * kVocabRows;
  if (state.logits.size() < floats) state.logits.resize(floats);
  KIPP_TRY(engine_result(state.device->submit_and_read(
      std::move(recorded), *logits.data, 0,
      std::as_writable_bytes(std::span(state.logits).first(floats)))));
  KIPP_TRY(state.kv->finish_step());
  return LogitsView{.data = state.logits.data(), .rows = logits.rows};
}

void WebgpuBackend::copy_blocks(std::span<const BlockCopy> copies) {
  assert(state_ != nullptr);
  state_->keep(state_->kv->copy_blocks(copies));
}

void WebgpuBackend::hold_planes(std::span<const PlaneChange> changes) {
  assert(state_ != nullptr);
  state_->kv->hold_planes(changes);
}

void WebgpuBackend::move_planes(BlockId from, BlockId to, PlaneBits planes) {
  assert(state_ != nullptr);
  state_->keep(state_->kv->move_planes(from, to, planes));
}

std::size_t WebgpuBackend::block_bytes() const {
  return state_ == nullptr ? 0 : state_->kv->block_bytes();
}

std::size_t WebgpuBackend::block_bytes(PlaneBits planes) const {
  return state_ == nullptr ? 0 : state_->kv->block_bytes(planes);
}

Result<void> WebgpuBackend::read_block(BlockId block, std::span<std::byte> out) {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "block: no artifact is loaded");
  return state_->kv->read_block(block, out);
}

Result<void> WebgpuBackend::write_block(BlockId block, std::span<const std::byte> in) {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "block: no artifact is loaded");
  return state_->kv->write_block(block, in);
}

void WebgpuBackend::lose_device() { state_->device->destroy(); }

}  // namespace kipp::webgpu
