// A backend that counts rows and keeps none: which planes a cache holds does not depend on values.
#pragma once

#include "kvquant/kv_backend.h"

namespace kvquant::test {

class NoBackend final : public KvBackend {
 public:
  const char* name() const override { return "none"; }

  Status quantize_append(const BlockLayout& layout, std::span<const float> k,
                         std::span<const float> v, KvBlock& block) override {
    int rows = 0;
    Status status = check_append(layout, k, v, block, &rows);
    if (status.ok()) block.positions += rows;
    return status;
  }

  Status dequantize_for_attention(const BlockLayout& layout, const KvBlock& block, Tier tier,
                                  int first, int count, std::span<float> k,
                                  std::span<float> v) override {
    return check_read(layout, block, tier, first, count, k, v);
  }
};

}  // namespace kvquant::test
