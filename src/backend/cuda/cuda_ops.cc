#include "backend/cuda/cuda_ops.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backend/ops_concept.h"
#include "model/memory.h"
#include "model/rope.h"

namespace kipp::cuda {

static_assert(Qwen3Ops<CudaOps>);

namespace {

constexpr std::size_t kAlignment = 256;
// Slots for states of attention that several tasks share: 64 sequences of 16,384 positions.
constexpr int kMaxStateSlots = 8192;
// Steps of more rows are bound by arithmetic: there the second term of the inputs costs as much as
// the first, while below the weights arrive later than both. Against the reference, demo
// checkpoint, 72 positions in one step (emulated): two terms at most 3.6e-7 and the same arg max;
// one term at most 8.1e-5, 5e-6 in the mean, and another arg max at one near tie.
constexpr int kExactRows = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Hands out a memory; without one it counts.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}
  std::byte* take(std::size_t bytes) {
    std::byte* at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += aligned(bytes);
    return at;
  }
  Rows rows(int most, int cols) {
    return {take(static_cast<std::size_t>(most) * static_cast<std::size_t>(cols) * sizeof(float)),
            0, cols};
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

// Of every product and of attention: one op at a time uses it.
std::size_t scratch_bytes(const ModelConfig& config, const CudaLimits& limits) {
  const StepWidths w = step_widths(config);
  std::size_t most = attend_scratch_bytes(kMaxStateSlots, config.query_heads);
  // Which kernel takes a product depends on its rows, so more rows may need less.
  for (int rows = 1; rows <= limits.max_step_tokens; ++rows) {
    for (const int cols : {w.qkv, w.x, w.gate_up}) {
      most = std::max(most, matmul_scratch_bytes(rows, cols));
    }
  }
  for (int rows = 1; rows <= limits.max_logit_rows; ++rows) {
    most = std::max(most, matmul_scratch_bytes(rows, w.logits));
  }
  return most;
}

// Returns the bytes used.
std::size_t lay_out(const ModelConfig& config, const CudaLimits& limits, std::byte* memory,
                    CudaOps::Buffers& buffers, Scratch& scratch) {
  const StepWidths w = step_widths(config);
  Carver carver(memory);
  const auto of_step = [&](int cols) { return carver.rows(limits.max_step_tokens, cols); };
  const auto of_logits = [&](int cols) { return carver.rows(limits.max_logit_rows, cols); };
  buffers = {.x = of_step(w.x),
             .h = of_step(w.h),
             .qkv = of_step(w.qkv),
             .ctx = of_step(w.ctx),
             .gate_up = of_step(w.gate_up),
             .act = of_step(w.act),
             .last = of_logits(w.last),
             .logits = of_logits(w.logits)};
  const std::size_t bytes = scratch_bytes(config, limits);
  scratch = {.data = carver.take(bytes), .bytes = bytes};
  return carver.used();
}

std::size_t rotation_bytes(const CudaLimits& limits) {
  return static_cast<std::size_t>(limits.max_positions) * kHeadDim * sizeof(float);
}

// Sequences share blocks, so that the tables of a step may be longer than the pool.
std::size_t most_table_entries(const CudaLimits& limits) {
  return static_cast<std::size_t>(limits.max_step_tokens) *
         static_cast<std::size_t>(std::min(limits.kv_blocks, blocks_for(limits.max_positions)));
}

std::size_t table_bytes(const CudaLimits& limits) {
  const auto rows = static_cast<std::size_t>(limits.max_step_tokens);
  const auto tasks =
      static_cast<std::size_t>(max_attend_tasks(limits.max_step_tokens, kMaxStateSlots));
  const auto merges = static_cast<std::size_t>(max_merge_tasks(limits.max_step_tokens));
  Carver carver(nullptr);
  carver.take(rows * sizeof(Token));
  for (int i = 0; i < 2; ++i) carver.take(rows * sizeof(int));
  carver.take(static_cast<std::size_t>(limits.max_logit_rows) * sizeof(int));
  carver.take(most_table_entries(limits) * sizeof(BlockId));
  carver.take((rows + 1) * sizeof(int));
  carver.take(tasks * sizeof(AttendTask));
  carver.take(merges * sizeof(MergeTask));
  return carver.used();
}

}  // namespace

std::size_t CudaOps::bytes_needed(const ModelConfig& config, const CudaLimits& limits) {
  Buffers buffers;
  Scratch scratch;
  return lay_out(config, limits, nullptr, buffers, scratch) + rotation_bytes(limits) +
         table_bytes(limits);
}

Result<std::unique_ptr<CudaOps>> CudaOps::create(Device& device, const ModelConfig& config,
                                                 const CudaLimits& limits, const DeviceKv& kv,
                                                 bool deterministic, ThreadPool& pool) {
  std::unique_ptr<CudaOps> ops(new CudaOps(device, config, limits, kv, deterministic));
  Buffers& buffers = ops->buffers_;
  const std::size_t bytes = lay_out(config, limits, nullptr, buffers, ops->scratch_);
  KIPP_TRY_ASSIGN(memory, device.allocate(bytes, "activations"));
  ops->memory_ = std::move(memory);
  lay_out(config, limits, ops->memory_.data(), buffers, ops->scratch_);
  KIPP_TRY_ASSIGN(tables, device.allocate(table_bytes(limits), "a step's tables"));
  ops->tables_ = std::move(tables);
  KIPP_TRY_ASSIGN(host_tables, device.allocate_pinned(table_bytes(limits), "a step's tables"));
  ops->host_tables_ = std::move(host_tables);
  KIPP_TRY(ops->make_rotations(pool));
  return ops;
}

// Once for all positions, because a sine in double costs a GPU more than to read it.
Result<void> CudaOps::make_rotations(ThreadPool& pool) {
  constexpr std::size_t kHalf = kHeadDim / 2;
  std::vector<double> inverse_frequency(kHalf);
  rope_inverse_frequency(config_.rope_theta, inverse_frequency);
  const auto positions = static_cast<std::size_t>(limits_.max_positions);
  std::vector<float> table(positions * kHeadDim);
  pool.parallel_for(limits_.max_positions, [&](int begin, int end, int) {
    for (int pos = begin; pos < end; ++pos) {
      const auto row = std::span(table).subspan(static_cast<std::size_t>(pos) * kHeadDim, kHeadDim);
      rope_angles(pos, inverse_frequency, row.first(kHalf), row.last(kHalf));
    }
  });
  KIPP_TRY_ASSIGN(memory, device_.allocate(rotation_bytes(limits_), "rotations"));
  rotations_ = std::move(memory);
  KIPP_TRY(device_.copy_to_device(rotations_.data(), std::as_bytes(std::span(table)),
                                  "uploading rotations"));
  return device_.wait("uploading rotations");
}

Result<void> CudaOps::error() const {
  if (error_) return tl::unexpected(*error_);
  return {};
}

template <class Launch>
void CudaOps::enqueue(std::string_view what, const Launch& launch) {
  if (error_) return;
  if (auto done = device_.launched(launch(), what); !done) error_ = std::move(done).error();
}

Result<void> CudaOps::upload_tables(const StepPlan& step) {
  Carver carver(host_tables_.data());
  const auto put = [&](const auto& values) {
    using Value = typename std::remove_cvref_t<decltype(values)>::value_type;
    const std::size_t bytes = values.size() * sizeof(Value);
    std::byte* at = carver.take(bytes);
    if (bytes != 0) std::memcpy(at, values.data(), bytes);
    return reinterpret_cast<const Value*>(tables_.data() + (at - host_tables_.data()));
  };
  step_ = {.tokens = put(step.tokens),
           .positions = put(step.positions),
           .item_of_row = put(step.item_of_row),
           .logit_rows = put(step.logit_rows),
           .blocks = put(step.blocks),
           .block_begin = put(step.block_begin),
           .tasks = put(attention_.tasks),
           .merges = put(attention_.merges),
           .rows = step.rows(),
           .n_logit_rows = static_cast<int>(step.logit_rows.size()),
           .n_tasks = static_cast<int>(attention_.tasks.size()),
           .wide_tasks = attention_.wide_tasks,
           .n_merges = static_cast<int>(attention_.merges.size())};
  return device_.copy_to_device(tables_.data(), host_tables_.bytes().first(carver.used()),
                                "uploading a step's tables");
}

CudaOps::Buffers& CudaOps::begin_step(const StepPlan& step) {
  error_.reset();
  Buffers& b = buffers_;
  for (Rows* rows : {&b.x, &b.h, &b.qkv, &b.ctx, &b.gate_up, &b.act}) rows->rows = step.rows();
  for (Rows* rows : {&b.last, &b.logits}) rows->rows = static_cast<int>(step.logit_rows.size());
  terms_ = deterministic_ || step.rows() <= kExactRows ? 2 : 1;
  plan_attention(step, config_.queries_per_kv_head(), device_.properties().processors,
                 kMaxStateSlots, attention_);
  if (auto sent = upload_tables(step); !sent) error_ = std::move(sent).error();
  return buffers_;
}

void CudaOps::embed(Rows& out, const MatrixView& table, std::span<const Token>) {
  const DeviceMatrix packed = {
      .weights = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(table.data)),
      .scheme = table.scheme,
      .rows = table.rows,
      .cols = table.cols};
  enqueue("embedding tokens",
          [&] { return cuda::embed(device_.stream(), out.f32(), packed, step_.tokens); });
}

