// Who proposes tokens ahead of the model: the flags `run` and `chat` share, and opening the draft
// checkpoint that they name.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "base/types.h"
#include "cli/model_flags.h"
#include "engine/speculation.h"

namespace kipp {

// As written on the command line.
struct SpeculationFlags {
  std::string mode = "off";
  std::optional<std::string> draft_model;  // a file or an id
  std::optional<std::string> draft_max;
};

void add_speculation_flags(CLI::App& command, SpeculationFlags& flags);

// Whether the values make sense together; for before a model is opened, which may take a while.
Result<void> check(const SpeculationFlags& flags);

// For generations of `target`. A draft checkpoint is opened as `model_flags` say of backend,
// threads and weights, with a cache for so many positions.
Result<Speculation> open_speculation(const SpeculationFlags& flags, const ModelFlags& model_flags,
                                     Model& target, int positions);

}  // namespace kipp
