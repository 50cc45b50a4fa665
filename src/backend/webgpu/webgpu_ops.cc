#include "backend/webgpu/webgpu_ops.h"

#include <array>
#include <utility>
#include <vector>

#include "backend/ops_concept.h"
#include "backend/webgpu/gpu_error.h"
#include "model/memory.h"

namespace kipp::webgpu {

static_assert(Qwen3Ops<WebgpuOps>);

namespace {

// The device begins with a step while most of it is still being recorded: after the attention of
// the first layer, and then of every so many. Recording all of a step with one row first took 0.4
// of 2.5 ms on an H200.
constexpr int kLayersOfPart = 8;

// What an offset of a uniform is a multiple of on every device.
constexpr std::uint64_t kUniformAlignment = 256;

// The uniforms of shapes_, in their order; each is eight words, of which a shader reads its first.
enum ShapeSlot : std::uint64_t {
  kQkv,
  kAttnOut,
  kGateUp,
  kDown,
  kHead,
  kNorm,
  kLastNorm,
  kAct,
  kEmbed,
  kShapeSlots
};
constexpr std::uint64_t at(ShapeSlot slot) { return slot * kUniformAlignment; }
using Shape = std::array<std::uint32_t, 8>;

std::uint32_t word(int n) { return static_cast<std::uint32_t>(n); }

std::uint32_t groups(int n, int of) { return word((n + of - 1) / of); }

gpu::Binding shape_of(const gpu::Buffer& shapes, std::uint64_t offset) {
  return {&shapes, offset, sizeof(Shape)};
}

}  // namespace

Result<Activations> Activations::create(gpu::Device& device, const ModelConfig& config,
                                        int max_step_tokens, int max_logit_rows) {
  Activations made;
  const StepWidths w = step_widths(config);
  struct Wanted {
    gpu::Buffer& buffer;
    int cols;
    int rows;
    std::string_view what;
  };
  for (const Wanted& wanted : {Wanted{made.x, w.x, max_step_tokens, "activations"},
                               Wanted{made.h, w.h, max_step_tokens, "activations"},
                               Wanted{made.qkv, w.qkv, max_step_tokens, "activations"},
                               Wanted{made.ctx, w.ctx, max_step_tokens, "activations"},
                               Wanted{made.gate_up, w.gate_up, max_step_tokens, "activations"},
                               Wanted{made.act, w.act, max_step_tokens, "activations"},
                               Wanted{made.last, w.last, max_logit_rows, "activations"},
                               Wanted{made.logits, w.logits, max_logit_rows, "logits"}}) {
    const auto floats =
        static_cast<std::uint64_t>(wanted.cols) * static_cast<std::uint64_t>(wanted.rows);
    KIPP_TRY_ASSIGN(buffer,
                    engine_result(device.create_buffer(floats * sizeof(float), wanted.what)));
    wanted.buffer = std::move(buffer);
  }
  return made;
}

Result<std::unique_ptr<WebgpuOps>> WebgpuOps::create(gpu::Device& device, const ModelConfig& config,
                                                     const DeviceWeights& weights,
                                                     const Activations& activations, DeviceKv& kv,
                                                     int max_step_tokens, int max_logit_rows) {
  KIPP_TRY_ASSIGN(kernels, Kernels::create(device));
  std::unique_ptr<WebgpuOps> ops(
      new WebgpuOps(device, config, weights, activations, kv, std::move(kernels)));
  KIPP_TRY(ops->make_tables(max_step_tokens, max_logit_rows));
  KIPP_TRY(ops->make_arguments());
  const StepWidths w = step_widths(config);
  const Activations& a = activations;
  ops->buffers_ = {.x = {&a.x, 0, w.x},
                   .h = {&a.h, 0, w.h},
                   .qkv = {&a.qkv, 0, w.qkv},
                   .ctx = {&a.ctx, 0, w.ctx},
                   .gate_up = {&a.gate_up, 0, w.gate_up},
                   .act = {&a.act, 0, w.act},
                   .last = {&a.last, 0, w.last},
                   .logits = {&a.logits, 0, w.logits}};
  return ops;
}

Result<void> WebgpuOps::make_tables(int max_step_tokens, int max_logit_rows) {
  const auto words = [](int n) { return static_cast<std::uint64_t>(n) * sizeof(std::uint32_t); };
  KIPP_TRY_ASSIGN(tokens, engine_result(device_.create_buffer(words(max_step_tokens), "tokens")));
  tokens_ = std::move(tokens);
  KIPP_TRY_ASSIGN(rows, engine_result(device_.create_buffer(words(max_logit_rows), "tokens")));
  logit_rows_ = std::move(rows);
  KIPP_TRY_ASSIGN(inverse, engine_result(device_.create_buffer(words(max_step_tokens), "norms")));
  inverse_ = std::move(inverse);
  KIPP_TRY_ASSIGN(step, engine_result(device_.create_uniform(sizeof(Shape), "a step's sizes")));
  step_ = std::move(step);
  KIPP_TRY_ASSIGN(shapes, engine_result(device_.create_uniform(at(kShapeSlots), "sizes")));
  shapes_ = std::move(shapes);

  const StepWidths w = step_widths(config_);
  const auto set = [&](ShapeSlot slot, const Shape& shape) {
    device_.write(shapes_, at(slot), std::as_bytes(std::span(shape)));
  };
  // outputs, columns, added to what is there, rows of logits, normed
  set(kQkv, {word(w.qkv), word(w.h), 0, 0, 1});
  set(kAttnOut, {word(w.x), word(w.ctx), 1});
  set(kGateUp, {word(w.gate_up), word(w.h), 0, 0, 1});
  set(kDown, {word(w.x), word(w.act), 1});
  set(kHead, {word(w.logits), word(w.last), 0, 1, 1});
  // columns, gathered
  set(kNorm, {word(w.x)});
  set(kLastNorm, {word(w.x), 1});
  // columns
  set(kAct, {word(w.act)});
  set(kEmbed, {word(w.x)});
  return {};
}

Result<void> WebgpuOps::make_matmul(const DeviceMatrix& w, const Product& product) {
  // BF16 has no scales, and its shader reads none.
  const gpu::Buffer& scales = w.scales ? w.scales : w.codes;
  const gpu::Binding shape = shape_of(shapes_, product.shape);
  Multiply& made = matmul_[&w];
  made.input = product.input;
  KIPP_TRY_ASSIGN(row_kernel, kernels_.matmul_row(w.scheme, w.cols, product.input));
  const gpu::Binding norm =
      product.norm.empty() ? gpu::Binding{&weights_.norms(), 0, DeviceWeights::kNormAlignment}
                           : gpu::Binding{&weights_.norms(), weights_.norm_offset(product.norm),
                                          product.norm.size_bytes()};
  const gpu::Buffer& one_row = product.one_row != nullptr ? *product.one_row : product.in;
  const std::array<gpu::Binding, 7> row_bindings = {
      {{&step_}, shape, {&w.codes}, {&scales}, {&one_row}, {&product.out}, norm}};
  KIPP_TRY_ASSIGN(row_arguments, engine_result(device_.bind(*row_kernel, row_bindings)));
  made.one_row = std::move(row_arguments);
  KIPP_TRY_ASSIGN(cut, kernels_.matmul(w.scheme, w.rows, w.cols, 2));
  const std::array<gpu::Binding, 7> bindings = {
      {{&step_}, shape, {&w.codes}, {&scales}, {&product.in}, {&product.out}, {&inverse_}}};
  KIPP_TRY_ASSIGN(arguments, engine_result(device_.bind(*cut.kernel, bindings)));
  made.more_rows = std::move(arguments);
  return {};
}

Result<void> WebgpuOps::make_norm(std::span<const float> norm, const gpu::Buffer& in,
                                  const gpu::Buffer& out, std::uint64_t shape) {
  const std::array<gpu::Binding, 6> bindings = {
      {shape_of(shapes_, shape),
       {&logit_rows_},
       {&weights_.norms(), weights_.norm_offset(norm), norm.size_bytes()},
       {&in},
       {&out},
       {&inverse_}}};
  KIPP_TRY_ASSIGN(arguments, engine_result(device_.bind(kernels_.rms_norm(), bindings)));
  rms_norm_[norm.data()] = std::move(arguments);
  return {};
}

Result<void> WebgpuOps::make_arguments() {
  const Activations& a = activations_;
  const Qwen3Weights<const DeviceMatrix*>& w = weights_.get();
  for (const LayerWeights<const DeviceMatrix*>& layer : w.layers) {
    KIPP_TRY(make_norm(layer.attn_norm, a.x, a.h, at(kNorm)));
    KIPP_TRY(make_norm(layer.mlp_norm, a.x, a.h, at(kNorm)));
    KIPP_TRY(make_matmul(*layer.qkv, {.in = a.h,
                                      .out = a.qkv,
                                      .shape = at(kQkv),
                                      .input = RowInput::normed,
                                      .one_row = &a.x,
                                      .norm = layer.attn_norm}));
    KIPP_TRY(make_matmul(*layer.attn_out, {.in = a.ctx, .out = a.x, .shape = at(kAttnOut)}));
    KIPP_TRY(make_matmul(*layer.gate_up, {.in = a.h,
                                          .out = a.gate_up,
                                          .shape = at(kGateUp),
                                          .input = RowInput::normed,
                                          .one_row = &a.x,
                                          .norm = layer.mlp_norm}));
    KIPP_TRY(make_matmul(*layer.down, {.in = a.act,
                                       .out = a.x,
                                       .shape = at(kDown),
                                       .input = RowInput::gated,
                                       .one_row = &a.gate_up}));
  }
  KIPP_TRY(make_norm(w.final_norm, a.x, a.last, at(kLastNorm)));
  KIPP_TRY(make_matmul(*w.lm_head, {.in = a.last,
                                    .out = a.logits,
                                    .shape = at(kHead),
                                    .input = RowInput::normed,
                                    .one_row = &a.x,
                                    .norm = w.final_norm}));

  const std::array<gpu::Binding, 4> embed = {
      {shape_of(shapes_, at(kEmbed)), {&weights_.embedding().codes}, {&tokens_}, {&a.x}}};
  KIPP_TRY_ASSIGN(embed_arguments, engine_result(device_.bind(kernels_.embed(), embed)));
  embed_ = std::move(embed_arguments);
  const std::array<gpu::Binding, 3> silu = {{shape_of(shapes_, at(kAct)), {&a.gate_up}, {&a.act}}};
  KIPP_TRY_ASSIGN(silu_arguments, engine_result(device_.bind(kernels_.silu_mul(), silu)));
  silu_mul_ = std::move(silu_arguments);
  return {};
}

WebgpuOps::Buffers& WebgpuOps::begin_step(const StepPlan& step) {
  Buffers& b = buffers_;
  for (Rows* rows : {&b.x, &b.h, &b.qkv, &b.ctx, &b.gate_up, &b.act}) rows->rows = step.rows();
  for (Rows* rows : {&b.last, &b.logits}) rows->rows = static_cast<int>(step.logit_rows.size());
  const int first = step.logit_rows.empty() ? 0 : step.logit_rows.front();
  const Shape sizes = {word(b.x.rows), word(b.last.rows), word(first)};
  device_.write(step_, 0, std::as_bytes(std::span(sizes)));
  device_.write(tokens_, 0, std::as_bytes(std::span(step.tokens)));
  device_.write(logit_rows_, 0, std::as_bytes(std::span(step.logit_rows)));
  error_.reset();
  recorder_ = device_.record();
  return b;
}

void WebgpuOps::embed(Rows& out, const MatrixView&, std::span<const Token>) {
  recorder_->dispatch(kernels_.embed(), embed_, word(out.rows));
}

void WebgpuOps::rms_norm(Rows& out, const Rows&, std::span<const float> norm) {
  if (out.rows == 1) return;  // by the product that reads it
  recorder_->dispatch(kernels_.rms_norm(), rms_norm_.at(norm.data()), word(out.rows));
}

void WebgpuOps::matmul(Rows& out, const Rows& in, const Weight& w) {
  if (in.rows == 0 || error_) return;  // a step may ask for no logits
  const Multiply& arguments = matmul_.at(w);
  if (in.rows == 1) {
    const auto kernel = kernels_.matmul_row(w->scheme, w->cols, arguments.input);
    if (!kernel) {
      error_ = kernel.error();
      return;
    }
    recorder_->dispatch(**kernel, arguments.one_row, groups(w->rows, kRowOuts));
    return;
  }
  const auto cut = kernels_.matmul(w->scheme, w->rows, w->cols, in.rows);
  if (!cut) {
    error_ = cut.error();
    return;
  }
  recorder_->dispatch(*cut->kernel, arguments.more_rows, groups(w->rows, cut->outs),
                      groups(out.rows, cut->rows));
}

void WebgpuOps::kv_append(int layer, const Rows&) { kv_.append(*recorder_, layer); }

void WebgpuOps::attend(int layer, Rows&, const Rows&) {
  kv_.attend(*recorder_, layer);
  if (layer % kLayersOfPart != 0 || error_) return;
  if (auto submitted = engine_result(device_.submit(std::move(*recorder_))); !submitted) {
    error_ = std::move(submitted).error();
  }
  recorder_ = device_.record();
}

void WebgpuOps::silu_mul(Rows& out, const Rows&) {
  if (out.rows == 1) return;  // by the product that reads it
  constexpr int kValuesOfGroup = 4 * 256;
  recorder_->dispatch(kernels_.silu_mul(), silu_mul_, groups(out.cols, kValuesOfGroup),
                      word(out.rows));
}

Result<gpu::Recorder> WebgpuOps::take_recorded() {
  gpu::Recorder recorded = *std::exchange(recorder_, std::nullopt);
  if (error_) return tl::unexpected(*std::exchange(error_, std::nullopt));
  return recorded;
}

}  // namespace kipp::webgpu
