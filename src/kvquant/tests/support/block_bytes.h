// Blocks as bytes for the tests: made of generated rows, spoiled, sealed with a right checksum, and
// loaded with an eye on what a refusal must leave alone.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "kvquant/cpu_ref.h"
#include "kvquant/kv_block.h"
#include "support/owned_block.h"

namespace kvquant::test {

using Bytes = std::vector<std::uint8_t>;

constexpr PlaneSet kHi2 = PlaneSet().with(Plane::hi2);
constexpr PlaneSet kInt4 = planes_for(BitWidth::int4);
constexpr PlaneSet kInt8 = planes_for(BitWidth::int8);
constexpr PlaneSet kBf16 = planes_for(BitWidth::bf16);

inline BlockLayout layout_of(const KvShape& shape, const QuantScheme& key,
                             const QuantScheme& value) {
  const auto layout = BlockLayout::make(shape, {key, value});
  EXPECT_TRUE(layout.ok()) << layout.status().message();
  return layout.value();
}

inline QuantScheme scheme_of(BitWidth bits, Grouping grouping, int group_size) {
  QuantScheme scheme;
  scheme.bits = bits;
  scheme.grouping = grouping;
  scheme.group_size = group_size;
  scheme.narrowest = BitWidth::int2;
  return scheme;
}

// 2 heads of 16: keys of 8 bits by token, values of 4 bits by channel.
inline BlockLayout small_layout() {
  return layout_of({2, 16}, scheme_of(BitWidth::int8, Grouping::per_token, 16),
                   scheme_of(BitWidth::int4, Grouping::per_channel, 16));
}

// A side of one head of 16 and 32 positions to a group: the one case whose parameters need padding.
inline BlockLayout padded_layout() {
  const QuantScheme scheme = scheme_of(BitWidth::int4, Grouping::per_channel, 32);
  return layout_of({1, 16}, scheme, scheme);
}

inline void append(const BlockLayout& layout, KvBlock& block, int rows, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const auto count = static_cast<std::size_t>(rows * layout.shape().row());
  std::vector<float> k(count), v(count);
  for (float& x : k) x = normal(random);
  for (float& x : v) x = normal(random);
  const Status status = CpuRefBackend().quantize_append(layout, k, v, block);
  EXPECT_TRUE(status.ok()) << status.message();
}

inline Bytes store(const BlockLayout& layout, const KvBlock& block) {
  Bytes bytes(stored_bytes(layout, block.present(Side::key), block.present(Side::value)), 0xee);
  const Status status = store_block(layout, block, bytes);
  EXPECT_TRUE(status.ok()) << status.message();
  return bytes;
}

inline void keep_planes(KvBlock& block, PlaneSet key, PlaneSet value) {
  for (const Plane plane : kEveryPlane) {
    if (!key.has(plane)) block.plane(Side::key, plane) = nullptr;
    if (!value.has(plane)) block.plane(Side::value, plane) = nullptr;
  }
}

// The stored bytes of `rows` generated rows in these planes.
inline Bytes made(const BlockLayout& layout, int rows, PlaneSet key, PlaneSet value) {
  OwnedBlock owned(layout);
  append(layout, owned.block(), rows, 1);
  keep_planes(owned.block(), key, value);
  return store(layout, owned.block());
}

// Everything a load could have written to.
inline Bytes content(const BlockLayout& layout, const KvBlock& block) {
  Bytes all = {static_cast<std::uint8_t>(block.positions)};
  for (const Side side : kBothSides) {
    for (const Plane plane : kEveryPlane) {
      const std::uint8_t* from = block.plane(side, plane);
      if (from != nullptr) all.insert(all.end(), from, from + layout.plane(side, plane).bytes);
    }
  }
  return all;
}

// CRC-32 by its definition, bit by bit.
inline std::uint32_t crc32(std::span<const std::uint8_t> bytes) {
  std::uint32_t crc = 0xffffffffu;
  for (const std::uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

inline void put32(Bytes& bytes, std::size_t at, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) {
    bytes.at(at + i) = static_cast<std::uint8_t>(value >> (8 * i));
  }
}

inline void put16(Bytes& bytes, std::size_t at, std::uint16_t value) {
  bytes.at(at) = static_cast<std::uint8_t>(value);
  bytes.at(at + 1) = static_cast<std::uint8_t>(value >> 8);
}

inline Bytes sealed(Bytes bytes) {
  put32(bytes, 12, 0);
  put32(bytes, 12, crc32(bytes));
  return bytes;
}

// Loads into a block of the layout that has room for these planes, and sees that a refusal changes
// nothing.
class Loader {
 public:
  Loader(const BlockLayout& layout, PlaneSet key, PlaneSet value)
      : layout_(layout), owned_(layout, key, value), before_(content(layout, owned_.block())) {}

  Status load(std::span<const std::uint8_t> bytes) {
    const Status status = load_block(layout_, bytes, owned_.block());
    const bool changed = content(layout_, owned_.block()) != before_;
    if (status.ok()) {
      before_ = content(layout_, owned_.block());
    } else {
      EXPECT_FALSE(changed) << status.message();
      EXPECT_STRNE(status.message(), "");
    }
    return status;
  }

  KvBlock& block() { return owned_.block(); }

 private:
  const BlockLayout layout_;
  OwnedBlock owned_;
  Bytes before_;
};

}  // namespace kvquant::test
