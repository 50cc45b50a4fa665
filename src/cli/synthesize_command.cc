// `kipp synthesize`: an artifact of a real or tiny shape with random weights, for benchmarks and
// tests.
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/flag_values.h"
#include "cli/interrupt.h"
#include "convert/synthesize.h"

namespace kipp {
namespace {

struct Flags {
  std::string checkpoint;
  std::string shape;
  std::string seed = "0";
  std::string scheme = "bf16";
  std::string out;
};

Result<void> run(const Flags& flags) {
  KIPP_TRY_ASSIGN(entry, find_synthetic(flags.checkpoint.empty() ? flags.shape : flags.checkpoint));
  KIPP_TRY_ASSIGN(seed, parse_uint64("--seed", flags.seed));
  KIPP_TRY_ASSIGN(scheme, parse_scheme(flags.scheme));
  const Interrupt interrupt;
  ProgressBar bar("writing " + flags.out, ProgressUnit::bytes);
  std::uint64_t bytes = 0;
  KIPP_TRY(synthesize(
      flags.out, *entry, seed, scheme,
      [&](std::uint64_t done, std::uint64_t total) {
        bytes = total;
        bar.update(done, total);
      },
      &Interrupt::flag()));
  bar.finish();
  fmt::print("{}: synthetic weights in the shape of {}, seed {}, {}, {} bytes\n", flags.out,
             flags.checkpoint.empty() ? flags.shape : flags.checkpoint, seed, flags.scheme, bytes);
  return {};
}

}  // namespace

void add_synthesize_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "synthesize", "Write a model file of real shape with random weights, for benchmarks.");
  static Flags flags;
  CLI::App* which = command->add_option_group("shape");
  which->add_option("--checkpoint", flags.checkpoint, "The shape of this checkpoint.");
  which->add_option("--shape", flags.shape, "A small shape for tests: tiny-tied or tiny-untied.");
  which->require_option(1);
  command->add_option("--seed", flags.seed, "Equal seeds give equal bytes.")->capture_default_str();
  command->add_option("--scheme", flags.scheme, "bf16, q8_0, affine4_gs32 or scale4_gs32.")
      ->capture_default_str();
  command->add_option("--out", flags.out, "The file to write.")->required();
  command->callback([&exit_code] {
    const auto done = run(flags);
    exit_code = done ? 0 : report_error("synthesize", done.error());
  });
}

}  // namespace kipp
