#include "backend/cuda/cuda_backend.h"

#include <algorithm>
#include <cassert>
#include <thread>
#include <utility>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/device.h"
#include "backend/cuda/device_weights.h"
#include "backend/paged_kv.h"
#include "model/forward.h"
#include "model/memory.h"
#include "model/step_plan.h"

namespace kipp::cuda {

namespace {

constexpr int kMostThreads = 1024;
// Copies out of the page cache reach the speed of the bus with fewer.
constexpr int kUploadThreads = 8;
// What the driver takes later, for code it loads when it is first launched.
constexpr std::size_t kDriverBytes = std::size_t{256} << 20;
constexpr std::size_t kElementBytes = 2;  // of a BF16 key or value

constexpr std::size_t kRowBytes = std::size_t{kVocabRows} * sizeof(float);  // of logits

double gib(std::size_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0); }

Result<void> check_options(const KvConfig& kv, const LoadOptions& options) {
  if (kv.blocks < 1) {
    return fail(ErrorCode::invalid, "kv.blocks: expected at least 1, found {}", kv.blocks);
  }
  if (kv.store != KvStore::bf16) {
    return fail(ErrorCode::invalid, "kv.store: expected bf16, the only one cuda keeps, found {}",
                kv.store == KvStore::f32 ? "f32" : "tiered");
  }
  if (options.weights != WeightStore::packed) {
    return fail(ErrorCode::invalid,
                "weights: expected packed, found mapped; cuda keeps them on the device");
  }
  if (options.threads < 0 || options.threads > kMostThreads) {
    return fail(ErrorCode::invalid, "threads: expected 1 to {}, or 0 for one per core, found {}",
                kMostThreads, options.threads);
  }
  return {};
}

CudaLimits limits_of(const ModelConfig& config, const KvConfig& kv) {
  // Positions beyond the pool cannot be held, and nothing is prepared for them.
  const auto held = static_cast<std::int64_t>(kv.blocks) * kBlockPositions;
  return {.max_step_tokens = kMaxStepTokens,
          .max_logit_rows = kMaxLogitRows,
          .max_positions = static_cast<int>(std::min<std::int64_t>(config.context_length, held)),
          .kv_blocks = kv.blocks};
}

// All that load() takes of the device; refuses what is not free.
Result<void> check_device_memory(Device& device, const Artifact& artifact,
                                 const CudaLimits& limits) {
  const std::size_t weights = DeviceWeights::bytes_needed(artifact.weights());
  const std::size_t kv =
      static_cast<std::size_t>(limits.kv_blocks) * kv_block_bytes(artifact.config(), kElementBytes);
  const std::size_t step = CudaOps::bytes_needed(artifact.config(), limits);
  const std::size_t other = DeviceWeights::staging_bytes() + kDriverBytes;
  const std::size_t needed = weights + kv + step + other;
  KIPP_TRY_ASSIGN(available, device.free_bytes());
  if (needed <= available) return {};
  return fail(ErrorCode::exhausted,
              "memory: {:.1f} GiB of the device needed ({:.1f} for weights, {:.1f} for {} cached "
              "positions, {:.1f} for one step, {:.1f} for the driver and the upload), {:.1f} GiB "
              "available of {:.1f} ({}); ask for a shorter context or fewer sequences",
              gib(needed), gib(weights), gib(kv),
              static_cast<std::size_t>(limits.kv_blocks) * kBlockPositions, gib(step), gib(other),
              gib(available), gib(device.properties().memory_bytes), device.properties().name);
}

}  // namespace

// In the order of dependence: the device goes last.
struct CudaBackend::State {
  std::unique_ptr<Device> device;
  DeviceWeights weights;
  DeviceMemory kv;  // [blocks] of block_bytes, laid out as backend/paged_kv.h says
  PinnedMemory logits;
  StepPlanner planner;
  std::unique_ptr<CudaOps> ops;
  std::size_t block_bytes = 0;
  int blocks = 0;
  std::optional<Error> copy_error;  // of copy_blocks, for the eval that follows

  // What a failed step has enqueued may still read its tables.
  Result<LogitsView> failed(Error error) {
    static_cast<void>(device->wait("ending a step that failed"));
    return tl::unexpected(std::move(error));
  }
};

CudaBackend::CudaBackend() = default;
CudaBackend::~CudaBackend() = default;

