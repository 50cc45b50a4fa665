// `kipp quantize`: a BF16 artifact in a smaller scheme.
#include <filesystem>

#include "base/progress.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "convert/quantize_artifact.h"

namespace kipp {
namespace {

struct Flags {
  std::string in;
  std::string out;
  std::string scheme;
};

Result<void> run(const Flags& flags) {
  KIPP_TRY_ASSIGN(scheme, parse_scheme(flags.scheme));
  if (scheme == Scheme::bf16) {
    return fail(ErrorCode::invalid,
                "--scheme: expected q8_0, affine4_gs32 or scale4_gs32, found bf16, which is what "
                "the input has");
  }
  std::error_code error;
  if (std::filesystem::equivalent(flags.in, flags.out, error)) {
    return fail(ErrorCode::invalid, "OUT: expected another file than IN, found {} for both",
                flags.out);
  }
  // Quantizing a synthetic twin gives a synthetic twin; nothing is inferred from it here.
  KIPP_TRY_ASSIGN(from, Artifact::open(flags.in, {.allow_synthetic = true}));
  const Interrupt interrupt;
  ProgressBar bar("quantizing to " + flags.scheme, ProgressUnit::bytes);
  std::uint64_t bytes = 0;
  KIPP_TRY(quantize_artifact(
      from, flags.out, scheme,
      [&](std::uint64_t done, std::uint64_t total) {
        bytes = total;
        bar.update(done, total);
      },
      &Interrupt::flag()));
  bar.finish();
  fmt::print("{}: {} in {}, {} bytes, {:.0f} % of {}\n", flags.out, from.checkpoint().id,
             flags.scheme, bytes,
             100.0 * static_cast<double>(bytes) / static_cast<double>(from.file_bytes()), flags.in);
  return {};
}

}  // namespace

void add_quantize_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("quantize", "Store the projections of a BF16 model file in fewer bits.");
  static Flags flags;
  command->add_option("IN", flags.in, "A bf16 model file.")->required();
  command->add_option("OUT", flags.out, "The file to write.")->required();
  command->add_option("--scheme", flags.scheme, "q8_0, affine4_gs32 or scale4_gs32.")->required();
  command->callback([&exit_code] {
    const auto done = run(flags);
    exit_code = done ? 0 : report_error("quantize", done.error());
  });
}

}  // namespace kipp
