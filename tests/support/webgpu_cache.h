// A device cache of keys and values with the activations around it, and steps over it.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "backend/webgpu/device_kv.h"
#include "model/memory.h"
#include "support/logit_rows.h"
#include "support/random_floats.h"

namespace kipp::test {

inline constexpr int kLayers = 2;
inline constexpr int kMaxRows = 72;
inline constexpr std::size_t kBlockHead = std::size_t{kBlockPositions} * kHeadDim;

template <class T, class E>
T value(tl::expected<T, E> result) {
  if (!result) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

inline gpu::Device& device() {
  static const std::unique_ptr<gpu::Device> opened = value(gpu::Device::open({}));
  return *opened;
}

// One sequence's share of a step: `tokens` rows that follow `cached` positions.
struct Item {
  int cached;
  int tokens;
};

// Blocks are dealt out from the last, or from the first.
enum class Deal : bool { backwards, forwards };

inline StepPlan step_of(const std::vector<Item>& items, Deal deal = Deal::backwards) {
  StepPlan plan;
  plan.block_begin.push_back(0);
  int blocks = 0;
  for (const Item& item : items) blocks += blocks_for(item.cached + item.tokens);
  int next = deal == Deal::backwards ? blocks - 1 : 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const int held = blocks_for(items[i].cached + items[i].tokens);
    for (int b = 0; b < held; ++b) plan.blocks.push_back(deal == Deal::backwards ? next-- : next++);
    plan.block_begin.push_back(static_cast<int>(plan.blocks.size()));
    for (int t = 0; t < items[i].tokens; ++t) {
      plan.tokens.push_back(0);
      plan.positions.push_back(items[i].cached + t);
      plan.item_of_row.push_back(static_cast<int>(i));
    }
  }
  return plan;
}

inline ModelConfig config_of(int group) {
  return {.hidden = 64,
          .layers = kLayers,
          .query_heads = group * kKvHeads,
          .intermediate = 96,
          .context_length = 4096,
          .rope_theta = 1000000,
          .tied = true};
}

// A cache of its own device memory and the activations around it.
class WebgpuCache {
 public:
  WebgpuCache(int group, const KvConfig& kv,
              webgpu::DeviceKv::Limits limits = {.max_step_tokens = kMaxRows})
      : group_(group),
        norms_(normal_floats(1, 4 * kHeadDim)),
        qkv_(value(device().create_buffer(bytes(kMaxRows, qkv_cols()), "qkv"))),
        ctx_(value(device().create_buffer(bytes(kMaxRows, ctx_cols()), "ctx"))),
        norm_(value(device().create_buffer(kLayers * kStride, "norms"))) {
    std::vector<webgpu::DeviceKv::LayerNorms> norms;
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      const std::uint64_t at = layer * kStride;
      device().write(norm_, at, std::as_bytes(q_norm(layer)));
      device().write(norm_, at + kStride / 2, std::as_bytes(k_norm(layer)));
      norms.push_back(
          {.query = {&norm_, at, kHeadDim * 4}, .key = {&norm_, at + kStride / 2, kHeadDim * 4}});
    }
    kv_ = value(webgpu::DeviceKv::create(device(), config_of(group), kv, limits,
                                         {.qkv = qkv_, .ctx = ctx_}, norms));
  }

  webgpu::DeviceKv& kv() { return *kv_; }
  int qkv_cols() const { return (group_ + 2) * kKvWidth; }
  int ctx_cols() const { return group_ * kKvWidth; }
  std::span<const float> q_norm(std::size_t layer) const {
    return std::span(norms_).subspan(layer * 2 * kHeadDim, kHeadDim);
  }
  std::span<const float> k_norm(std::size_t layer) const {
    return std::span(norms_).subspan((layer * 2 + 1) * kHeadDim, kHeadDim);
  }

  // ctx of a step over what the cache holds.
  std::vector<float> attend(const StepPlan& step, std::span<const float> qkv, int layer) {
    device().write(qkv_, 0, std::as_bytes(qkv));
    value(kv_->begin_step(step));
    gpu::Recorder recorder = device().record();
    kv_->attend(recorder, layer);
    std::vector<float> ctx(static_cast<std::size_t>(step.rows() * ctx_cols()));
    value(device().submit_and_read(std::move(recorder), ctx_, 0,
                                   std::as_writable_bytes(std::span(ctx))));
    return ctx;
  }

  // The same with rows that are appended first; qkv as that leaves it.
  std::vector<float> append_and_attend(const StepPlan& step, std::span<float> qkv, int layer) {
    device().write(qkv_, 0, std::as_bytes(qkv));
    value(kv_->begin_step(step));
    gpu::Recorder recorder = device().record();
    kv_->append(recorder, layer);
    kv_->attend(recorder, layer);
    std::vector<float> ctx(static_cast<std::size_t>(step.rows() * ctx_cols()));
    value(device().submit_and_read(std::move(recorder), ctx_, 0,
                                   std::as_writable_bytes(std::span(ctx))));
    value(device().read(qkv_, 0, std::as_writable_bytes(qkv)));
    return ctx;
  }

 private:
  static constexpr std::uint64_t kStride = 1024;
  static std::uint64_t bytes(int rows, int cols) {
    return static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(cols) * sizeof(float);
  }

  int group_;
  std::vector<float> norms_;  // [layer][query, key][kHeadDim]
  gpu::Buffer qkv_, ctx_, norm_;
  std::unique_ptr<webgpu::DeviceKv> kv_;
};

// Rows first .. first + n as a step of their own.
inline StepPlan part_of(const StepPlan& plan, int first, int n) {
  StepPlan part = plan;
  const auto cut = [&](auto& of_rows) {
    of_rows = {of_rows.begin() + first, of_rows.begin() + first + n};
  };
  cut(part.tokens);
  cut(part.positions);
  cut(part.item_of_row);
  return part;
}

}  // namespace kipp::test
