// Which model, on which backend: the flags `run` and `chat` share, and opening what they name.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "base/types.h"
#include "engine/session.h"

namespace kipp {

struct ModelFlags {
  std::string model;                  // a file or an id; empty: the demo checkpoint
  std::optional<std::string> scheme;  // of an id: which of its files; of a file: what it must be
  std::string backend = "cpu";
  std::string adapter;        // of webgpu; empty: the best there is
  std::string threads = "0";  // 0: one per core
  std::string weights = "packed";
  std::string kv = "bf16";
  bool kv_unproven = false;
  std::optional<std::string> context;  // positions
  bool allow_synthetic = false;
  bool deterministic = true;
};

void add_model_flags(CLI::App& command, ModelFlags& flags);
// Of these, what says how to compute rather than what: --backend, --adapter, --threads, --weights,
// --deterministic, --allow-synthetic.
void add_compute_flags(CLI::App& command, ModelFlags& flags);

// The parts of open_model(), for commands that load a model their own way: the path that --model
// and --scheme name (unpacking the demo checkpoint if need be), the artifact there, and how to load
// it.
Result<std::string> model_file(const ModelFlags& flags);
Result<Artifact> open_artifact(const ModelFlags& flags, const std::string& path);
Result<LoadOptions> load_options(const ModelFlags& flags);

struct OpenedModel {
  std::shared_ptr<Model> model;
  Session session;
  double seconds = 0;  // what opening took
};

// `wanted`: positions of the session where --context says nothing; less where the checkpoint's
// context is less.
Result<OpenedModel> open_model(const ModelFlags& flags, int wanted);

// For --verbose: one line on what was opened.
std::string describe(const OpenedModel& opened);

}  // namespace kipp
