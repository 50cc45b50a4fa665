// Memory for weights and the KV cache, which every step streams from end to end: anonymous, zero,
// aligned to the 2 MiB of a huge page and advised so, because on 4 KiB pages a third of the read
// bandwidth goes to translation. Where the system gives no huge pages the memory is ordinary. Pages
// are taken when first touched, so threads that fill it fault it in side by side.
#pragma once

#include <cstddef>
#include <span>

#include "base/types.h"

namespace kipp {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

class HugeBuffer {
 public:
  HugeBuffer() = default;
  // Zero bytes make an empty buffer.
  static Result<HugeBuffer> create(std::size_t bytes);

  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&& other) noexcept;
  ~HugeBuffer();

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit HugeBuffer(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

}  // namespace kipp
