// Remembers which files of a directory were hashed, so that a second `kipp pull` of 65 GB takes no
// minute. A stamp counts only while the file's size, inode and times are what they were; a writer
// can not keep the change time. Anything doubtful is forgotten and the file is hashed again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace kipp {

class VerifiedStamps {
 public:
  // Of ".verified" in the directory; a missing or malformed one is empty.
  static VerifiedStamps read(const std::filesystem::path& directory);

  // The SHA-256 the file had, if it can not have changed since.
  std::optional<std::string> find(const std::filesystem::path& file) const;
  // Notes the file's hash and rewrites ".verified". Failing to is harmless and not reported.
  void add(const std::filesystem::path& file, const std::string& sha256);

 private:
  struct Stamp {
    std::string sha256;
    std::uint64_t bytes = 0;
    std::uint64_t inode = 0;
    std::int64_t modified_ns = 0;
    std::int64_t changed_ns = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  static std::optional<Stamp> stamp_of(const std::filesystem::path& file,
                                       const std::string& sha256);

  std::filesystem::path path_;
  std::map<std::string, Stamp> stamps_;
};

}  // namespace kipp
