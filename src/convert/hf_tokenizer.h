// Holds a checkpoint's tokenizer files against the vocabulary that is compiled into kipp: every
// token, every merge in its rank, every added token with its flags, and the rules around them. What
// tokenizer.json lacks tokenizer_config.json may declare (the base checkpoints' file misses four
// added tokens): the union counts.
#pragma once

#include <nlohmann/json.hpp>

#include "base/types.h"
#include "model/checkpoints.h"

namespace kipp {

// `tokenizer` is tokenizer.json, `config` is tokenizer_config.json. The refusal names the first
// difference.
Result<void> check_hf_tokenizer(const Checkpoint& checkpoint, const nlohmann::json& tokenizer,
                                const nlohmann::json& config);

}  // namespace kipp
