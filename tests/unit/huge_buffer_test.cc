#include "base/huge_buffer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace kipp {
namespace {

TEST(HugeBuffer, IsAlignedZeroAndWritable) {
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{4096}, kHugePage, kHugePage + 1, 3 * kHugePage}) {
    const HugeBuffer buffer = HugeBuffer::create(bytes).value();
    ASSERT_EQ(buffer.bytes().size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.bytes().data()) % kHugePage, 0u);
    EXPECT_TRUE(std::all_of(buffer.bytes().begin(), buffer.bytes().end(),
                            [](std::byte b) { return b == std::byte{0}; }));
    std::fill(buffer.bytes().begin(), buffer.bytes().end(), std::byte{7});
    EXPECT_EQ(buffer.bytes().back(), std::byte{7});
  }
}

TEST(HugeBuffer, MayBeEmpty) {
  EXPECT_TRUE(HugeBuffer().bytes().empty());
  EXPECT_TRUE(HugeBuffer::create(0).value().bytes().empty());
}

TEST(HugeBuffer, Moves) {
  HugeBuffer a = HugeBuffer::create(100).value();
  std::byte* data = a.bytes().data();
  HugeBuffer b = std::move(a);
  EXPECT_EQ(b.bytes().data(), data);
  EXPECT_TRUE(a.bytes().empty());  // NOLINT(bugprone-use-after-move): what a move leaves is stated
  b = HugeBuffer::create(5).value();
  EXPECT_EQ(b.bytes().size(), 5u);
}

TEST(HugeBuffer, SaysWhenThereIsNoMemory) {
  for (const std::size_t bytes :
       {std::size_t{1} << 60, std::numeric_limits<std::size_t>::max() - 1}) {
    const auto buffer = HugeBuffer::create(bytes);
    ASSERT_FALSE(buffer.has_value());
    EXPECT_EQ(buffer.error().code, ErrorCode::exhausted);
    EXPECT_EQ(
        buffer.error().message,
        fmt::format("memory: {} bytes asked for, the system says: Cannot allocate memory", bytes));
  }
}

}  // namespace
}  // namespace kipp
