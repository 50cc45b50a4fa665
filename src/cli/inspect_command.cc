// `kipp inspect`: what is in a model file or a saved session, or why kipp refuses it. Synthetic
// twins are shown, and named as such.
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/config_json.h"
#include "cli/inspect_session.h"
#include "model/artifact.h"

namespace kipp {
namespace {

using Json = nlohmann::ordered_json;

struct Sizes {
  std::uint64_t weights = 0;      // values of all tensors
  std::uint64_t bytes = 0;        // of all tensors
  std::uint64_t projections = 0;  // values of those the scheme applies to
  std::uint64_t projection_bytes = 0;
};

std::uint64_t n_values(const TensorSpec& spec) {
  return static_cast<std::uint64_t>(spec.rows) * static_cast<std::uint64_t>(spec.cols);
}

Sizes measure(const Artifact& artifact) {
  Sizes sizes;
  for (const StoredTensor& tensor : artifact.tensors()) {
    sizes.weights += n_values(tensor.spec);
    sizes.bytes += tensor.data.size();
    if (tensor.spec.role != TensorRole::projection) continue;
    sizes.projections += n_values(tensor.spec);
    sizes.projection_bytes += tensor.data.size();
  }
  return sizes;
}

double bits_per(std::uint64_t bytes, std::uint64_t values) {
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(values);
}

Json shape_of(const TensorSpec& spec) {
  return spec.role == TensorRole::norm ? Json{spec.cols} : Json{spec.rows, spec.cols};
}

Json to_json(const std::string& path, const Artifact& artifact) {
  const Checkpoint& entry = artifact.checkpoint();
  const Sizes sizes = measure(artifact);
  Json json{{"file", path},
            {"file_bytes", artifact.file_bytes()},
            {"id", entry.id},
            {"kind", to_string(entry.kind)},
            {"variant", to_string(entry.variant)},
            {"repository", entry.repository},
            {"revision", artifact.source_revision()},
            {"scheme", to_string(artifact.scheme())}};
  json["source_files"] = Json::array();
  for (const SourceFile& file : artifact.source_files()) {
    json["source_files"].push_back({{"name", file.name}, {"sha256", file.sha256}});
  }
  json["config"] = config_json(entry.config);
  json["weights"] = sizes.weights;
  json["weight_bytes"] = sizes.bytes;
  json["bits_per_weight"] = bits_per(sizes.bytes, sizes.weights);
  json["bits_per_projection_weight"] = bits_per(sizes.projection_bytes, sizes.projections);
  json["tensors"] = Json::array();
  for (const StoredTensor& tensor : artifact.tensors()) {
    json["tensors"].push_back({{"name", tensor.spec.name},
                               {"shape", shape_of(tensor.spec)},
                               {"type", to_string(tensor.type)},
                               {"offset", tensor.offset},
                               {"bytes", tensor.data.size()}});
  }
  return json;
}

void print_text(const std::string& path, const Artifact& artifact) {
  const Checkpoint& entry = artifact.checkpoint();
  const ModelConfig& c = entry.config;
  const Sizes sizes = measure(artifact);
  fmt::print("file          {} ({} bytes)\n", path, artifact.file_bytes());
  fmt::print("checkpoint    {} ({}, {}{})\n", entry.id, to_string(entry.kind),
             to_string(entry.variant),
             entry.kind == CheckpointKind::synthetic ? ", random weights" : "");
  fmt::print("source        {} at {}\n", entry.repository, artifact.source_revision());
  for (const SourceFile& file : artifact.source_files()) {
    fmt::print("              {} {}\n", file.sha256, file.name);
  }
  fmt::print("scheme        {}, {:.2f} bits per projection weight, {:.2f} bits per weight\n",
             to_string(artifact.scheme()), bits_per(sizes.projection_bytes, sizes.projections),
             bits_per(sizes.bytes, sizes.weights));
  fmt::print("weights       {} in {} bytes\n", sizes.weights, sizes.bytes);
  fmt::print("hidden        {}\nlayers        {}\nheads         {} query, {} key-value, width {}\n",
             c.hidden, c.layers, c.query_heads, kKvHeads, kHeadDim);
  fmt::print(
      "feed-forward  {}\ncontext       {}\nrope theta    {}\nvocabulary    {} rows, {} named\n",
      c.intermediate, c.context_length, c.rope_theta, kVocabRows, kNamedTokens);
  fmt::print("output head   {}\n\n", c.tied ? "the token embedding" : "its own matrix");
  fmt::print("{:<28} {:>16} {:<5} {:>14} {:>14}\n", "tensor", "shape", "type", "offset", "bytes");
  for (const StoredTensor& tensor : artifact.tensors()) {
    fmt::print("{:<28} {:>16} {:<5} {:>14} {:>14}\n", tensor.spec.name,
               shape_of(tensor.spec).dump(), to_string(tensor.type), tensor.offset,
               tensor.data.size());
  }
}

}  // namespace

void add_inspect_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "inspect", "Show what a model file or a saved session holds, or why kipp refuses it.");
  static std::string path;
  static bool json = false;
  command->add_option("FILE", path, "A model file (.gguf), or what --save-session wrote.")
      ->required();
  command->add_flag("--json", json, "Print everything as JSON.");
  command->callback([&exit_code] {
    if (begins_as_session(path)) {
      const auto shown = inspect_session(path, json);
      exit_code = shown ? 0 : report_error("inspect", shown.error());
      return;
    }
    const auto artifact = Artifact::open(path, {.allow_synthetic = true});
    if (!artifact) {
      exit_code = report_error("inspect", artifact.error());
    } else if (json) {
      fmt::print("{}\n", to_json(path, *artifact).dump(2));
      exit_code = 0;
    } else {
      print_text(path, *artifact);
      exit_code = 0;
    }
  });
}

}  // namespace kipp