Result<void> CudaBackend::load(const Artifact& artifact, const KvConfig& kv,
                               const LoadOptions& options) {
  if (state_ != nullptr) return fail(ErrorCode::invalid, "load: this backend is loaded already");
  KIPP_TRY(check_options(kv, options));
  const ModelConfig& config = artifact.config();
  const CudaLimits limits = limits_of(config, kv);
  KIPP_TRY_ASSIGN(device, Device::open());
  KIPP_TRY(check_device_memory(*device, artifact, limits));

  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  KIPP_TRY_ASSIGN(pool, ThreadPool::create(std::min(
                            kUploadThreads, options.threads != 0 ? options.threads : cores)));
  const std::size_t block_bytes = kv_block_bytes(config, kElementBytes);
  const std::size_t kv_bytes = static_cast<std::size_t>(kv.blocks) * block_bytes;
  KIPP_TRY_ASSIGN(cache, device->allocate(kv_bytes, "keys and values"));
  // Positions that were never written read as zero.
  KIPP_TRY(device->zero(cache.data(), kv_bytes, "clearing keys and values"));
  KIPP_TRY_ASSIGN(logits, device->allocate_pinned(kMaxLogitRows * kRowBytes, "logits"));
  KIPP_TRY_ASSIGN(ops, CudaOps::create(*device, config, limits,
                                       {.data = reinterpret_cast<std::uint16_t*>(cache.data()),
                                        .block_elements = block_bytes / kElementBytes},
                                       options.deterministic, *pool));
  KIPP_TRY_ASSIGN(weights,
                  DeviceWeights::upload(*device, artifact.weights(), *pool, options.progress));
  state_.reset(new State{.device = std::move(device),
                         .weights = std::move(weights),
                         .kv = std::move(cache),
                         .logits = std::move(logits),
                         .planner = StepPlanner({.max_step_tokens = limits.max_step_tokens,
                                                 .max_logit_rows = limits.max_logit_rows,
                                                 .kv_blocks = limits.kv_blocks,
                                                 .context_length = limits.max_positions}),
                         .ops = std::move(ops),
                         .block_bytes = block_bytes,
                         .blocks = kv.blocks,
                         .copy_error = std::nullopt});
  info_.arithmetic = options.deterministic ? "cuda" : "cuda, fast";
  return {};
}

Result<LogitsView> CudaBackend::eval(std::span<const EvalItem> items) {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "eval: no artifact is loaded");
  State& state = *state_;
  if (state.copy_error) return tl::unexpected(*std::exchange(state.copy_error, std::nullopt));
  KIPP_TRY_ASSIGN(step, state.planner.plan(items));
  CudaOps& ops = *state.ops;
  forward(ops, state.weights.get(), *step);
  if (auto enqueued = ops.error(); !enqueued) return state.failed(std::move(enqueued).error());
  const Rows& logits = ops.buffers().logits;
  const std::size_t bytes = static_cast<std::size_t>(logits.rows) * kRowBytes;
  if (auto copied = state.device->copy_to_host(state.logits.bytes().first(bytes), logits.data,
                                               "copying logits");
      !copied) {
    return state.failed(std::move(copied).error());
  }
  KIPP_TRY(state.device->wait("computing a step"));
  return LogitsView{.data = reinterpret_cast<const float*>(state.logits.data()),
                    .rows = logits.rows};
}

void CudaBackend::copy_blocks(std::span<const BlockCopy> copies) {
  assert(state_ != nullptr);
  State& state = *state_;
  for (const BlockCopy& c : copies) {
    assert(c.from >= 0 && c.from < state.blocks && c.to >= 0 && c.to < state.blocks);
    const auto at = [&](BlockId block) {
      return state.kv.data() + static_cast<std::size_t>(block) * state.block_bytes;
    };
    auto done = state.device->copy_within(at(c.to), at(c.from), state.block_bytes,
                                          "copying a block of keys and values");
    if (!done && !state.copy_error) state.copy_error = std::move(done).error();
  }
}

std::size_t CudaBackend::block_bytes() const { return state_ == nullptr ? 0 : state_->block_bytes; }

Result<std::vector<DeviceFacts>> list_devices() {
  KIPP_TRY_ASSIGN(device, Device::open());
  const runtime::Properties& found = device->properties();
  return std::vector<DeviceFacts>{
      {.name = found.name, .type = "discrete GPU", .memory_bytes = found.memory_bytes}};
}

Result<std::byte*> CudaBackend::block_at(BlockId block, std::size_t bytes) const {
  if (state_ == nullptr) return fail(ErrorCode::invalid, "block: no artifact is loaded");
  if (block < 0 || block >= state_->blocks) {
    return fail(ErrorCode::invalid, "block: expected one from 0 to {}, found {}",
                state_->blocks - 1, block);
  }
  if (bytes != state_->block_bytes) {
    return fail(ErrorCode::invalid, "block {}: expected {} bytes, found {}", block,
                state_->block_bytes, bytes);
  }
  return state_->kv.data() + static_cast<std::size_t>(block) * bytes;
}

Result<void> CudaBackend::read_block(BlockId block, std::span<std::byte> out) {
  KIPP_TRY_ASSIGN(at, block_at(block, out.size()));
  KIPP_TRY(state_->device->copy_to_host(out, at, "reading a block of keys and values"));
  return state_->device->wait("reading a block of keys and values");
}

Result<void> CudaBackend::write_block(BlockId block, std::span<const std::byte> in) {
  KIPP_TRY_ASSIGN(at, block_at(block, in.size()));
  KIPP_TRY(state_->device->copy_to_device(at, in, "writing a block of keys and values"));
  return state_->device->wait("writing a block of keys and values");
}

}  // namespace kipp::cuda
