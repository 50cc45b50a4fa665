// `kipp checkpoints`: the registry as a table or JSON, with what is not verified said plainly.
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/config_json.h"
#include "model/checkpoints.h"

namespace kipp {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t download_bytes(const Checkpoint& entry) {
  std::int64_t sum = 0;
  for (const PinnedFile& file : entry.files) sum += file.bytes;
  return sum;
}

Json to_json(const Checkpoint& entry) {
  Json json{{"id", entry.id},
            {"kind", to_string(entry.kind)},
            {"variant", to_string(entry.variant)},
            {"repository", entry.repository},
            {"revision", entry.revision},
            {"parameters", entry.parameters}};
  json["config"] = config_json(entry.config);
  json["stop_token_ids"] = entry.stop_tokens;
  const SamplingDefaults& s = entry.sampling;
  json["sampling"] = {{"do_sample", s.sample},
                      // As a user would write them: 0.6, not the nearest float.
                      {"temperature", Json::parse(fmt::format("{}", s.temperature))},
                      {"top_p", Json::parse(fmt::format("{}", s.top_p))},
                      {"top_k", s.top_k}};
  json["files"] = Json::array();
  for (const PinnedFile& file : entry.files) {
    Json item{{"name", file.name}};
    item["bytes"] = file.bytes == 0 ? Json() : Json(file.bytes);
    item["sha256"] = file.sha256.empty() ? Json() : Json(file.sha256);
    item["verified"] = file.verified;
    json["files"].push_back(item);
  }
  json["unverified"] = entry.unverified;
  return json;
}

void print_table() {
  fmt::print("{:<24} {:<14} {:>8} {:>7} {:>6} {:>6} {:>7} {:>5} {:>9}  {}\n", "id", "variant",
             "params", "hidden", "layers", "heads", "context", "tied", "download", "facts");
  for (const Checkpoint& entry : checkpoints()) {
    const ModelConfig& c = entry.config;
    const std::int64_t bytes = download_bytes(entry);
    const std::string_view facts = entry.kind == CheckpointKind::demo ? "ships with kipp"
                                   : entry.unverified.empty()         ? "verified"
                                                                      : "partly unverified";
    fmt::print("{:<24} {:<14} {:>7.2f}B {:>7} {:>6} {:>6} {:>7} {:>5} {:>9}  {}\n", entry.id,
               to_string(entry.variant), static_cast<double>(entry.parameters) / 1e9, c.hidden,
               c.layers, c.query_heads, c.context_length, c.tied ? "yes" : "no",
               bytes == 0 ? "-" : fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9),
               facts);
  }
  for (const Checkpoint& entry : checkpoints()) {
    if (entry.unverified.empty()) continue;
    fmt::print("\n{}: not verified:\n", entry.id);
    for (const std::string_view what : entry.unverified) fmt::print("  {}\n", what);
  }
}

}  // namespace

void add_checkpoints_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("checkpoints", "List every checkpoint kipp accepts.");
  static bool json = false;
  command->add_flag("--json", json, "Print every pinned fact as JSON.");
  command->callback([&exit_code] {
    if (json) {
      Json all = Json::array();
      for (const Checkpoint& entry : checkpoints()) all.push_back(to_json(entry));
      fmt::print("{}\n", all.dump(2));
    } else {
      print_table();
    }
    exit_code = 0;
  });
}

}  // namespace kipp
