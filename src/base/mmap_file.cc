#include "base/mmap_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace kipp {

Result<std::shared_ptr<const MmapFile>> MmapFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(ErrorCode::io, "{}: cannot open: {}", path, std::strerror(errno));
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return fail(ErrorCode::io, "{}: cannot read its size: {}", path, std::strerror(error));
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return fail(ErrorCode::io, "{}: expected a regular file, found something else", path);
  }
  if (info.st_size == 0) {
    ::close(fd);
    return fail(ErrorCode::refused, "{}: expected a file with contents, found an empty one", path);
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  ::close(fd);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::io, "{}: cannot map {} bytes: {}", path, size, std::strerror(error));
  }
  return std::shared_ptr<const MmapFile>(new MmapFile({static_cast<const std::byte*>(data), size}));
}

MmapFile::~MmapFile() {
  // munmap takes a mutable pointer though the pages were never writable.
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace kipp
