// A large file that either appears whole under its name or not at all: written as NAME.partial,
// synced and renamed. Two writers of one name exclude each other. Refuses to begin when the disk
// has no room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/types.h"

namespace kipp {

class OutputFile {
 public:
  // bytes: the size the file will have. Missing directories are made.
  static Result<OutputFile> create(const std::string& path, std::uint64_t bytes);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // removes what was not committed

  Result<void> write(std::span<const std::byte> bytes);
  std::uint64_t written() const { return written_; }

  // Fails unless exactly the promised bytes were written.
  Result<void> commit();

 private:
  OutputFile(std::string path, int fd, std::uint64_t bytes)
      : path_(std::move(path)), fd_(fd), bytes_(bytes) {}
  std::string partial() const { return path_ + ".partial"; }

  std::string path_;
  int fd_ = -1;  // -1: committed or moved from
  std::uint64_t bytes_ = 0;
  std::uint64_t written_ = 0;
};

}  // namespace kipp
