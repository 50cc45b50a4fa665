// kvquant in a page: what to store and at which precision, append, read back. The README of kvquant
// shows the part between the two marks, and a test holds the two equal. What follows it prints
// figures that can be checked by hand.
#include <kvquant/kvquant.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <span>
#include <vector>

namespace {

// Stands in for the projections of a model: keys and values of a position, uniform in [-1, 1).
void project(int position, std::span<float> k, std::span<float> v) {
  std::mt19937 random(static_cast<unsigned>(position));
  for (float& x : k) x = static_cast<float>(random()) * 0x1p-31f - 1.0f;
  for (float& x : v) x = static_cast<float>(random()) * 0x1p-31f - 1.0f;
}

int fail(const kvquant::Status& status) {
  std::fprintf(stderr, "%s\n", status.message());
  return 1;
}

}  // namespace

int main() {
  // [quick start]
  using namespace kvquant;
  constexpr KvShape shape = {.kv_heads = 8, .head_width = 64};  // of the model's attention
  constexpr int row = shape.row();                              // elements of a token: 512

  // Keys have one group per channel (the 32 positions of a block), values one per token (the row).
  const KvScheme scheme = {
      .key = {.bits = BitWidth::int8,
              .grouping = Grouping::per_channel,
              .group_size = kBlockPositions},
      .value = {.bits = BitWidth::int8, .grouping = Grouping::per_token, .group_size = row}};

  // The last 256 positions stay as they are, and so do the first ones, which attention never lets
  // go of. The 256 before the last are read at int4, everything older at int2.
  const TieredKvPolicy policy = {.sink_blocks = 1,
                                 .recent_blocks = 256 / kBlockPositions,
                                 .mid = {.key = BitWidth::int4, .value = BitWidth::int4},
                                 .far = {.key = BitWidth::int2, .value = BitWidth::int2}};

  auto made = TieredKvCache<CpuRefBackend>::create(
      CpuRefBackend(), {.shape = shape, .scheme = scheme, .policy = policy, .max_positions = 1024});
  if (!made.ok()) return fail(made.status());
  TieredKvCache<CpuRefBackend>& cache = made.value();

  // As tokens are produced, append their rows: FP32, [position][head][channel], one or many.
  std::vector<float> k(row), v(row);
  for (int position = 0; position < 1000; ++position) {
    project(position, k, v);
    if (Status status = cache.append(k, v); !status.ok()) return fail(status);
  }

  // No earlier query will come again: free what later ones do not read.
  if (Status status = cache.demote(cache.length()); !status.ok()) return fail(status);

  // Feed attention: the whole sequence as FP32, each position at the precision it deserves.
  const auto elements = static_cast<std::size_t>(cache.length() * row);
  std::vector<float> keys(elements), values(elements);
  if (Status status = cache.dequantize({.k = keys, .v = values}); !status.ok()) return fail(status);
  // [/quick start]

  std::printf("%d positions of %d heads of %d\n", cache.length(), shape.kv_heads, shape.head_width);
  for (const int position : {0, 32, 479, 480, 735, 736, 991, 992}) {
    const Band band = policy.band(cache.length(), position);
    const Tier tier = policy.of(band);
    std::printf("position %3d: %-6s keys %s, values %s\n", position, name_of(band),
                name_of(tier.key), name_of(tier.value));
  }

  float worst[kBands][kSides] = {};
  for (int position = 0; position < cache.length(); ++position) {
    project(position, k, v);
    float* band = worst[static_cast<int>(policy.band(cache.length(), position))];
    const auto first = static_cast<std::size_t>(position * row);
    for (std::size_t i = 0; i < k.size(); ++i) {
      band[0] = std::max(band[0], std::fabs(keys[first + i] - k[i]));
      band[1] = std::max(band[1], std::fabs(values[first + i] - v[i]));
    }
  }
  const MemoryReport memory = cache.memory();
  for (const Band band : {Band::sink, Band::far, Band::mid, Band::recent, Band::open}) {
    const float* error = worst[static_cast<int>(band)];
    const MemoryReport::Part& part = memory.bands[static_cast<int>(band)];
    std::printf("%-6s %2d blocks, %6zu bytes, worst error of a key %.4f, of a value %.4f\n",
                name_of(band), part.blocks, part.bytes, static_cast<double>(error[0]),
                static_cast<double>(error[1]));
  }
  std::printf("%.2f bits per element, where BF16 takes 16\n", memory.bits_per_element);
  return 0;
}
