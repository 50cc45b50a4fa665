// `kipp convert`: a pulled checkpoint into one artifact that kipp and the GGUF ecosystem read.
#include <memory>

#include "base/paths.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "convert/convert.h"

namespace kipp {
namespace {

struct ConvertArguments {
  std::string id;
  std::string scheme = "bf16";
  std::string from;
  std::string out;
};

Result<void> run_convert(const ConvertArguments& arguments) {
  KIPP_TRY_ASSIGN(checkpoint, find_checkpoint(arguments.id));
  if (checkpoint->kind != CheckpointKind::pinned) {
    return fail(
        ErrorCode::invalid,
        "checkpoint: expected one that lives on the hub, found {}, which ships with kipp as "
        "an artifact",
        checkpoint->id);
  }
  KIPP_TRY_ASSIGN(scheme, parse_scheme(arguments.scheme));
  ConvertOptions options;
  options.from = arguments.from;
  options.out = arguments.out;
  options.scheme = scheme;
  if (arguments.from.empty()) {
    KIPP_TRY_ASSIGN(from, hub_dir(checkpoint->repository, checkpoint->revision));
    options.from = from;
  }
  if (arguments.out.empty()) {
    KIPP_TRY_ASSIGN(out, model_path(checkpoint->id, to_string(scheme)));
    options.out = out.string();
  }
  const Interrupt interrupt;
  options.cancel = &Interrupt::flag();
  std::string_view stage;
  std::unique_ptr<ProgressBar> bar;
  options.progress = [&](std::string_view label, std::uint64_t done, std::uint64_t total) {
    if (label != stage) {
      stage = label;
      if (bar != nullptr) bar->finish();
      bar = std::make_unique<ProgressBar>(fmt::format("{} {}", label, checkpoint->id),
                                          ProgressUnit::bytes);
    }
    bar->update(done, total);
  };
  KIPP_TRY_ASSIGN(report, convert(*checkpoint, options));
  if (bar != nullptr) bar->finish();
  for (const std::string& name : report.unverified) {
    fmt::print("{}: unverified: the registry pins no SHA-256 of it\n", name);
  }
  fmt::print("{}: {} in {}, {} bytes\n", options.out, checkpoint->id, to_string(scheme),
             report.bytes);
  return {};
}

}  // namespace

void add_convert_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("convert", "Turn a pulled checkpoint into a model file.");
  static ConvertArguments arguments;
  command->add_option("ID", arguments.id, "Which checkpoint; `kipp checkpoints` lists them.")
      ->required();
  command
      ->add_option("--scheme", arguments.scheme,
                   "How projections are stored: bf16, q8_0, affine4_gs32 or scale4_gs32.")
      ->capture_default_str();
  command->add_option("--from", arguments.from,
                      "The directory of the pulled files, instead of kipp's own.");
  command->add_option("--out", arguments.out,
                      "The file to write, instead of one in kipp's own directory.");
  command->callback([&exit_code] {
    const auto done = run_convert(arguments);
    exit_code = done ? 0 : report_error("convert", done.error());
  });
}

}  // namespace kipp
