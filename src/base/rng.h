// A counter-based generator: the value depends on (seed, counter) alone, so draw i of a request is
// the same whatever else ran before it, on which thread, or after a restart.
#pragma once

#include <cstdint>

namespace kipp {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits that passes
// BigCrush.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// 64 random bits for draw `counter` of the stream `seed`.
constexpr std::uint64_t draw_bits(std::uint64_t seed, std::uint64_t counter) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ull;
  return mix64(mix64(seed + kGolden) + (counter + 1) * kGolden);
}

// A uniform double in [0, 1) with 53 random bits.
constexpr double draw_uniform(std::uint64_t seed, std::uint64_t counter) {
  return static_cast<double>(draw_bits(seed, counter) >> 11) * 0x1p-53;
}

}  // namespace kipp
