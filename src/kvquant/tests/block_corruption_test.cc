// Bytes that are no block: each is refused with a sentence, and leaves the block that should have
// held it alone. First what the checksum sees, then what is wrong under a right one.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "support/block_bytes.h"

namespace kvquant {
namespace {

using namespace test;
using testing::HasSubstr;

TEST(CorruptBlock, EveryLengthButItsOwnIsRefused) {
  const BlockLayout layout = small_layout();
  Bytes bytes = made(layout, 32, kInt8, kInt4);
  Loader loader(layout, kInt8, kInt4);
  const std::size_t size = bytes.size();
  bytes.resize(size + 130);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    if (length == size) continue;
    const Status status = loader.load(std::span(bytes).first(length));
    ASSERT_EQ(status.code(), Code::corrupt) << length;
    const std::string expected = length < 64
                                     ? "block: expected a header of 64 bytes, found " +
                                           std::to_string(length) + " bytes in all"
                                     : "block size: the header says " + std::to_string(size) +
                                           " bytes, found " + std::to_string(length);
    ASSERT_EQ(status.message(), expected);
  }
}

TEST(CorruptBlock, EveryFlippedBitIsSeen) {
  const BlockLayout layout = small_layout();
  Bytes bytes = made(layout, 32, kInt8, kInt4);
  Loader loader(layout, kInt8, kInt4);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      const auto flip = static_cast<std::uint8_t>(1 << bit);
      bytes[at] ^= flip;
      const Status status = loader.load(bytes);
      bytes[at] ^= flip;
      ASSERT_EQ(status.code(), Code::corrupt) << "byte " << at << ", bit " << bit;
      if (at >= 12) {
        ASSERT_THAT(status.message(), HasSubstr("block checksum: the header says "));
      }
    }
  }
  EXPECT_TRUE(loader.load(bytes).ok());
}

// One field changed, and the checksum made right again.
TEST(CorruptBlock, EveryFieldHasItsSentence) {
  struct Case {
    std::size_t at;
    std::uint8_t value;
    const char* sentence;
  };
  const Case cases[] = {
      {0, 'k', "block magic: expected 4b 56 51 42, found 6b 56 51 42"},
      {4, 2, "block version: expected 1, found 2"},
      {5, 1, "block version: expected 1, found 257"},
      {6, 65, "block header size: expected 64, found 65"},
      {8, 0x41, "block size: the header says 2625 bytes, found 2624"},
      {16, 0, "block header: kv_heads: expected at least 1, found 0"},
      {17, 2,
       "block header: kv_heads: expected at most 512 heads of width 16 (8192 elements a "
       "row), found 514"},
      {18, 24, "block header: head_width: expected a multiple of 16 from 16 to 512, found 24"},
      {19, 4, "block header: head_width: expected a multiple of 16 from 16 to 512, found 1040"},
      {20, 0, "block positions: expected 1 to 32, found 0"},
      {20, 33, "block positions: expected 1 to 32, found 33"},
      {20, 31, "key planes: a block of 31 positions cannot be made of plane set 0x07"},
      {21, 1, "block header: reserved bytes are not zero"},
      {23, 1, "block header: reserved bytes are not zero"},
      {24, 3, "block header: key bits: expected 16, 8, 4 or 2, found 3"},
      {24, 16, "block header: the key scheme sets bits that mean nothing"},
      {25, 2, "block header: key grouping: expected 0 (per token) or 1 (per channel), found 2"},
      {26, 4, "block header: the key scheme sets bits that mean nothing"},
      {27, 16, "block header: key narrowest: expected a code width of at most 8 bits, found 16"},
      {27, 0, "block header: key narrowest: expected a code width of at most 8 bits, found 0"},
      {35, 8, "block header: value narrowest: expected a code width of at most 4 bits, found 8"},
      {28, 0,
       "block header: key group_size: expected a divisor of the 32 elements of a row, "
       "found 0"},
      {36, 64,
       "block header: value group_size: expected a divisor of the 32 positions of a "
       "block, found 64"},
      {30, 99,
       "block header: key clip_percent: expected 100 for int8 codes, found 99; clipping "
       "costs int8 thirty times its error"},
      {38, 101, "block header: value clip_percent: expected 50 to 100, found 101"},
      {31, 0, "key planes: a block of 32 positions cannot be made of plane set 0x00"},
      {31, 2, "key planes: a block of 32 positions cannot be made of plane set 0x02"},
      {31, 5, "key planes: a block of 32 positions cannot be made of plane set 0x05"},
      {31, 6, "key planes: a block of 32 positions cannot be made of plane set 0x06"},
      {31, 0x17, "key planes: a block of 32 positions cannot be made of plane set 0x17"},
      {39, 7, "value planes: a block of 32 positions cannot be made of plane set 0x07"},
      {31, 3, "block size: its planes take 2112 bytes, found 2624"},
      {40, 1, "block header: reserved bytes are not zero"},
      {63, 1, "block header: reserved bytes are not zero"},
  };
  const BlockLayout layout = small_layout();
  const Bytes bytes = made(layout, 32, kInt8, kInt4);
  ASSERT_EQ(bytes.size(), 2624u);
  Loader loader(layout, kInt8, kInt4);
  for (const Case& c : cases) {
    Bytes changed = bytes;
    changed[c.at] = c.value;
    const Status status = loader.load(sealed(changed));
    EXPECT_EQ(status.code(), Code::corrupt) << c.sentence;
    EXPECT_STREQ(status.message(), c.sentence);
  }
  Bytes odd = made(layout_of({1, 48}, small_layout().scheme().key, small_layout().scheme().value),
                   32, kInt8, kInt4);
  odd[26] = 2;
  EXPECT_STREQ(inspect_block(sealed(odd)).status().message(),
               "block header: key hadamard: expected a head width that is a power of two, found "
               "48");
}

