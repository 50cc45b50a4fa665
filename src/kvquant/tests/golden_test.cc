// The golden files of data/ through the oracle; that they are the frozen ones, and what they say
// they hold.
#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

#include "kvquant/cpu_ref.h"
#include "support/golden_files.h"

namespace kvquant {
namespace {

using namespace test;

// Of golden.txt, which holds those of all other files. A change is a new version of the format.
constexpr char kGoldenSha256[] = "7dc8ec64b028c0eaed12baf575269f8516a264de1491ba8332d0ea09b84a9f2e";

TEST(Golden, HashIsSha256) {
  const std::string text = "abc";
  EXPECT_EQ(sha256({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Golden, FilesAreThoseOfVersion1) {
  ASSERT_EQ(sha256(file_bytes("golden.txt")), kGoldenSha256);
  std::vector<std::string> listed, found;
  for (const Golden& golden : goldens()) {
    listed.push_back(golden.name + ".kvb");
    EXPECT_EQ(sha256(file_bytes(listed.back())), golden.sha256) << golden.name;
  }
  for (const auto& entry : std::filesystem::directory_iterator(KVQUANT_TEST_DATA)) {
    if (entry.path().extension() == ".kvb") found.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(found, testing::UnorderedElementsAreArray(listed));
}

TEST(Golden, HeadersSayWhatTheBlocksWereMadeOf) {
  for (const Golden& golden : goldens()) {
    const auto header = inspect_block(file_bytes(golden.name + ".kvb"));
    ASSERT_TRUE(header.ok()) << golden.name << ": " << header.status().message();
    const BlockLayout layout = layout_of(golden);
    EXPECT_EQ(header.value().shape, layout.shape()) << golden.name;
    EXPECT_EQ(header.value().scheme, layout.scheme()) << golden.name;
    EXPECT_EQ(header.value().positions, golden.positions) << golden.name;
    for (int side = 0; side < kSides; ++side) {
      EXPECT_EQ(header.value().planes[side], golden.planes[side]) << golden.name;
    }
  }
}

TEST(Golden, ReadsTheSameValues) {
  CpuRefBackend backend;
  expect_golden_values(backend);
}

TEST(Golden, TheSameRowsMakeTheSameBytes) {
  CpuRefBackend backend;
  expect_golden_bytes(backend);
}

}  // namespace
}  // namespace kvquant
