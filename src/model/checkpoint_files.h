// The pinned files of each checkpoint, apart from the registry because the table is long.
#pragma once

#include <span>
#include <string_view>

#include "model/checkpoints.h"

namespace kipp {

// Empty for ids without files on the Hub.
std::span<const PinnedFile> pinned_files(std::string_view id);

}  // namespace kipp
