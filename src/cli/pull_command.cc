// `kipp pull`: the pinned files of a checkpoint, from the Hugging Face hub or a mirror.
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/paths.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "convert/hub.h"
#include "model/checkpoints.h"

namespace kipp {
namespace {

using Json = nlohmann::ordered_json;

struct PullArguments {
  std::string id;
  std::string directory;
  bool no_weights = false;
  bool json = false;
};

std::string environment(const char* name, std::string_view otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? std::string(otherwise) : std::string(value);
}

Result<DownloadPlan> plan_of(const Checkpoint& checkpoint, const PullArguments& arguments) {
  if (checkpoint.kind != CheckpointKind::pinned) {
    return fail(ErrorCode::invalid,
                "checkpoint: expected one that lives on the hub, found {}, which ships with kipp",
                checkpoint.id);
  }
  DownloadPlan plan;
  plan.endpoint = environment("HF_ENDPOINT", "https://huggingface.co");
  while (plan.endpoint.ends_with('/')) plan.endpoint.pop_back();
  plan.token = environment("HF_TOKEN", "");
  plan.ca_file = environment("SSL_CERT_FILE", "");
  plan.repository = checkpoint.repository;
  plan.revision = checkpoint.revision;
  if (arguments.directory.empty()) {
    KIPP_TRY_ASSIGN(directory, hub_dir(checkpoint.repository, checkpoint.revision));
    plan.directory = directory;
  } else {
    plan.directory = arguments.directory;
  }
  for (const PinnedFile& file : checkpoint.files) {
    if (arguments.no_weights && file.name.ends_with(".safetensors")) continue;
    plan.files.push_back(
        {std::string(file.name), static_cast<std::uint64_t>(file.bytes), std::string(file.sha256)});
  }
  return plan;
}

// One bar per stage; notes go between its lines.
class PullDisplay {
 public:
  explicit PullDisplay(std::string_view id) : id_(id) {}

  void progress(std::string_view label, std::uint64_t done, std::uint64_t total) {
    if (label != label_) {
      finish();
      label_ = label;
      bar_ = std::make_unique<ProgressBar>(fmt::format("{} {}", label, id_), ProgressUnit::bytes);
    }
    bar_->update(done, total);
  }
  void note(const std::string& line) {
    static const bool terminal = ::isatty(STDERR_FILENO) == 1;
    fmt::print(stderr, "{}kipp pull: {}\n", terminal ? "\r\x1b[K" : "", line);
  }
  void finish() {
    if (bar_ != nullptr) bar_->finish();
    bar_.reset();
  }

 private:
  std::string_view id_;
  std::string_view label_;
  std::unique_ptr<ProgressBar> bar_;
};

void print_report(const DownloadPlan& plan, std::span<const HubFileReport> files, bool json) {
  if (json) {
    Json out{{"directory", plan.directory.string()}, {"files", Json::array()}};
    for (const HubFileReport& file : files) {
      out["files"].push_back({{"name", file.name},
                              {"bytes", file.bytes},
                              {"sha256", file.sha256},
                              {"verified", file.verified},
                              {"present", file.present}});
    }
    fmt::print("{}\n", out.dump(2));
    return;
  }
  for (const HubFileReport& file : files) {
    fmt::print("{:<34} {:>15} bytes  {}, {}\n", file.name, file.bytes,
               file.present ? "already here" : "downloaded",
               file.verified ? "verified" : "unverified: the registry pins no SHA-256 of it");
  }
  fmt::print("{}\n", plan.directory.string());
}

Result<void> pull(const PullArguments& arguments) {
  KIPP_TRY_ASSIGN(checkpoint, find_checkpoint(arguments.id));
  KIPP_TRY_ASSIGN(plan, plan_of(*checkpoint, arguments));
  const Interrupt interrupt;
  PullDisplay display(checkpoint->id);
  DownloadOptions options;
  options.cancel = &Interrupt::flag();
  options.progress = [&](std::string_view label, std::uint64_t done, std::uint64_t total) {
    display.progress(label, done, total);
  };
  options.note = [&](const std::string& line) { display.note(line); };
  KIPP_TRY_ASSIGN(files, download(plan, options));
  display.finish();
  print_report(plan, files, arguments.json);
  return {};
}

}  // namespace

void add_pull_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("pull", "Download a checkpoint's pinned files and verify them.");
  static PullArguments arguments;
  command->add_option("ID", arguments.id, "Which checkpoint; `kipp checkpoints` lists them.")
      ->required();
  command->add_option("--dir", arguments.directory,
                      "Where to put them, instead of kipp's own directory.");
  command->add_flag("--no-weights", arguments.no_weights, "Only configuration and tokenizer.");
  command->add_flag("--json", arguments.json, "Report as JSON.");
  command->footer(
      "A broken download is resumed by the same command. HF_ENDPOINT names a mirror, HF_TOKEN is "
      "sent to it.");
  command->callback([&exit_code] {
    const auto done = pull(arguments);
    exit_code = done ? 0 : report_error("pull", done.error());
  });
}

}  // namespace kipp