void CudaOps::rms_norm(Rows& out, const Rows& in, std::span<const float> weight) {
  if (in.rows == 0) return;
  enqueue("normalizing",
          [&] { return cuda::rms_norm(device_.stream(), out.split(), in.f32(), weight.data()); });
}

void CudaOps::multiply(Rows& out, const Rows& in, const DeviceMatrix& w, Write write) {
  if (in.rows == 0) return;
  enqueue("multiplying", [&] {
    return cuda::matmul(device_.stream(), out.f32(), in.split(), w, write, terms_, scratch_);
  });
}

void CudaOps::matmul(Rows& out, const Rows& in, const DeviceMatrix& w) {
  multiply(out, in, w, Write::set);
}

void CudaOps::matmul_add(Rows& out, const Rows& in, const DeviceMatrix& w) {
  multiply(out, in, w, Write::add);
}

void CudaOps::qk_norm_rope(Rows&, std::span<const float> q_norm, std::span<const float> k_norm) {
  q_norm_ = q_norm;
  k_norm_ = k_norm;
}

void CudaOps::kv_append(int layer, const Rows& qkv) {
  enqueue("writing keys and values", [&] {
    return qk_norm_rope_append(device_.stream(), qkv.f32(), kv_, layer, q_norm_.data(),
                               k_norm_.data(), reinterpret_cast<const float*>(rotations_.data()),
                               step_);
  });
}

void CudaOps::attend(int layer, Rows& ctx, const Rows& qkv) {
  enqueue("attending", [&] {
    return cuda::attend(device_.stream(), ctx.split(), qkv.f32(), kv_, layer, step_, terms_,
                        scratch_);
  });
}

void CudaOps::silu_mul(Rows& out, const Rows& gate_up) {
  enqueue("gating", [&] { return cuda::silu_mul(device_.stream(), out.split(), gate_up.f32()); });
}

void CudaOps::take_rows(Rows& out, const Rows& in, std::span<const int>) {
  if (out.rows == 0) return;
  enqueue("taking rows",
          [&] { return cuda::take_rows(device_.stream(), out.f32(), in.f32(), step_.logit_rows); });
}

}  // namespace kipp::cuda
