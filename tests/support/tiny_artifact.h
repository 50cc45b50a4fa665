// Valid artifacts of the tiny synthetic shapes, written once per test process.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "convert/synthesize.h"

namespace kipp::test {

// A directory of this process, removed when it ends.
inline const std::filesystem::path& scratch_dir() {
  struct Scratch {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("kipp-test-" + std::to_string(::getpid()));
    Scratch() { std::filesystem::create_directories(path); }
    ~Scratch() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Scratch scratch;
  return scratch.path;
}

inline std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::vector<std::byte> bytes(std::filesystem::file_size(path));
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return bytes;
}

inline void write_file(const std::filesystem::path& path, const std::vector<std::byte>& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
}

// The path of SHAPE (tiny-tied, tiny-untied) in SCHEME with seed 7.
inline std::string tiny_artifact_path(std::string_view shape, Scheme scheme) {
  const auto path = scratch_dir() / fmt::format("{}-{}.gguf", shape, to_string(scheme));
  if (!std::filesystem::exists(path)) {
    const auto done = synthesize(path.string(), **find_synthetic(shape), 7, scheme, {});
    if (!done) throw std::runtime_error(done.error().message);
  }
  return path.string();
}

inline const std::vector<std::byte>& tiny_artifact(std::string_view shape, Scheme scheme) {
  static std::map<std::string, std::vector<std::byte>> cache;
  const std::string path = tiny_artifact_path(shape, scheme);
  auto& bytes = cache[path];
  if (bytes.empty()) bytes = read_file(path);
  return bytes;
}

}  // namespace kipp::test
