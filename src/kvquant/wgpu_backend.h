// KvBackend on a GPU through WebGPU. Blocks stay in the caller's memory: rows and planes go up,
// what was made of them comes back, and a call returns when it has. So it is no faster than a CPU
// at the work of one block; it is the proof, by differential.h, that wgsl/codec.wgsl makes the
// oracle's codes on an adapter, and the way to reach codes where blocks are at home on the host.
//
// Takes every shape and scheme of kvquant. One call at a time: it shares its device's rule. Buffers
// are kept between calls and grow to the largest layout seen.
#pragma once

#include <memory>
#include <string_view>

#include "gpu/device.h"
#include "kvquant/kv_backend.h"

namespace kvquant {

class WgpuBackend final : public KvBackend {
 public:
  // On an adapter of its own; see gpu::choose_adapter() for the words.
  static Expected<WgpuBackend> open(std::string_view adapter = {});
  // On a device that outlives it.
  static Expected<WgpuBackend> make(gpu::Device& device);
  WgpuBackend(
      WgpuBackend&&) noexcept;  // into a TieredKvCache; what was moved from is not to be used
  WgpuBackend& operator=(WgpuBackend&&) noexcept;
  ~WgpuBackend() override;

  const char* name() const override { return "wgpu"; }
  // Both: an error of the GPU is `out_of_memory` or `unavailable`, names the adapter, and leaves
  // block and spans as they were.
  Status quantize_append(const BlockLayout& layout, std::span<const float> k,
                         std::span<const float> v, KvBlock& block) override;
  Status dequantize_for_attention(const BlockLayout& layout, const KvBlock& block, Tier tier,
                                  int first, int count, std::span<float> k,
                                  std::span<float> v) override;

 private:
  struct State;
  explicit WgpuBackend(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kvquant
