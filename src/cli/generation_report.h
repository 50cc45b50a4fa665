// What a generation did, for people (one line) and for programs (JSON).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/generate.h"

namespace kipp {

// "prompt 12 tokens, 230.1 tok/s; decode 64 tokens, 41.0 tok/s; finish: stop"
std::string summary(const Generation& generation);

// "; 40 of 52 proposed tokens accepted in 13 steps"; empty where nothing was proposed.
std::string speculated(const SpeculationStats& stats);

// text, tokens, finish_reason, stop, usage, timings, seed, logits_hash. `seed` is what --seed takes
// to repeat it.
nlohmann::ordered_json to_json(const Generation& generation, std::uint64_t seed);

// 16 hex digits.
std::string hash_text(const Generation& generation);

}  // namespace kipp