// Whatever a header says under a right checksum is refused, or is a block that stores to the same
// bytes.
TEST(CorruptBlock, EveryHeaderByteAtEveryValue) {
  const BlockLayout layout = small_layout();
  const Bytes bytes = made(layout, 32, kInt8, kInt4);
  Loader loader(layout, kInt8, kInt4);
  for (std::size_t at = 0; at < kBlockHeaderBytes; ++at) {
    if (at >= 12 && at < 16) continue;
    for (int value = 0; value < 256; ++value) {
      Bytes changed = bytes;
      changed[at] = static_cast<std::uint8_t>(value);
      changed = sealed(changed);
      const auto header = inspect_block(changed);
      if (header.ok()) {
        const auto other = BlockLayout::make(header.value().shape, header.value().scheme);
        ASSERT_TRUE(other.ok());
        Loader twin(other.value(), header.value().planes[0], header.value().planes[1]);
        const Status status = twin.load(changed);
        ASSERT_TRUE(status.ok() || status.code() == Code::corrupt) << status.message();
        if (status.ok()) {
          ASSERT_EQ(store(other.value(), twin.block()), changed);
        }
      }
      ASSERT_EQ(loader.load(changed).ok(), changed == bytes) << "byte " << at << " is " << value;
    }
  }
}

// Where parts of a plane begin in the stored bytes.
std::size_t plane_at(const BlockLayout& layout, PlaneSet key, PlaneSet value, Side side,
                     Plane plane) {
  std::size_t at = kBlockHeaderBytes;
  for (const Side s : kBothSides) {
    for (const Plane p : kEveryPlane) {
      if (s == side && p == plane) return at;
      if ((s == Side::key ? key : value).has(p)) at += layout.plane(s, p).bytes;
    }
  }
  return at;
}

