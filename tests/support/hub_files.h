// The hub's files that the repository holds, for tests that need the real thing.
#pragma once

#include <zstd.h>

#include <fstream>
#include <iterator>
#include <string>

namespace kipp {

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// "config.0.6B.json" and its like
inline std::string hub_file(const std::string& name) {
  return read_bytes(std::string(KIPP_TEST_DATA) + "/hub/" + name);
}

// "base" or "instruct"
inline std::string tokenizer_json(const std::string& kind) {
  const std::string packed =
      read_bytes(std::string(KIPP_TEST_DATA) + "/tokenizer." + kind + ".json.zst");
  std::string text(ZSTD_getFrameContentSize(packed.data(), packed.size()), '\0');
  text.resize(ZSTD_decompress(text.data(), text.size(), packed.data(), packed.size()));
  return text;
}

}  // namespace kipp
