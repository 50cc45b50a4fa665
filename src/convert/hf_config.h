// What a checkpoint's config.json and generation_config.json must say, field by field, if the
// registry is right about it. A field that the registry does not account for is refused: it may
// change the model.
#pragma once

#include <nlohmann/json.hpp>

#include "base/types.h"
#include "model/checkpoints.h"

namespace kipp {

Result<void> check_hf_config(const Checkpoint& checkpoint, const nlohmann::json& config);
Result<void> check_hf_generation_config(const Checkpoint& checkpoint, const nlohmann::json& config);

}  // namespace kipp
