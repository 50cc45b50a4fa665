// Writes safetensors files for tests: tensors one after the other in the given order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kipp {

struct TestTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::uint16_t> values;  // BF16 patterns
  std::string dtype = "BF16";
};

inline void write_safetensors(const std::filesystem::path& path,
                              const std::vector<TestTensor>& tensors) {
  nlohmann::ordered_json header{{"__metadata__", {{"format", "pt"}}}};
  std::size_t at = 0;
  for (const TestTensor& tensor : tensors) {
    const std::size_t end = at + tensor.values.size() * 2;
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto length = static_cast<std::uint64_t>(text.size());
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << text;
  for (const TestTensor& tensor : tensors) {
    out.write(reinterpret_cast<const char*>(tensor.values.data()),
              static_cast<std::streamsize>(tensor.values.size() * 2));
  }
}

}  // namespace kipp
