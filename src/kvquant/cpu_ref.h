// The scalar oracle: short enough to be checked by reading, and what every other backend is
// compared with.
#pragma once

#include "kvquant/kv_backend.h"

namespace kvquant {

class CpuRefBackend final : public KvBackend {
 public:
  const char* name() const override { return "cpu_ref"; }
  Status quantize_append(const BlockLayout& layout, std::span<const float> k,
                         std::span<const float> v, KvBlock& block) override;
  Status dequantize_for_attention(const BlockLayout& layout, const KvBlock& block, Tier tier,
                                  int first, int count, std::span<float> k,
                                  std::span<float> v) override;
};

}  // namespace kvquant
