// `kipp`: one executable, one subcommand per job. What each does is in its own file.
#include <clocale>
#include <cstdio>
#include <string>

#include "cli/commands.h"

namespace kipp {

int report_error(std::string_view command, const Error& error) {
  fmt::print(stderr, "kipp {}: {}\n", command, error.message);
  switch (error.code) {
    case ErrorCode::invalid:
      return 2;
    case ErrorCode::interrupted:
      return 130;
    default:
      return 1;
  }
}

}  // namespace kipp

int main(int argc, char** argv) {
  CLI::App app{"kipp runs the pinned Qwen3 dense checkpoints on your own machine."};
  app.set_version_flag("--version", "kipp " KIPP_VERSION);
  app.require_subcommand(1);
  app.failure_message([](const CLI::App* root, const CLI::Error& error) {
    const auto chosen = root->get_subcommands();
    const std::string command = chosen.empty() ? "kipp" : "kipp " + chosen.front()->get_name();
    std::string what = error.what();
    if (const auto rest = root->remaining(); chosen.empty() && !rest.empty()) {
      what = fmt::format("expected a subcommand, found \"{}\"", rest.front());
    }
    return fmt::format("{}: {} (`{} --help` lists what there is)\n", command, what, command);
  });
  int exit_code = 0;
  kipp::add_checkpoints_command(app, exit_code);
  kipp::add_pull_command(app, exit_code);
  kipp::add_convert_command(app, exit_code);
  kipp::add_quantize_command(app, exit_code);
  kipp::add_synthesize_command(app, exit_code);
  kipp::add_inspect_command(app, exit_code);
  kipp::add_run_command(app, exit_code);
  kipp::add_chat_command(app, exit_code);
  kipp::add_serve_command(app, exit_code);
  kipp::add_devices_command(app, exit_code);
  kipp::add_bench_command(app, exit_code);
  kipp::add_perplexity_command(app, exit_code);
  kipp::add_recall_command(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 numbers its errors above 100; a bad flag is 2 everywhere here.
    return app.exit(error) == 0 ? 0 : 2;
  }
  return exit_code;
}
