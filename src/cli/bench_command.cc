// `kipp bench`: prefill and decode speed at several depths of context and for several sequences at
// once, each as a share of what the machine can do. Everything is checked before anything is
// measured; Ctrl-C keeps what was measured so far.
#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <filesystem>

#include "backend/machine_peaks.h"
#include "backend/registry.h"
#include "base/cpu_name.h"
#include "base/progress.h"
#include "cli/bench_report.h"
#include "cli/build_commit.h"
#include "cli/commands.h"
#include "cli/flag_values.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/terminal.h"
#include "cli/text_file.h"
#include "model/memory.h"

namespace kipp {
namespace {

using Strings = std::vector<std::string>;

struct BenchFlags {
  Strings models;
  Strings schemes;
  ModelFlags compute;  // of it, what add_compute_flags() sets
  Strings prefill = {"512"};
  std::string decode = "32";
  Strings depths;  // empty: kDefaultDepths, as far as they fit
  Strings batches = {"1", "2", "4", "8", "16", "32"};
  std::string batch_depth = "0";
  std::string repetitions = "3";
  std::string seed = "0";
  std::optional<std::string> json;
  std::optional<std::string> csv;
};

constexpr int kDefaultDepths[] = {0, 1024, 4096, 16384};

// The numbers of the flags.
struct BenchSettings {
  std::vector<int> prefill;  // tokens
  int decode = 0;            // tokens
  std::vector<int> depths;
  bool default_depths = false;
  std::vector<int> batches;
  int batch_depth = 0;
  int repetitions = 0;
  std::uint64_t seed = 0;
};

struct PlannedModel {
  ModelFlags flags;
  std::string path;
  std::vector<BenchmarkCase> cases;
  std::vector<int> depths_left_out;
  KvPlan cache = {};
};

Result<int> number(std::string_view flag, const std::string& text, int least) {
  KIPP_TRY_ASSIGN(value, parse_int(flag, text));
  if (value < least) {
    return fail(ErrorCode::invalid, "{}: expected at least {}, found {}", flag, least, value);
  }
  return value;
}

Result<std::vector<int>> numbers(std::string_view flag, const Strings& texts, int least) {
  std::vector<int> values;
  for (const std::string& text : texts) {
    KIPP_TRY_ASSIGN(value, number(flag, text, least));
    if (std::ranges::find(values, value) == values.end()) values.push_back(value);
  }
  return values;
}

Result<BenchSettings> read_settings(const BenchFlags& flags) {
  BenchSettings settings;
  KIPP_TRY_ASSIGN(prefill, numbers("--prefill", flags.prefill, 0));
  std::erase(prefill, 0);
  settings.prefill = prefill;
  KIPP_TRY_ASSIGN(decode, number("--decode", flags.decode, 0));
  settings.decode = decode;
  KIPP_TRY_ASSIGN(depths, numbers("--depth", flags.depths, 0));
  settings.default_depths = depths.empty();
  settings.depths = depths;
  if (depths.empty()) settings.depths.assign(std::begin(kDefaultDepths), std::end(kDefaultDepths));
  KIPP_TRY_ASSIGN(batches, numbers("--batch", flags.batches, 1));
  settings.batches = batches;
  KIPP_TRY_ASSIGN(batch_depth, number("--batch-depth", flags.batch_depth, 0));
  settings.batch_depth = batch_depth;
  KIPP_TRY_ASSIGN(repetitions, number("--repetitions", flags.repetitions, 1));
  settings.repetitions = repetitions;
  KIPP_TRY_ASSIGN(seed, parse_uint64("--seed", flags.seed));
  settings.seed = seed;
  if (settings.prefill.empty() && settings.decode == 0) {
    return fail(ErrorCode::invalid,
                "--prefill, --decode: expected something to measure, found 0 for both");
  }
  return settings;
}

// In the order of the report: by depth, then by batch. A depth fits when everything that is
// measured at it does.
Result<void> plan_cases(const BenchSettings& settings, const Artifact& artifact,
                        PlannedModel& planned) {
  const int context = artifact.config().context_length;
  const auto refuse = [&](std::string_view flag, int value, int tokens) {
    return fail(ErrorCode::invalid,
                "{} {}: expected at most the {} positions of {}, found {} with the {} tokens that "
                "are measured",
                flag, value, context, artifact.checkpoint().id, std::int64_t{value} + tokens,
                tokens);
  };
  std::vector<int> lengths = settings.prefill;
  lengths.push_back(settings.decode);
  const int longest = std::ranges::max(lengths);
  for (const int depth : settings.depths) {
    if (depth > context - longest) {
      if (!settings.default_depths || depth == 0) return refuse("--depth", depth, longest);
      planned.depths_left_out.push_back(depth);
      continue;
    }
    for (const int tokens : settings.prefill) {
      planned.cases.push_back({BenchmarkKind::prefill, tokens, depth, 1});
    }
    if (settings.decode > 0) {
      planned.cases.push_back({BenchmarkKind::decode, settings.decode, depth, 1});
    }
  }
  if (settings.decode == 0) return {};
  if (settings.batch_depth > context - settings.decode) {
    return refuse("--batch-depth", settings.batch_depth, settings.decode);
  }
  for (const int batch : settings.batches) {
    const BenchmarkCase what{BenchmarkKind::decode, settings.decode, settings.batch_depth, batch};
    if (std::ranges::find(planned.cases, what) == planned.cases.end()) {
      planned.cases.push_back(what);
    }
  }
  return {};
}

const BenchmarkCase& largest(const std::vector<BenchmarkCase>& cases) {
  return *std::ranges::max_element(cases, {}, &BenchmarkCase::blocks);
}

// One entry per model and scheme, every one of them opened once, so that nothing is measured
// before everything is known to be measurable.
Result<std::vector<PlannedModel>> plan(const BenchFlags& flags, const BenchSettings& settings) {
  KIPP_TRY(load_options(flags.compute));
  KIPP_TRY_ASSIGN(backend, make_backend(flags.compute.backend));
  const BackendInfo& info = backend->info();
  const int most = std::min(info.max_step_tokens, info.max_logit_rows);
  for (const int batch : settings.batches) {
    if (batch <= most) continue;
    return fail(ErrorCode::invalid, "--batch: expected at most {} sequences on {}, found {}", most,
                info.name, batch);
  }
  std::vector<PlannedModel> models;
  const Strings names = flags.models.empty() ? Strings{""} : flags.models;
  std::vector<std::optional<std::string>> schemes(flags.schemes.begin(), flags.schemes.end());
  if (schemes.empty()) schemes.emplace_back();
  for (const std::string& name : names) {
    for (const auto& scheme : schemes) {
      if (scheme) KIPP_TRY(parse_scheme(*scheme));
      PlannedModel planned;
      planned.flags = flags.compute;
      planned.flags.model = name;
      planned.flags.scheme = scheme;
      KIPP_TRY_ASSIGN(path, model_file(planned.flags));
      planned.path = path;
      KIPP_TRY_ASSIGN(artifact, open_artifact(planned.flags, path));
      KIPP_TRY(plan_cases(settings, artifact, planned));
      KIPP_TRY_ASSIGN(kv, KvPolicy::parse(flags.compute.kv));
      KIPP_TRY_ASSIGN(cache,
                      plan_cache(planned.cases, kv, artifact.config(), info.max_step_tokens));
      planned.cache = cache;
      if (kv.all_bf16()) {  // the backend says of others what they lack
        KIPP_TRY(check_cache(largest(planned.cases), artifact.checkpoint(), available_memory()));
      }
      for (const int depth : planned.depths_left_out) {
        fmt::print(stderr, "kipp bench: depth {} is left out: {} has {} positions\n", depth,
                   artifact.checkpoint().id, artifact.config().context_length);
      }
      models.push_back(std::move(planned));
    }
  }
  return models;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

// Of this machine, where it is what computes. The best of before and after: on a shared machine
// either may be disturbed.
Result<void> measure_peaks(const BackendInfo& info, MachinePeaks& peaks) {
  if (!info.on_host) return {};
  constexpr std::size_t kReadBytes = std::size_t{512} << 20;  // beyond any cache
  KIPP_TRY_ASSIGN(pool, ThreadPool::create(info.threads));
  KIPP_TRY_ASSIGN(read_bytes, measure_read_bandwidth(*pool, kReadBytes, 12));
  peaks.read_bytes = std::max(peaks.read_bytes, read_bytes);
  peaks.multiply_add = std::max(peaks.multiply_add, measure_multiply_add(*pool, 40));
  return {};
}

// Measures one model into `bench`, which holds whatever was measured when it fails.
Result<void> bench_model(const PlannedModel& planned, const BenchSettings& settings,
                         BenchedModel& bench) {
  KIPP_TRY_ASSIGN(options, load_options(planned.flags));
  KIPP_TRY_ASSIGN(artifact, open_artifact(planned.flags, planned.path));
  KIPP_TRY_ASSIGN(backend, make_backend(planned.flags.backend));
  bench.file = std::filesystem::path(planned.path).filename().string();
  bench.id = artifact.checkpoint().id;
  bench.kind = to_string(artifact.checkpoint().kind);
  bench.scheme = to_string(artifact.scheme());
  bench.weights = to_string(options.weights);
  bench.file_bytes = artifact.file_bytes();
  bench.kv = planned.flags.kv;
  bench.cost = model_cost(artifact, planned.cache.cache.policy);
  bench.depths_left_out = planned.depths_left_out;

  const std::string name = fmt::format("{} {}", bench.id, bench.scheme);
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar packing(name + ": packing weights", ProgressUnit::bytes);
    options.progress = [&](std::uint64_t done, std::uint64_t total) {
      packing.update(done, total);
    };
    KIPP_TRY(backend->load(artifact, planned.cache.cache, options));
    packing.finish();
  }
  bench.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  bench.backend = backend->info().name;
  bench.threads = backend->info().threads;

  KIPP_TRY(measure_peaks(backend->info(), bench.peaks));
  ProgressBar progress(name, ProgressUnit::items);
  const std::uint64_t total =
      planned.cases.size() * static_cast<std::uint64_t>(settings.repetitions);
  progress.update(0, total);
  KIPP_TRY_ASSIGN(benchmark, Benchmark::create(*backend, planned.cache, settings.seed));
  KIPP_TRY(benchmark.run({BenchmarkKind::decode, 1, 0, 1}, &Interrupt::flag()));
  std::uint64_t done = 0;
  for (const BenchmarkCase& what : planned.cases) {
    BenchmarkResult result{.what = what,
                           .cost = cost_of(what, bench.cost, backend->info().max_step_tokens),
                           .seconds = {}};
    for (int i = 0; i < settings.repetitions; ++i) {
      const auto seconds = benchmark.run(what, &Interrupt::flag());
      if (!seconds) {
        if (!result.seconds.empty()) bench.results.push_back(std::move(result));
        return tl::unexpected(seconds.error());
      }
      result.seconds.push_back(*seconds);
      progress.update(++done, total);
    }
    bench.results.push_back(std::move(result));
  }
  KIPP_TRY(measure_peaks(backend->info(), bench.peaks));
  progress.finish();
  return {};
}

Result<void> write_files(const BenchFlags& flags, const BenchRun& run) {
  if (flags.json) KIPP_TRY(write_text_file(*flags.json, to_json(run).dump(2) + "\n"));
  if (flags.csv) KIPP_TRY(write_text_file(*flags.csv, to_csv(run)));
  return {};
}

Result<void> bench(const BenchFlags& flags) {
  KIPP_TRY_ASSIGN(settings, read_settings(flags));
  KIPP_TRY_ASSIGN(models, plan(flags, settings));
  for (const auto& path : {flags.json, flags.csv}) {
    if (path) KIPP_TRY(check_writable(*path));
  }
  BenchRun run{.date = utc_now(),
               .commit = std::string(build_commit()),
               .cpu = cpu_name(),
               .repetitions = settings.repetitions,
               .seed = settings.seed,
               .interrupted = false,
               .models = {}};
  const Interrupt interrupt;
  Result<void> outcome;
  for (const PlannedModel& planned : models) {
    BenchedModel measured;
    outcome = bench_model(planned, settings, measured);
    if (!measured.results.empty()) {
      if (!write_out((run.models.empty() ? "" : "\n") + bench_table(measured))) {
        return fail(ErrorCode::io, "standard output: cannot write");
      }
      run.models.push_back(std::move(measured));
    }
    if (!outcome) break;
  }
  run.interrupted = !outcome && outcome.error().code == ErrorCode::interrupted;
  KIPP_TRY(write_files(flags, run));
  return outcome;
}

void add_list(CLI::App& command, const char* name, Strings& values, const char* help) {
  command.add_option(name, values, help)
      ->type_name("NUMBERS")
      ->delimiter(',')
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure prefill and decode speed, beside the machine's own.");
  static BenchFlags flags;
  command
      ->add_option("--model", flags.models,
                   "A model file, or the id of a converted checkpoint. Repeatable. Default: the "
                   "demo checkpoint.")
      ->type_name("FILE|ID")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("--scheme", flags.schemes,
                   "Of an id: bf16 (default) or a quantized scheme; several, separated by commas.")
      ->delimiter(',')
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_list(*command, "--prefill", flags.prefill,
           "Lengths of prompts to read; 0: none. Default: 512.");
  command->add_option("--decode", flags.decode, "Tokens to write in each repetition; 0: none.")
      ->type_name("NUMBER")
      ->capture_default_str();
  add_list(*command, "--depth", flags.depths,
           "Positions cached before. Default: 0, 1024, 4096, 16384, as far as the checkpoint's "
           "context goes.");
  add_list(*command, "--batch", flags.batches,
           "Sequences that decode side by side. Default: 1, 2, 4, 8, 16, 32.");
  command
      ->add_option("--batch-depth", flags.batch_depth,
                   "Positions cached before, of each sequence of a batch.")
      ->type_name("NUMBER")
      ->capture_default_str();
  command->add_option("--repetitions", flags.repetitions, "Of everything; the median is reported.")
      ->type_name("NUMBER")
      ->capture_default_str();
  command->add_option("--seed", flags.seed, "Of the random tokens and the random cache.")
      ->type_name("NUMBER")
      ->capture_default_str();
  add_compute_flags(*command, flags.compute);
  command->add_option("--json", flags.json, "Write everything to this file as JSON.")
      ->type_name("FILE");
  command->add_option("--csv", flags.csv, "Write a line per measurement to this file.")
      ->type_name("FILE");
  command->callback([&exit_code] {
    const auto done = bench(flags);
    exit_code = done ? 0 : report_error("bench", done.error());
  });
}

}  // namespace kipp
