// The demo checkpoint that ships inside the executable, unpacked into kipp's home on first use.
#pragma once

#include <string>

#include "base/types.h"

namespace kipp {

// The path of the unpacked, verified artifact. The first call writes it (a few seconds) and checks
// its SHA-256.
Result<std::string> demo_model_path();

}  // namespace kipp
