// What `kipp bench` measured: a table for people, JSON and CSV for programs. Every figure carries
// what it depends on: commit, processor, threads, scheme, date, and the machine's peaks in the same
// run.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/benchmark.h"

namespace kipp {

// The machine's own, beside which a speed is a share.
struct MachinePeaks {
  double read_bytes = 0;    // per second
  double multiply_add = 0;  // operations per second, two for a multiply-add
};

struct BenchedModel {
  std::string file;  // its name, without the folder
  std::string id;
  std::string kind;
  std::string scheme;
  std::string backend;
  std::string weights;
  std::string kv;
  int threads = 0;
  std::size_t file_bytes = 0;
  double load_seconds = 0;
  ModelCost cost;
  MachinePeaks peaks;
  std::vector<int> depths_left_out;  // of the default ones: the checkpoint's context is too short
  std::vector<BenchmarkResult> results;
};

struct BenchRun {
  std::string date;  // UTC, ISO 8601
  std::string commit;
  std::string cpu;
  int repetitions = 0;
  std::uint64_t seed = 0;
  bool interrupted = false;
  std::vector<BenchedModel> models;
};

std::string bench_table(const BenchedModel& model);
nlohmann::ordered_json to_json(const BenchRun& run);
std::string to_csv(const BenchRun& run);  // one line per result, names in the first

}  // namespace kipp
