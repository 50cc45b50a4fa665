// The oracle's arithmetic on vectors, for whatever the CPU at hand offers: stored bytes and
// dequantized values are bit for bit those of CpuRefBackend. One object may be used by any number
// of threads.
#pragma once

#include <cstdint>
#include <span>

#include "kvquant/kv_backend.h"

namespace kvquant {

class CpuSimdBackend final : public KvBackend {
 public:
  // How dequantized rows are written. What is written is the same.
  enum class Stores : std::uint8_t {
    cached,     // for a reader that comes while they are still in the cache
    streaming,  // past the cache: for more rows than it holds, read later or elsewhere
  };

  CpuSimdBackend() = default;
  explicit CpuSimdBackend(Stores stores) : stores_(stores) {}

  const char* name() const override { return "cpu_simd"; }
  Status quantize_append(const BlockLayout& layout, std::span<const float> k,
                         std::span<const float> v, KvBlock& block) override;
  Status dequantize_for_attention(const BlockLayout& layout, const KvBlock& block, Tier tier,
                                  int first, int count, std::span<float> k,
                                  std::span<float> v) override;

  // Instruction sets that this CPU has and this library was built for, best first. The best is
  // used unless another is forced.
  static std::span<const char* const> targets();
  static const char* target();  // the one in use

  // For tests and benchmarks: everything in this process that uses Highway changes over, so no call
  // may be running. An error names the targets there are.
  static Status force_target(const char* name);
  static void use_best_target();

 private:
  Stores stores_ = Stores::cached;
};

}  // namespace kvquant
