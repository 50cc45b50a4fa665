// SHA-256 of what streams by, over OpenSSL. Pinned files are compared by it, so it is never
// optional.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/types.h"

struct evp_md_ctx_st;

namespace kipp {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  // 64 lower-case hex digits of everything since the start; begins anew afterwards.
  Result<std::string> finish();
  // Forgets what was added.
  void restart();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
  bool ok_ = false;
};

// Called with the number of bytes hashed since the last call.
using HashProgress = std::function<void(std::uint64_t bytes)>;

// The whole file. `cancel` set to true stops with ErrorCode::interrupted.
Result<std::string> sha256_of_file(const std::filesystem::path& path, const HashProgress& progress,
                                   const std::atomic<bool>* cancel);

}  // namespace kipp
