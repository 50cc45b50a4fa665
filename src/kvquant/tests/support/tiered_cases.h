// Generated caches and rows for the properties of the tiered cache: small shapes, every kind of
// scheme and policy. Rows are functions of a seed and a position, so that a failure shrinks to a
// few numbers that say everything.
#pragma once

#include <rapidcheck.h>

#include <cmath>
#include <ostream>
#include <span>
#include <vector>

#include "kvquant/tiered_cache.h"

namespace kvquant {

// How RapidCheck prints what it found.
inline std::ostream& operator<<(std::ostream& out, const QuantScheme& scheme) {
  out << name_of(scheme.bits);
  if (scheme.bits == BitWidth::bf16) return out;
  return out << (scheme.grouping == Grouping::per_token ? " per token " : " per channel ")
             << scheme.group_size << (scheme.symmetric ? " symmetric" : "")
             << (scheme.hadamard ? " hadamard" : "") << " narrowest " << name_of(scheme.narrowest)
             << " clip " << scheme.clip_percent;
}

inline std::ostream& operator<<(std::ostream& out, const Tier& tier) {
  return out << name_of(tier.key) << '/' << name_of(tier.value);
}

inline std::ostream& operator<<(std::ostream& out, const CacheConfig& config) {
  const TieredKvPolicy& policy = config.policy;
  return out << config.shape.kv_heads << " heads of " << config.shape.head_width << "; key "
             << config.scheme.key << "; value " << config.scheme.value << "; sink "
             << policy.sink_blocks << " at " << policy.sink << ", recent " << policy.recent_blocks
             << " at " << policy.recent << ", mid " << policy.mid_blocks << " at " << policy.mid
             << ", far at " << policy.far << "; max_positions " << config.max_positions
             << ", undemoted_positions " << config.undemoted_positions;
}

namespace test {

// --- rows

struct Rows {
  std::vector<float> k, v;
};

inline std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// One element of the sequence that `seed` stands for. The seed also picks what rows look like.
inline float element(std::uint64_t seed, Side side, int position, int channel) {
  const std::uint64_t at = static_cast<std::uint64_t>(position) << 16 |
                           static_cast<std::uint64_t>(channel) << 1 |
                           static_cast<std::uint64_t>(side);
  const std::uint64_t bits = mixed(at + seed * 0x2545f4914f6cdd1du);
  const float uniform = static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f;
  switch (seed % 6) {
    case 0:
    case 1:
      return 4.0f * uniform;
    case 2:
      return channel == 3 ? 500.0f * uniform : uniform;
    case 3:  // constant rows
      return static_cast<float>(position % 7) - 3.0f;
    case 4:  // each row of another size, down to denormals
      return std::ldexp(uniform, -5 * (position % 29));
    default:  // a small spread around a large mean
      return 1000.0f + uniform;
  }
}

// Rows of positions [first, first + count).
inline Rows rows_of(const KvShape& shape, std::uint64_t seed, int first, int count) {
  Rows rows;
  rows.k.reserve(static_cast<std::size_t>(count * shape.row()));
  rows.v.reserve(static_cast<std::size_t>(count * shape.row()));
  for (int position = first; position < first + count; ++position) {
    for (int channel = 0; channel < shape.row(); ++channel) {
      rows.k.push_back(element(seed, Side::key, position, channel));
      rows.v.push_back(element(seed, Side::value, position, channel));
    }
  }
  return rows;
}

// --- generators; earlier alternatives are simpler, since values shrink toward them

inline KvShape any_shape() {
  return {*rc::gen::element(1, 1, 1, 1, 1, 1, 2, 3),
          *rc::gen::element(16, 16, 16, 16, 16, 16, 32, 48, 64)};
}

inline QuantScheme any_scheme(const KvShape& shape) {
  QuantScheme scheme;
  scheme.bits = *rc::gen::element(BitWidth::int8, BitWidth::int4, BitWidth::int8, BitWidth::int2,
                                  BitWidth::bf16);
  if (scheme.bits == BitWidth::bf16) return scheme;
  const bool per_channel = *rc::gen::element(false, false, true);
  std::vector<int> sizes;
  if (per_channel) {
    scheme.grouping = Grouping::per_channel;
    sizes = {32, 16, 8, 4, 2, 1};
  } else {
    for (int size = shape.row(); size >= 1; --size) {
      if (shape.row() % size == 0) sizes.push_back(size);
    }
  }
  scheme.group_size = *rc::gen::elementOf(sizes);
  scheme.symmetric = *rc::gen::element(false, true);
  const bool power_of_two = (shape.head_width & (shape.head_width - 1)) == 0;
  scheme.hadamard = power_of_two && *rc::gen::element(false, true);
  std::vector<BitWidth> narrowest{BitWidth::int2};
  for (const BitWidth width : {BitWidth::int4, BitWidth::int8}) {
    if (width <= scheme.bits) narrowest.push_back(width);
  }
  scheme.narrowest = *rc::gen::elementOf(narrowest);
  if (scheme.bits != BitWidth::int8) scheme.clip_percent = *rc::gen::element(100, 90, 75);
  return scheme;
}

// Widths of one side that `scheme` can be read at, the widest first.
inline std::vector<BitWidth> readable_widths(const QuantScheme& scheme) {
  std::vector<BitWidth> widths{BitWidth::bf16};
  for (const BitWidth width : {BitWidth::int8, BitWidth::int4, BitWidth::int2}) {
    const bool coded = scheme.bits != BitWidth::bf16;
    if (coded && width <= scheme.bits && width >= scheme.narrowest) widths.push_back(width);
  }
  return widths;
}

inline TieredKvPolicy any_policy(const KvScheme& scheme) {
  TieredKvPolicy policy;
  policy.sink_blocks = *rc::gen::element(0, 1, 2);
  policy.recent_blocks = *rc::gen::element(1, 0, 2, 3);
  policy.mid_blocks = *rc::gen::element(1, 0, TieredKvPolicy::kAsRecent, 2, 3);
  const auto choose = [](std::span<const BitWidth> widths, int from) {
    return from + *rc::gen::inRange(0, static_cast<int>(widths.size()) - from);
  };
  for (const Side side : {Side::key, Side::value}) {
    const std::vector<BitWidth> widths = readable_widths(scheme.side(side));
    const auto width = [&](int index) { return widths[static_cast<std::size_t>(index)]; };
    const auto set = [&](Tier& tier, int index) {
      (side == Side::key ? tier.key : tier.value) = width(index);
    };
    const int recent = choose(widths, 0);
    const int mid = choose(widths, recent);
    set(policy.sink, choose(widths, 0));
    set(policy.recent, recent);
    set(policy.mid, mid);
    set(policy.far, choose(widths, mid));
  }
  return policy;
}

constexpr int kMostPositions = 8 * kBlockPositions;

inline rc::Gen<CacheConfig> any_config() {
  return rc::gen::exec([] {
    CacheConfig config;
    config.shape = any_shape();
    config.scheme.key = any_scheme(config.shape);
    config.scheme.value = any_scheme(config.shape);
    config.policy = any_policy(config.scheme);
    config.max_positions = kMostPositions;
    return config;
  });
}

}  // namespace test
}  // namespace kvquant
