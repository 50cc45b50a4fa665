// Arbitrary bytes as a safetensors file: refused, or every tensor lies inside and none overlaps
// another.
#include <cstdint>
#include <cstdlib>

#include "convert/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto parsed = kipp::Safetensors::from_bytes(file, "x");
  if (!parsed) {
    if (parsed.error().message.empty()) std::abort();
    return 0;
  }
  std::uint64_t covered = parsed->header_bytes();
  for (const auto& [name, view] : parsed->tensors()) {
    const auto at = static_cast<std::size_t>(view.bytes.data() - file.data());
    if (at < parsed->header_bytes() || at + view.bytes.size() > size) std::abort();
    std::uint64_t elements = 1;
    for (const std::int64_t dimension : view.shape)
      elements *= static_cast<std::uint64_t>(dimension);
    if (elements * kipp::dtype_bytes(view.dtype) != view.bytes.size()) std::abort();
    covered += view.bytes.size();
  }
  if (covered != size) std::abort();
  return 0;
}
