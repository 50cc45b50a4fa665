// Every shader of the folder is in the program, as it is written.
#include "backend/webgpu/shaders.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace kipp::webgpu {
namespace {

TEST(Shaders, AreTheFilesOfTheFolder) {
  const std::filesystem::path folder =
      std::filesystem::path(KIPP_TEST_DATA) / "../../src/backend/webgpu/wgsl";
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    ASSERT_FALSE(text.empty()) << entry.path();
    EXPECT_EQ(entry.path().extension(), ".wgsl");
    EXPECT_EQ(shader(entry.path().stem().string()), text) << entry.path();
    ++found;
  }
  EXPECT_GT(found, 0);
}

TEST(Shaders, OfAnUnknownNameAreEmpty) {
  EXPECT_EQ(shader("none"), "");
  EXPECT_EQ(shader(""), "");
}

}  // namespace
}  // namespace kipp::webgpu
