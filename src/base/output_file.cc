#include "base/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace kipp {
namespace {

// `freed`: bytes an earlier attempt's partial file holds and this one will reuse.
Result<void> check_room(const std::string& path, int fd, std::uint64_t bytes, std::uint64_t freed) {
  struct statvfs disk {};
  if (::fstatvfs(fd, &disk) != 0) {
    return fail(ErrorCode::io, "{}: cannot read the free disk space: {}", path,
                std::strerror(errno));
  }
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize + freed;
  if (free < bytes) {
    return fail(ErrorCode::io, "{}: expected {} bytes of free disk space, found {}", path, bytes,
                free);
  }
  return {};
}

// Whether `path` still names what `fd` has open: another writer may have renamed it in between.
bool names(const std::string& path, int fd) {
  struct stat there {};
  struct stat here {};
  return ::stat(path.c_str(), &there) == 0 && ::fstat(fd, &here) == 0 &&
         there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

}  // namespace

Result<OutputFile> OutputFile::create(const std::string& path, std::uint64_t bytes) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return fail(ErrorCode::invalid, "{}: expected the name of a file to write, found a directory",
                path);
  }
  if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty()) {
    std::filesystem::create_directories(folder, error);
    if (error) {
      return fail(ErrorCode::io, "{}: cannot make the directory: {}", folder.string(),
                  error.message());
    }
  }
  OutputFile file(path, -1, bytes);
  const int fd = ::open(file.partial().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return fail(ErrorCode::io, "{}: cannot create: {}", file.partial(), std::strerror(errno));
  }
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    ::close(fd);
    if (reason == EWOULDBLOCK) {
      return fail(ErrorCode::io, "{}: expected to be its only writer, found another at work",
                  file.partial());
    }
    return fail(ErrorCode::io, "{}: cannot lock: {}", file.partial(), std::strerror(reason));
  }
  if (!names(file.partial(), fd)) {
    // Opened while that writer still had it, locked when its work was done: this is its finished
    // file.
    ::close(fd);
    return fail(ErrorCode::io, "{}: expected to be its only writer, found that another finished it",
                file.partial());
  }
  file.fd_ = fd;  // from here on the destructor removes the partial file
  struct stat info {};
  const bool sized = ::fstat(fd, &info) == 0;
  KIPP_TRY(check_room(path, fd, bytes, sized ? static_cast<std::uint64_t>(info.st_size) : 0));
  if (::ftruncate(fd, 0) != 0) {
    return fail(ErrorCode::io, "{}: cannot empty: {}", file.partial(), std::strerror(errno));
  }
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      bytes_(other.bytes_),
      written_(other.written_) {}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::unlink(partial().c_str());
  ::close(fd_);
}

Result<void> OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), std::min<std::size_t>(bytes.size(), 1u << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return fail(ErrorCode::io, "{}: cannot write after {} of {} bytes: {}", partial(), written_,
                  bytes_, std::strerror(errno));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    written_ += static_cast<std::uint64_t>(n);
  }
  return {};
}

Result<void> OutputFile::commit() {
  if (written_ != bytes_) {
    return fail(ErrorCode::io, "{}: expected to write {} bytes, found {} written", partial(),
                bytes_, written_);
  }
  // The name must never point at data that a power cut can still lose.
  if (::fsync(fd_) != 0) {
    return fail(ErrorCode::io, "{}: cannot sync: {}", partial(), std::strerror(errno));
  }
  if (std::rename(partial().c_str(), path_.c_str()) != 0) {
    return fail(ErrorCode::io, "{}: cannot rename to {}: {}", partial(), path_,
                std::strerror(errno));
  }
  ::close(std::exchange(fd_, -1));
  return {};
}

}  // namespace kipp
