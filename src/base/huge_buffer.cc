#include "base/huge_buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

namespace kipp {

Result<HugeBuffer> HugeBuffer::create(std::size_t bytes) {
  if (bytes == 0) return HugeBuffer();
  const auto refuse = [&](int error) {
    return fail(ErrorCode::exhausted, "memory: {} bytes asked for, the system says: {}", bytes,
                std::strerror(error));
  };
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) return refuse(ENOMEM);
  // One huge page more than needed, so that an aligned start lies inside; the rest goes back.
  const std::size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* mapped =
      mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return refuse(errno);
  auto* const raw = static_cast<std::byte*>(mapped);
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(raw) % kHugePage;
  if (head != 0) munmap(raw, head);
  if (head != kHugePage) munmap(raw + head + size, kHugePage - head);
#if defined(MADV_HUGEPAGE)
  madvise(raw + head, size, MADV_HUGEPAGE);  // a wish: small pages serve too
#endif
  return HugeBuffer({raw + head, bytes});
}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

HugeBuffer::~HugeBuffer() {
  if (bytes_.empty()) return;
  munmap(bytes_.data(), (bytes_.size() + kHugePage - 1) / kHugePage * kHugePage);
}

}  // namespace kipp
