// A whole file mapped read-only. Pages are read when touched; nothing is copied.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/types.h"

namespace kipp {

class MmapFile {
 public:
  // Refuses directories and empty files. The mapping stays valid when the file is renamed or
  // unlinked.
  static Result<std::shared_ptr<const MmapFile>> open(const std::string& path);

  MmapFile(const MmapFile&) = delete;
  MmapFile& operator=(const MmapFile&) = delete;
  ~MmapFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MmapFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

}  // namespace kipp
