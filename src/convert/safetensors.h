// Safetensors files as Hugging Face and the demo checkpoint ship them: 8 bytes of header length, a
// JSON header, then the tensors' bytes. Reads the header only; a tensor is a view into the caller's
// bytes. Refuses whatever it can not account for: other dtypes, keys or types, a name twice, a size
// that does not follow from the shape, overlaps, gaps, bytes missing or left over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace kipp {

enum class DType : std::uint8_t { bf16, f32, i8, i32 };

std::string_view to_string(DType dtype);  // "BF16", as the header spells it
std::size_t dtype_bytes(DType dtype);

struct SafetensorsView {
  DType dtype = DType::bf16;
  std::vector<std::int64_t> shape;  // every dimension at least 1; empty: a scalar
  // elements * dtype_bytes(dtype) bytes, little-endian. The format does not align them: copy, do
  // not cast.
  std::span<const std::byte> bytes;
};

// "[1024, 3072]"
std::string shape_text(std::span<const std::int64_t> shape);

// The header of a few hundred tensors takes some 50 kB; more than this is not ours.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 16u << 20;

class Safetensors {
 public:
  using Tensors = std::map<std::string, SafetensorsView, std::less<>>;
  using Metadata = std::map<std::string, std::string, std::less<>>;

  // Maps the file; the views live as long as this object or a copy of it.
  static Result<Safetensors> open(const std::string& path);
  // Over bytes the caller keeps alive. `label` is what refusals call the file.
  static Result<Safetensors> from_bytes(std::span<const std::byte> file, std::string_view label);

  const Tensors& tensors() const { return tensors_; }        // by name
  const SafetensorsView* find(std::string_view name) const;  // nullptr: no such tensor
  const Metadata& metadata() const { return metadata_; }     // the header's "__metadata__"
  std::uint64_t header_bytes() const { return header_bytes_; }

 private:
  Tensors tensors_;
  Metadata metadata_;
  std::uint64_t header_bytes_ = 0;
  std::shared_ptr<const void> mapping_;
};

}  // namespace kipp
