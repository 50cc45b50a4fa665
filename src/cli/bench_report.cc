#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace kipp {
namespace {

using Json = nlohmann::ordered_json;

// A result in the units of the report.
struct Figures {
  double repetition = 0;  // seconds, the median
  double median = 0;      // tokens per second in that time
  double least = 0;
  double most = 0;
  double bytes_rate = 0;  // per second, at the median
  double flops_rate = 0;
  // Of the machine's, where these are known.
  std::optional<double> bytes_share, flops_share;

  Figures(const BenchmarkResult& result, const MachinePeaks& peaks) {
    const std::vector<double> rates = result.rates();
    repetition = result.median_seconds();
    median = static_cast<double>(result.what.batch) * result.what.tokens / repetition;
    least = std::ranges::min(rates);
    most = std::ranges::max(rates);
    bytes_rate = result.cost.bytes / repetition;
    flops_rate = result.cost.flops / repetition;
    if (peaks.read_bytes > 0) bytes_share = bytes_rate / peaks.read_bytes;
    if (peaks.multiply_add > 0) flops_share = flops_rate / peaks.multiply_add;
  }
  double spread() const { return (most - least) / median; }
};

// A name as a CSV field.
std::string field(std::string_view text) {
  if (text.find_first_of(",\"\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

// Counts, which doubles hold exactly.
std::uint64_t whole(double count) { return static_cast<std::uint64_t>(count); }

Json known(std::optional<double> figure) { return figure ? Json(*figure) : Json(); }
std::optional<double> measured(double peak) {
  return peak > 0 ? std::optional(peak) : std::nullopt;
}

Json to_json(const BenchmarkResult& result, const MachinePeaks& peaks) {
  const Figures figures(result, peaks);
  return {{"test", to_string(result.what.kind)},
          {"tokens", result.what.tokens},
          {"depth", result.what.depth},
          {"batch", result.what.batch},
          {"tokens_per_second", figures.median},
          {"tokens_per_second_min", figures.least},
          {"tokens_per_second_max", figures.most},
          {"seconds", result.seconds},
          {"bytes", whole(result.cost.bytes)},
          {"flops", whole(result.cost.flops)},
          {"bytes_per_second", figures.bytes_rate},
          {"flops_per_second", figures.flops_rate},
          {"share_of_read_bandwidth", known(figures.bytes_share)},
          {"share_of_multiply_add_peak", known(figures.flops_share)}};
}

std::string percent(std::optional<double> share) {
  return share ? fmt::format("{:.0f} %", *share * 100) : "-";
}

// A figure of a CSV line; empty where it is not known.
std::string csv(std::optional<double> figure, int digits) {
  return figure ? fmt::format("{:.{}f}", *figure, digits) : "";
}

}  // namespace

std::string bench_table(const BenchedModel& model) {
  std::string text =
      fmt::format("{} ({}) {}, backend {} on {} {}, weights {}, kv {}", model.id, model.kind,
                  model.scheme, model.backend, model.threads,
                  model.threads == 1 ? "thread" : "threads", model.weights, model.kv);
  if (measured(model.peaks.read_bytes)) {
    text += fmt::format("; reads {:.1f} GB/s, multiply-add {:.1f} GFLOP/s",
                        model.peaks.read_bytes * 1e-9, model.peaks.multiply_add * 1e-9);
  }
  text += '\n';
  text += fmt::format("{:<8} {:>6} {:>7} {:>6} {:>9} {:>9} {:>9} {:>7} {:>8} {:>7} {:>9} {:>7}\n",
                      "test", "tokens", "depth", "batch", "tok/s", "min", "max", "spread", "GB/s",
                      "of peak", "GFLOP/s", "of peak");
  for (const BenchmarkResult& result : model.results) {
    const Figures f(result, model.peaks);
    text += fmt::format(
        "{:<8} {:>6} {:>7} {:>6} {:>9.2f} {:>9.2f} {:>9.2f} {:>5.1f} % {:>8.2f} {:>7} {:>9.1f} "
        "{:>7}\n",
        to_string(result.what.kind), result.what.tokens, result.what.depth, result.what.batch,
        f.median, f.least, f.most, f.spread() * 100, f.bytes_rate * 1e-9, percent(f.bytes_share),
        f.flops_rate * 1e-9, percent(f.flops_share));
  }
  return text;
}

Json to_json(const BenchRun& run) {
  Json json{{"kipp", KIPP_VERSION},
            {"commit", run.commit},
            {"date", run.date},
            {"cpu", run.cpu},
            {"repetitions", run.repetitions},
            {"seed", run.seed},
            {"interrupted", run.interrupted}};
  json["models"] = Json::array();
  for (const BenchedModel& model : run.models) {
    Json entry{{"model", model.id},
               {"kind", model.kind},
               {"scheme", model.scheme},
               {"file", model.file},
               {"file_bytes", model.file_bytes},
               {"backend", model.backend},
               {"threads", model.threads},
               {"weights", model.weights},
               {"kv", model.kv},
               {"load_seconds", model.load_seconds},
               {"weight_bytes_per_step", whole(model.cost.decode_bytes())},
               {"kv_bytes_per_position", whole(model.cost.kv_bytes)},
               {"read_bandwidth", known(measured(model.peaks.read_bytes))},
               {"multiply_add_peak", known(measured(model.peaks.multiply_add))},
               {"depths_left_out", model.depths_left_out}};
    entry["results"] = Json::array();
    for (const BenchmarkResult& result : model.results) {
      entry["results"].push_back(to_json(result, model.peaks));
    }
    json["models"].push_back(std::move(entry));
  }
  return json;
}

std::string to_csv(const BenchRun& run) {
  std::string text =
      "date,commit,cpu,model,kind,scheme,backend,threads,weights,kv,test,tokens,depth,batch,"
      "repetitions,tokens_per_second,tokens_per_second_min,tokens_per_second_max,bytes,flops,"
      "read_bandwidth,multiply_add_peak,share_of_read_bandwidth,share_of_multiply_add_peak\n";
  for (const BenchedModel& model : run.models) {
    for (const BenchmarkResult& result : model.results) {
      const Figures f(result, model.peaks);
      text += fmt::format("{},{},{},{},{},{},{},{},{},{},", run.date, run.commit, field(run.cpu),
                          model.id, model.kind, model.scheme, model.backend, model.threads,
                          model.weights, field(model.kv));
      text += fmt::format("{},{},{},{},{},{:.4f},{:.4f},{:.4f},", to_string(result.what.kind),
                          result.what.tokens, result.what.depth, result.what.batch,
                          result.seconds.size(), f.median, f.least, f.most);
      text += fmt::format("{:.0f},{:.0f},{},{},{},{}\n", result.cost.bytes, result.cost.flops,
                          csv(measured(model.peaks.read_bytes), 0),
                          csv(measured(model.peaks.multiply_add), 0), csv(f.bytes_share, 4),
                          csv(f.flops_share, 4));
    }
  }
  return text;
}

}  // namespace kipp
