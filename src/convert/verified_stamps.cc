#include "convert/verified_stamps.h"

#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

namespace kipp {
namespace {

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

std::optional<VerifiedStamps::Stamp> VerifiedStamps::stamp_of(const std::filesystem::path& file,
                                                              const std::string& sha256) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) return std::nullopt;
  return Stamp{sha256, static_cast<std::uint64_t>(info.st_size), info.st_ino,
               nanoseconds(info.st_mtim), nanoseconds(info.st_ctim)};
}

VerifiedStamps VerifiedStamps::read(const std::filesystem::path& directory) {
  VerifiedStamps out;
  out.path_ = directory / ".verified";
  std::ifstream in(out.path_);
  try {
    const auto all = nlohmann::json::parse(in);
    for (const auto& [name, entry] : all.items()) {
      out.stamps_[name] = {
          entry.at("sha256").get<std::string>(), entry.at("bytes").get<std::uint64_t>(),
          entry.at("inode").get<std::uint64_t>(), entry.at("modified_ns").get<std::int64_t>(),
          entry.at("changed_ns").get<std::int64_t>()};
    }
  } catch (const nlohmann::json::exception&) {
    out.stamps_.clear();
  }
  return out;
}

std::optional<std::string> VerifiedStamps::find(const std::filesystem::path& file) const {
  const auto place = stamps_.find(file.filename().string());
  if (place == stamps_.end()) return std::nullopt;
  const auto now = stamp_of(file, place->second.sha256);
  if (!now || *now != place->second) return std::nullopt;
  return place->second.sha256;
}

void VerifiedStamps::add(const std::filesystem::path& file, const std::string& sha256) {
  const auto stamp = stamp_of(file, sha256);
  if (!stamp) return;
  stamps_[file.filename().string()] = *stamp;
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [name, s] : stamps_) {
    all[name] = {{"sha256", s.sha256},
                 {"bytes", s.bytes},
                 {"inode", s.inode},
                 {"modified_ns", s.modified_ns},
                 {"changed_ns", s.changed_ns}};
  }
  const std::filesystem::path fresh = path_.string() + ".new";
  std::ofstream out(fresh, std::ios::trunc);
  out << all.dump(1) << '\n';
  out.close();
  std::error_code ignored;
  if (out) std::filesystem::rename(fresh, path_, ignored);
}

}  // namespace kipp
