// The sizes of a checkpoint as JSON, named as in Hugging Face's config.json.
#pragma once

#include <nlohmann/json.hpp>

#include "model/config.h"

namespace kipp {

nlohmann::ordered_json config_json(const ModelConfig& config);

}  // namespace kipp
