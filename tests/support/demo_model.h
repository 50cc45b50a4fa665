// The demo checkpoint that ships in the repository, unpacked once per process.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "convert/demo_pack.h"
#include "engine/session.h"
#include "support/tiny_artifact.h"

namespace kipp::test {

inline std::shared_ptr<Model> open_demo(std::string_view backend, int kv_blocks) {
  static const std::string path = [] {
    const auto packed = read_file(std::filesystem::path(KIPP_TEST_DATA) / ".." / ".." / "assets" /
                                  "kipp-demo.safetensors.zst");
    const std::string out = (scratch_dir() / "kipp-demo.gguf").string();
    const auto done = unpack_demo(packed, out, {});
    EXPECT_TRUE(done) << done.error().message;
    return out;
  }();
  auto model = Model::open(path, {.backend = std::string(backend), .kv_blocks = kv_blocks});
  EXPECT_TRUE(model) << model.error().message;
  return *std::move(model);
}

}  // namespace kipp::test