TEST(CorruptBlock, EveryParameterIsAFiniteNumber) {
  const BlockLayout layout = small_layout();
  const Bytes bytes = made(layout, 32, kInt8, kInt4);
  Loader loader(layout, kInt8, kInt4);
  for (const Side side : kBothSides) {
    for (const Plane plane : {Plane::hi2, Plane::mid2}) {
      const PlaneLayout& parts = layout.plane(side, plane);
      const std::size_t start = plane_at(layout, kInt8, kInt4, side, plane);
      const std::string name = std::string(name_of(side)) + " plane " + name_of(plane);
      const auto sentence = [&](std::size_t part, std::size_t group, int pattern) {
        Bytes changed = bytes;
        put16(changed, start + part + 2 * group, static_cast<std::uint16_t>(pattern));
        const Status status = loader.load(sealed(changed));
        EXPECT_TRUE(status.ok() || status.code() == Code::corrupt);
        return std::string(status.message());
      };
      for (std::size_t group = 0; group < layout.groups(side); ++group) {
        for (const int pattern : {0x7c00, 0x7c01, 0x7fff, 0x8000, 0x8001, 0xbc00, 0xffff}) {
          EXPECT_EQ(sentence(parts.scales, group, pattern),
                    name + ": a scale is negative or not a finite number");
        }
        for (const int pattern : {0x7c00, 0x7e00, 0xfc00, 0xffff}) {
          EXPECT_EQ(sentence(parts.offsets, group, pattern),
                    name + ": an offset is not a finite number");
        }
        EXPECT_EQ(sentence(parts.scales, group, 0x7bff), "");
        EXPECT_EQ(sentence(parts.offsets, group, 0xfbff), "");
      }
    }
  }
}

TEST(CorruptBlock, EveryRowElementIsAFiniteNumber) {
  const BlockLayout layout = padded_layout();
  const Bytes bytes = made(layout, 9, kBf16, kBf16);
  Loader loader(layout, kBf16, kBf16);
  const std::size_t row_bytes = layout.plane(Side::key, Plane::bf16).row_bytes;
  for (std::size_t at = kBlockHeaderBytes; at < bytes.size(); at += 2) {
    const bool key = at < plane_at(layout, kBf16, kBf16, Side::value, Plane::bf16);
    const std::size_t position = (at - kBlockHeaderBytes) / row_bytes % kBlockPositions;
    const std::string plane = key ? "key plane bf16: " : "value plane bf16: ";
    for (const int pattern : {0x7f80, 0xff80, 0x7fc0, 0x0001}) {
      Bytes changed = bytes;
      put16(changed, at, static_cast<std::uint16_t>(pattern));
      const Status status = loader.load(sealed(changed));
      const std::string expected =
          position >= 9       ? plane + "rows past the last position are not zero"
          : pattern == 0x0001 ? ""
                              : plane + "an element is not a finite number";
      ASSERT_EQ(status.message(), expected) << "byte " << at;
    }
  }
}

TEST(CorruptBlock, EveryByteOfPaddingIsZero) {
  const BlockLayout layout = padded_layout();
  const Bytes bytes = made(layout, 32, kInt4, kInt4);
  Loader loader(layout, kInt4, kInt4);
  int checked = 0;
  for (const Side side : kBothSides) {
    for (const Plane plane : {Plane::hi2, Plane::mid2}) {
      const PlaneLayout& parts = layout.plane(side, plane);
      const std::size_t start = plane_at(layout, kInt4, kInt4, side, plane);
      const std::size_t used = 2 * layout.groups(side);
      for (const bool scales : {true, false}) {
        const std::size_t part = scales ? parts.scales : parts.offsets;
        const std::size_t end = scales ? parts.offsets : parts.bytes;
        for (std::size_t at = part + used; at < end; ++at) {
          Bytes changed = bytes;
          changed[start + at] = 1;
          const Status status = loader.load(sealed(changed));
          ASSERT_EQ(status.code(), Code::corrupt);
          ASSERT_EQ(status.message(), std::string(name_of(side)) + " plane " + name_of(plane) +
                                          (scales ? ": padding after the scales is not zero"
                                                  : ": padding after the offsets is not zero"));
          ++checked;
        }
      }
    }
  }
  EXPECT_EQ(checked, 8 * 32);
}

}  // namespace
}  // namespace kvquant
