#include <kvquant/kvquant.h>

#include <cstdio>
#include <vector>

int main() {
  const kvquant::KvShape shape = {.kv_heads = 2, .head_width = 64};
  auto cache = kvquant::TieredKvCache<kvquant::CpuRefBackend>::create(
      {}, {.shape = shape, .scheme = {}, .policy = {}, .max_positions = 64});
  if (!cache.ok()) return std::puts(cache.status().message());
  const std::vector<float> in(40 * 128, 0.5f);
  std::vector<float> k(in.size()), v(in.size());
  if (!cache.value().append(in, in).ok()) return 1;
  if (!cache.value().dequantize({.k = k, .v = v}).ok()) return 1;
  std::printf("kvquant %s: %d positions, %g\n", KVQUANT_VERSION, cache.value().length(), k.back());
#if defined(KVQUANT_HIGHWAY)
  std::printf("vectors of %s\n", kvquant::CpuSimdBackend::target());
#endif
}
