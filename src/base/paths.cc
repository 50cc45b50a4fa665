#include "base/paths.h"

#include <cstdlib>

namespace kipp {

Result<std::filesystem::path> kipp_home() {
  if (const char* home = std::getenv("KIPP_HOME"); home != nullptr && *home != '\0') {
    return std::filesystem::path(home);
  }
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return std::filesystem::path(cache) / "kipp";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return std::filesystem::path(home) / ".cache" / "kipp";
  }
  return fail(ErrorCode::io, "KIPP_HOME: expected a directory, found neither it nor HOME set");
}

Result<std::filesystem::path> hub_dir(std::string_view repository, std::string_view revision) {
  KIPP_TRY_ASSIGN(home, kipp_home());
  std::string folder(repository);
  if (const auto slash = folder.find('/'); slash != std::string::npos) {
    folder.replace(slash, 1, "--");
  }
  return home / "hub" / folder / std::string(revision);
}

Result<std::filesystem::path> model_path(std::string_view id, std::string_view scheme) {
  KIPP_TRY_ASSIGN(home, kipp_home());
  return home / "models" / fmt::format("{}-{}.gguf", id, scheme);
}

}  // namespace kipp
