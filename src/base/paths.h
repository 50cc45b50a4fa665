// Where kipp keeps what it made or downloaded: $KIPP_HOME, else $XDG_CACHE_HOME/kipp, else
// ~/.cache/kipp.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/types.h"

namespace kipp {

Result<std::filesystem::path> kipp_home();
// <home>/hub/<repository with '/' as "--">/<revision>: a downloaded checkpoint's files.
Result<std::filesystem::path> hub_dir(std::string_view repository, std::string_view revision);
// <home>/models/<id>-<scheme>.gguf: a converted artifact.
Result<std::filesystem::path> model_path(std::string_view id, std::string_view scheme);

}  // namespace kipp
