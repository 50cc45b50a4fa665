// The subcommands of `kipp`. Each lives in <name>_command.cc and registers itself with CLI11; its
// callback does the work and stores the exit code: 0 done, 1 failed, 2 a bad value, 130
// interrupted.
#pragma once

#include <CLI/CLI.hpp>
#include <string_view>

#include "base/types.h"

namespace kipp {

void add_checkpoints_command(CLI::App& app, int& exit_code);
void add_pull_command(CLI::App& app, int& exit_code);
void add_convert_command(CLI::App& app, int& exit_code);
void add_quantize_command(CLI::App& app, int& exit_code);
void add_synthesize_command(CLI::App& app, int& exit_code);
void add_inspect_command(CLI::App& app, int& exit_code);
void add_run_command(CLI::App& app, int& exit_code);
void add_chat_command(CLI::App& app, int& exit_code);
void add_serve_command(CLI::App& app, int& exit_code);
void add_devices_command(CLI::App& app, int& exit_code);
void add_bench_command(CLI::App& app, int& exit_code);
void add_perplexity_command(CLI::App& app, int& exit_code);
void add_recall_command(CLI::App& app, int& exit_code);

// Prints `kipp COMMAND: sentence` on standard error and returns the exit code the error deserves.
int report_error(std::string_view command, const Error& error);

}  // namespace kipp
