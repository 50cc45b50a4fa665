// A BF16 artifact again in another scheme. Identity and source files stay: quantizing changes how
// weights are stored, not which checkpoint they are.
#pragma once

#include <atomic>
#include <string>

#include "base/types.h"
#include "convert/artifact_writer.h"
#include "model/artifact.h"

namespace kipp {

// Refuses an input that is quantized already: its codes would be rounded twice.
Result<void> quantize_artifact(const Artifact& from, const std::string& path, Scheme scheme,
                               const WriteProgress& progress,
                               const std::atomic<bool>* cancel = nullptr);

}  // namespace kipp
