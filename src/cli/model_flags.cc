#include "cli/model_flags.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "backend/registry.h"
#include "base/paths.h"
#include "base/progress.h"
#include "cli/demo_model.h"
#include "cli/flag_values.h"

namespace kipp {
namespace {

// A path is what exists or looks like one; anything else is an id, so that a mistyped id gets the
// list of ids.
bool looks_like_path(const std::string& model) {
  std::error_code ignored;
  return model.find('/') != std::string::npos || model.ends_with(".gguf") ||
         std::filesystem::exists(model, ignored);
}

Result<int> session_context(const ModelFlags& flags, const Checkpoint& checkpoint, int wanted) {
  const int most = checkpoint.config.context_length;
  if (!flags.context) return std::min(wanted, most);
  KIPP_TRY_ASSIGN(context, parse_int("--context", *flags.context));
  if (context < 1 || context > most) {
    return fail(ErrorCode::invalid, "--context: expected 1 to {} positions, found {}", most,
                context);
  }
  return context;
}

}  // namespace

Result<std::string> model_file(const ModelFlags& flags) {
  if (flags.model.empty()) return demo_model_path();
  if (looks_like_path(flags.model)) return flags.model;
  KIPP_TRY_ASSIGN(checkpoint, find_checkpoint(flags.model));
  if (checkpoint->kind == CheckpointKind::demo) return demo_model_path();
  const std::string scheme = flags.scheme.value_or("bf16");
  KIPP_TRY(parse_scheme(scheme));
  KIPP_TRY_ASSIGN(path, model_path(checkpoint->id, scheme));
  if (!std::filesystem::exists(path)) {
    return fail(ErrorCode::io,
                "{0}: expected its model file at {1}, found none; `kipp pull {0}` downloads it and "
                "`kipp convert {0} --scheme {2}` makes the file",
                checkpoint->id, path.string(), scheme);
  }
  return path.string();
}

Result<LoadOptions> load_options(const ModelFlags& flags) {
  LoadOptions options;
  KIPP_TRY_ASSIGN(threads, parse_int("--threads", flags.threads));
  if (threads < 0) {
    return fail(ErrorCode::invalid, "--threads: expected at least 0, found {}", threads);
  }
  options.threads = threads;
  const auto weights = parse_weight_store(flags.weights);
  if (!weights) {
    return fail(ErrorCode::invalid, "--weights: expected packed or mapped, found \"{}\"",
                flags.weights);
  }
  options.weights = *weights;
  options.deterministic = flags.deterministic;
  if (auto checked = check_adapter(flags.backend, flags.adapter); !checked) {
    return fail(checked.error().code, "--{}", checked.error().message);
  }
  options.adapter = flags.adapter;
  return options;
}

void add_compute_flags(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("--backend", flags.backend,
                  "What computes: cpu, cuda (an NVIDIA GPU), webgpu (any GPU), or the slow "
                  "reference.")
      ->capture_default_str();
  command
      .add_option("--adapter", flags.adapter,
                  "With --backend webgpu: the GPU, by its number or a part of its name in `kipp "
                  "devices`. Default: the first discrete one, else the first integrated one.")
      ->type_name("NAME|INDEX");
  command.add_option("--threads", flags.threads, "Threads that compute; 0: one per core.")
      ->type_name("NUMBER")
      ->capture_default_str();
  command
      .add_option("--weights", flags.weights,
                  "packed: copied into the order the kernels read; mapped: left in the model file, "
                  "for machines short of memory (slower).")
      ->capture_default_str();
  command.add_flag(
      "--deterministic,!--fast", flags.deterministic,
      "The default: the same bits alone and in any batch, in any chunks, from the cache "
      "or not. --fast: on cuda, prompts in half the precision and time; elsewhere "
      "nothing.");
  command
      .add_option(
          "--kv", flags.kv,
          "Precision of cached keys and values: bf16, int8, tiered, tiered-max, or a policy "
          "in words, as sink=1:int8,recent=8:int8,mid=8:int8/int4,far=int4 (docs/KV.md).")
      ->type_name("POLICY")
      ->capture_default_str();
  command.add_flag("--kv-unproven", flags.kv_unproven,
                   "Accept a --kv that was not proven on this checkpoint.");
  command.add_flag("--allow-synthetic", flags.allow_synthetic,
                   "Accept files with random weights, made by `kipp synthesize`.");
}

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("--model", flags.model,
                  "A model file, or the id of a converted checkpoint. Default: the demo "
                  "checkpoint that ships with kipp.")
      ->type_name("FILE|ID");
  command.add_option("--scheme", flags.scheme, "Of an id: bf16 (default) or a quantized scheme.");
  command.add_option("--context", flags.context, "Positions to keep memory for.")
      ->type_name("NUMBER");
  add_compute_flags(command, flags);
}

Result<Artifact> open_artifact(const ModelFlags& flags, const std::string& path) {
  KIPP_TRY_ASSIGN(artifact, Artifact::open(path, {.allow_synthetic = flags.allow_synthetic}));
  if (flags.scheme && *flags.scheme != to_string(artifact.scheme())) {
    return fail(ErrorCode::invalid, "--scheme: expected {}, found {} in {}", *flags.scheme,
                to_string(artifact.scheme()), path);
  }
  return std::move(artifact);
}

Result<OpenedModel> open_model(const ModelFlags& flags, int wanted) {
  // Before anything is unpacked or read.
  KIPP_TRY_ASSIGN(load, load_options(flags));
  if (flags.context) KIPP_TRY(parse_int("--context", *flags.context));
  if (flags.scheme) KIPP_TRY(parse_scheme(*flags.scheme));
  KIPP_TRY_ASSIGN(kv, KvPolicy::parse(flags.kv));
  const auto start = std::chrono::steady_clock::now();
  KIPP_TRY_ASSIGN(path, model_file(flags));
  // The header alone, to know how much memory to ask for.
  int context = 0;
  {
    KIPP_TRY_ASSIGN(artifact, open_artifact(flags, path));
    KIPP_TRY_ASSIGN(positions, session_context(flags, artifact.checkpoint(), wanted));
    context = positions;
  }
  ProgressBar packing("packing weights", ProgressUnit::bytes);
  load.progress = [&](std::uint64_t done, std::uint64_t total) { packing.update(done, total); };
  KIPP_TRY_ASSIGN(model, Model::open(path, {.backend = flags.backend,
                                            .allow_synthetic = flags.allow_synthetic,
                                            .kv_blocks = blocks_for(context),
                                            .kv = kv,
                                            .allow_unproven_kv = flags.kv_unproven,
                                            .load = load}));
  packing.finish();
  KIPP_TRY_ASSIGN(session, Session::create(model, context));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return OpenedModel{std::move(model), std::move(session), took.count()};
}

std::string describe(const OpenedModel& opened) {
  const Checkpoint& checkpoint = opened.model->checkpoint();
  const Artifact& artifact = opened.model->artifact();
  const BackendInfo& info = opened.model->backend().info();
  return fmt::format(
      "model: {} ({}, {}), {} at {}, {}, {} bytes; backend {} on {} {}, context {} of {}; opened "
      "in {:.2f} s",
      checkpoint.id, to_string(checkpoint.kind), to_string(checkpoint.variant),
      checkpoint.repository, artifact.source_revision(), to_string(artifact.scheme()),
      artifact.file_bytes(), info.name, info.threads, info.threads == 1 ? "thread" : "threads",
      opened.session.capacity(), checkpoint.config.context_length, opened.seconds);
}

}  // namespace kipp
