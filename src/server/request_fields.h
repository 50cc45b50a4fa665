// What /v1/completions and /v1/chat/completions have in common. Internal to the two.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/json_fields.h"
#include "server/openai_request.h"

namespace kipp {

inline constexpr int kMaxLogitBiases = 1024;
// In characters (code points), as the maxLength of the OpenAPI document counts them.
inline constexpr std::size_t kMaxStopCharacters = 256;  // of each: every choice has its own copy
inline constexpr std::size_t kMaxUserCharacters = 64;   // goes into the log

void read_model(Fields& fields, const ServedModel& model, Problem& problem);

// Sampling, stops, streaming, n and what rides along: all that means the same on both endpoints.
void read_common(Fields& fields, const ServedModel& model, std::uint64_t fresh_seed,
                 GenerateCall& call, Problem& problem);

// 0 and more; what an int cannot hold becomes the largest, since nothing near it fits a context.
std::optional<int> read_max_tokens(Fields& fields, std::string_view name);

std::vector<Token> read_token_ids(const Json& list, const std::string& path, Problem& problem);

// Once the prompts are there: refuses those that do not fit the context, and bounds max_tokens by
// what does. `wanted`: absent, all that fits. `names`: of the prompts, for refusals.
void fit_context(const ServedModel& model, std::optional<int> wanted,
                 const std::vector<std::string>& names, GenerateCall& call, Problem& problem);

}  // namespace kipp
