// What kernel benchmarks share: their own flags, and the machine's peaks, measured in the same run.
#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "backend/machine_peaks.h"
#include "base/thread_pool.h"
#include "base/types.h"

namespace kipp::bench {

// Takes the value of --name=value out of the command line, so that Google Benchmark sees the rest.
inline std::string take_flag(int& argc, char** argv, std::string_view name) {
  const std::string prefix = "--" + std::string(name) + "=";
  std::string value;
  int kept = 0;
  for (int i = 0; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with(prefix)) {
      value = argv[i] + prefix.size();
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  return value;
}

template <class T>
T or_die(Result<T> result) {
  if (result) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::exit(1);
}

struct Machine {
  std::unique_ptr<ThreadPool> pool;
  double read_bandwidth = 0;  // bytes per second
  double multiply_add = 0;    // operations per second
};

// --threads=N (all cores) and --target=AVX2 (the best the CPU has).
inline Machine measure_machine(int& argc, char** argv) {
  const std::string target = take_flag(argc, argv, "target");
  if (!target.empty()) {
    std::int64_t chosen = 0;
    for (const std::int64_t t : hwy::SupportedAndGeneratedTargets()) {
      if (target == hwy::TargetName(t)) chosen = t;
    }
    if (chosen == 0) {
      std::fprintf(stderr, "--target: this CPU or build has no %s\n", target.c_str());
      std::exit(2);
    }
    hwy::SetSupportedTargetsForTest(chosen);
  }
  const std::string threads = take_flag(argc, argv, "threads");
  const int n = threads.empty() ? static_cast<int>(std::thread::hardware_concurrency())
                                : std::atoi(threads.c_str());
  Machine machine;
  machine.pool = or_die(ThreadPool::create(n));
  machine.read_bandwidth =
      or_die(measure_read_bandwidth(*machine.pool, std::size_t{512} << 20, 12));
  machine.multiply_add = measure_multiply_add(*machine.pool, 40);
  std::printf("%d threads: reads %.1f GB/s, multiply-add peak %.1f GFLOP/s\n", n,
              machine.read_bandwidth * 1e-9, machine.multiply_add * 1e-9);
  std::fflush(stdout);
  return machine;
}

}  // namespace kipp::bench
