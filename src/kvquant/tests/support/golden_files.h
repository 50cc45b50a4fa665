// The golden files of data/, which a second implementation wrote from FORMAT.md, and what a backend
// owes them: it reads exactly the values that implementation reads, and makes the same bytes of the
// same rows. data/README.md describes the files; they are frozen.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "kvquant/codec.h"
#include "kvquant/kv_backend.h"
#include "support/owned_block.h"
#include "support/sha256.h"

namespace kvquant::test {

struct Golden {
  std::string name;
  KvShape shape;
  int positions = 0;
  QuantScheme schemes[kSides];
  PlaneSet planes[kSides];
  std::string input;
  std::uint64_t seed = 0;
  std::string sha256;
  std::map<BitWidth, std::string> values[kSides];  // SHA-256 of the values read at a width
};

inline std::vector<std::uint8_t> file_bytes(const std::string& name) {
  std::ifstream file(std::string(KVQUANT_TEST_DATA) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void read_side(std::istream& line, QuantScheme& scheme, PlaneSet& planes) {
  int bits, grouping, narrowest, set;
  line >> bits >> grouping >> scheme.group_size >> scheme.symmetric >> scheme.hadamard >>
      narrowest >> scheme.clip_percent >> set;
  scheme.bits = static_cast<BitWidth>(bits);
  scheme.grouping = static_cast<Grouping>(grouping);
  scheme.narrowest = static_cast<BitWidth>(narrowest);
  planes = PlaneSet(static_cast<std::uint8_t>(set));
}

inline const std::vector<Golden>& goldens() {
  static const std::vector<Golden> all = [] {
    std::vector<Golden> read;
    std::ifstream file(std::string(KVQUANT_TEST_DATA) + "/golden.txt");
    for (std::string text; std::getline(file, text);) {
      std::istringstream line(text);
      std::string kind;
      line >> kind;
      if (kind == "block") {
        Golden& golden = read.emplace_back();
        line >> golden.name >> golden.shape.kv_heads >> golden.shape.head_width >> golden.positions;
        for (int side = 0; side < kSides; ++side) {
          read_side(line, golden.schemes[side], golden.planes[side]);
        }
        line >> golden.input >> golden.seed >> golden.sha256;
      } else if (kind == "values") {
        std::string side, hash;
        int width;
        line >> side >> width >> hash;
        read.back().values[side == "key" ? 0 : 1][static_cast<BitWidth>(width)] = hash;
      }
    }
    return read;
  }();
  return all;
}

inline BlockLayout layout_of(const Golden& golden) {
  return BlockLayout::make(golden.shape, {golden.schemes[0], golden.schemes[1]}).value();
}

// 64 bits of seed, side and element.
inline std::uint64_t mixed_bits(std::uint64_t seed, std::uint64_t side, std::uint64_t element) {
  std::uint64_t z = ((seed << 40) + (side << 32) + element + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

inline float gaussian(std::uint64_t bits) {
  int sum = -131070;
  for (int part = 0; part < 4; ++part) sum += static_cast<int>(bits >> (16 * part) & 0xffffu);
  return static_cast<float>(sum) * 0x1p-15f;
}

// An element of the input "edges"; `first` is the Gaussian of its position's first element.
inline float edge(const Golden& golden, const QuantScheme& scheme, int position, int channel,
                  std::uint64_t bits, float first) {
  const float sign = bits >> 63 != 0 ? -1.0f : 1.0f;
  const float largest =
      scheme.hadamard ? 65280.0f / static_cast<float>(golden.shape.head_width) : 65280.0f;
  switch (position % 8) {
    case 1:
      return first;
    case 2:
      return sign * largest;
    case 3:
      return sign * float_of(static_cast<std::uint32_t>(bits & 0x7fffffu));
    case 4:
      return gaussian(bits) * 0x1p-40f;
    case 5:
      return gaussian(bits) * 0x1p-20f;
    case 6:
      return gaussian(bits) + 1000.0f;
    case 7:
      return channel == 0 ? 1.0f : -0.0f;
    default:
      return 0.0f;
  }
}

inline std::vector<float> rows_of(const Golden& golden, Side side) {
  const int row = golden.shape.row();
  const auto salt = static_cast<std::uint64_t>(side);
  std::vector<float> rows;
  for (int i = 0; i < golden.positions * row; ++i) {
    const std::uint64_t bits = mixed_bits(golden.seed, salt, static_cast<std::uint64_t>(i));
    const int position = i / row;
    const int channel = i % golden.shape.head_width;
    float x = gaussian(bits);
    if (golden.input == "outlier" && channel % 16 == 5) x *= 32;
    if (golden.input == "scaled") x = std::ldexp(x, position % 25 - 12);
    if (golden.input == "edges") {
      const auto start = static_cast<std::uint64_t>(position * row);
      const float first = gaussian(mixed_bits(golden.seed, salt, start));
      x = edge(golden, golden.schemes[static_cast<int>(side)], position, channel, bits, first);
    }
    rows.push_back(x);
  }
  return rows;
}

inline std::string sha256_of(const std::vector<float>& values) {
  return sha256({reinterpret_cast<const std::uint8_t*>(values.data()), 4 * values.size()});
}

// At every width there is; what the second implementation cannot read is refused here too.
inline void expect_golden_values(KvBackend& backend) {
  int compared = 0;
  for (const Golden& golden : goldens()) {
    const BlockLayout layout = layout_of(golden);
    OwnedBlock owned(layout, golden.planes[0], golden.planes[1]);
    const Status loaded = load_block(layout, file_bytes(golden.name + ".kvb"), owned.block());
    ASSERT_TRUE(loaded.ok()) << golden.name << ": " << loaded.message();
    const auto elements = static_cast<std::size_t>(golden.positions * golden.shape.row());
    std::vector<float> values[kSides] = {std::vector<float>(elements),
                                         std::vector<float>(elements)};
    for (const BitWidth key : {BitWidth::bf16, BitWidth::int8, BitWidth::int4, BitWidth::int2}) {
      for (const BitWidth value :
           {BitWidth::bf16, BitWidth::int8, BitWidth::int4, BitWidth::int2}) {
        const auto& keys = golden.values[0];
        const auto& others = golden.values[1];
        const bool readable = keys.contains(key) && others.contains(value);
        const Status status = backend.dequantize_for_attention(
            layout, owned.block(), {key, value}, 0, golden.positions, values[0], values[1]);
        ASSERT_EQ(status.ok(), readable) << golden.name << ": " << status.message();
        if (!readable) continue;
        EXPECT_EQ(sha256_of(values[0]), keys.at(key)) << golden.name << " key " << name_of(key);
        EXPECT_EQ(sha256_of(values[1]), others.at(value))
            << golden.name << " value " << name_of(value);
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 60);
}

// Appends the golden's rows, some at a time, and stores the planes it has.
inline std::vector<std::uint8_t> made_again(KvBackend& backend, const Golden& golden,
                                            int rows_at_once, PlaneSet extra) {
  const BlockLayout layout = layout_of(golden);
  const PlaneSet bf16 = planes_for(BitWidth::bf16);
  PlaneSet sets[kSides];
  for (const Side side : kBothSides) {
    const PlaneSet kept = golden.planes[static_cast<int>(side)];
    const std::uint8_t there = static_cast<std::uint8_t>(extra.bits() & layout.planes(side).bits());
    sets[static_cast<int>(side)] = kept | bf16 | PlaneSet(there);
  }
  OwnedBlock owned(layout, sets[0], sets[1]);
  KvBlock& block = owned.block();
  const std::vector<float> rows[kSides] = {rows_of(golden, Side::key),
                                           rows_of(golden, Side::value)};
  for (int at = 0; at < golden.positions; at += rows_at_once) {
    const auto row = static_cast<std::size_t>(golden.shape.row());
    const std::size_t from = static_cast<std::size_t>(at) * row;
    const std::size_t count =
        static_cast<std::size_t>(std::min(rows_at_once, golden.positions - at)) * row;
    const Status status = backend.quantize_append(layout, std::span(rows[0]).subspan(from, count),
                                                  std::span(rows[1]).subspan(from, count), block);
    EXPECT_TRUE(status.ok()) << golden.name << ": " << status.message();
  }
  for (const Side side : kBothSides) {
    for (const Plane plane : kEveryPlane) {
      if (!golden.planes[static_cast<int>(side)].has(plane)) block.plane(side, plane) = nullptr;
    }
  }
  std::vector<std::uint8_t> bytes(stored_bytes(layout, golden.planes[0], golden.planes[1]));
  const Status status = store_block(layout, block, bytes);
  EXPECT_TRUE(status.ok()) << golden.name << ": " << status.message();
  return bytes;
}

// Empty where they are equal.
inline std::string first_difference(const std::vector<std::uint8_t>& found,
                                    const std::vector<std::uint8_t>& expected) {
  if (found.size() != expected.size()) return "sizes";
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;
    return "byte " + std::to_string(i) + ": expected " + std::to_string(expected[i]) + ", found " +
           std::to_string(found[i]);
  }
  return "";
}

// The same rows make the same bytes.
inline void expect_golden_bytes(KvBackend& backend) {
  const PlaneSet every(0x0f);
  for (const Golden& golden : goldens()) {
    const std::vector<std::uint8_t> expected = file_bytes(golden.name + ".kvb");
    EXPECT_EQ(first_difference(made_again(backend, golden, 32, PlaneSet()), expected), "")
        << golden.name;
    EXPECT_EQ(first_difference(made_again(backend, golden, 5, every), expected), "")
        << golden.name << ", in pieces, and with planes that are freed afterwards";
  }
}

}  // namespace kvquant::test
