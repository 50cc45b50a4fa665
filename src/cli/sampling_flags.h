// How tokens are chosen: the flags `run` and `chat` share. What is not given comes from the
// checkpoint's own defaults, which are greedy for base checkpoints.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "engine/sampler.h"
#include "model/checkpoints.h"

namespace kipp {

// As written on the command line.
struct SamplingFlags {
  std::optional<std::string> temperature;
  std::optional<std::string> top_k;
  std::optional<std::string> top_p;
  std::optional<std::string> min_p;
  std::optional<std::string> repetition_penalty;
  std::optional<std::string> presence_penalty;
  std::optional<std::string> frequency_penalty;
  std::vector<std::string> logit_bias;  // "ID=VALUE"
  std::optional<std::string> seed;
};

void add_sampling_flags(CLI::App& command, SamplingFlags& flags);

// Checked. `random_seed` is used where --seed says nothing.
Result<SamplingParams> sampling_params(const SamplingFlags& flags, const SamplingDefaults& defaults,
                                       std::uint64_t random_seed);

// Fresh randomness of 53 bits: a number that JSON readers keep exactly.
std::uint64_t random_seed();

// For --verbose: one line.
std::string describe(const SamplingParams& params);

}  // namespace kipp
