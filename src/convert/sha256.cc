#include "convert/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace kipp {

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) { restart(); }
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::restart() {
  ok_ = context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1;
}

void Sha256::update(std::span<const std::byte> bytes) {
  ok_ = ok_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1;
}

Result<std::string> Sha256::finish() {
  std::array<unsigned char, 32> digest{};
  if (!ok_ || EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) != 1) {
    return fail(ErrorCode::io, "SHA-256: expected OpenSSL to provide it, found that it does not");
  }
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  restart();
  return hex;
}

Result<std::string> sha256_of_file(const std::filesystem::path& path, const HashProgress& progress,
                                   const std::atomic<bool>* cancel) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return fail(ErrorCode::io, "{}: cannot open: {}", path.string(), std::strerror(errno));
  }
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  Sha256 hash;
  std::vector<std::byte> buffer(1u << 20);
  while (true) {
    if (cancel != nullptr && cancel->load()) {
      ::close(fd);
      return fail(ErrorCode::interrupted, "interrupted while verifying {}", path.string());
    }
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      ::close(fd);
      return fail(ErrorCode::io, "{}: cannot read: {}", path.string(), std::strerror(error));
    }
    if (n == 0) break;
    hash.update({buffer.data(), static_cast<std::size_t>(n)});
    if (progress) progress(static_cast<std::uint64_t>(n));
  }
  ::close(fd);
  return hash.finish();
}

}  // namespace kipp
