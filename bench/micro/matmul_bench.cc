// The products of one qwen3-0.6b layer and its head: packed bytes against the machine's read
// bandwidth, operations against its multiply-add peak, both measured first in the same run. For few
// tokens the weights rotate through memory far beyond the caches, as they do in a step.
//
//   GB/s, of_read     packed bytes per second, and their share of the read bandwidth
//   GF/s, of_peak     operations per second, and their share of the multiply-add peak
//
// "step" is a whole step: 28 layers and the head. Figures are of the fastest repetition, since a
// neighbour can only make one slower. --threads=N (all cores), --target=AVX2 forces an instruction
// set, --mapped leaves weights as the artifact has them; everything else is Google Benchmark's.
#include <benchmark/benchmark.h>
#include <hwy/targets.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backend/cpu/matmul.h"
#include "backend/machine_peaks.h"
#include "base/huge_buffer.h"
#include "base/rng.h"
#include "base/thread_pool.h"

namespace kipp::cpu {
namespace {

constexpr int kMaxTokens = 512;
constexpr int kLayers = 28;
constexpr std::size_t kWeightMemory = std::size_t{640} << 20;

struct Shape {
  const char* name;
  int rows;
  int cols;
};
constexpr Shape kLayer[] = {
    {"qkv", 4096, 1024}, {"out", 1024, 2048}, {"gate_up", 6144, 1024}, {"down", 1024, 3072}};
constexpr Shape kHead = {"head", 151936, 1024};

// Takes the value of --name=value out of the command line.
std::string take_flag(int& argc, char** argv, std::string_view name) {
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

struct Bench {
  std::unique_ptr<ThreadPool> pool;
  MatmulScratch scratch;
  HugeBuffer weights;
  HugeBuffer inputs;
  HugeBuffer outputs;
  double read_bandwidth = 0;
  double multiply_add = 0;
  bool mapped = false;
  std::size_t next = 0;  // where the next matrix is taken from `weights`

  // The next matrix of a shape. Any bytes do; these read as scales, biases and BF16 values that are
  // neither denormal nor infinite.
  PackedMatrix take(Scheme scheme, const Shape& shape) {
    PackedMatrix matrix = {.scheme = scheme, .rows = shape.rows, .cols = shape.cols};
    StackedMatrix stack;
    stack.n_parts = 1;
    stack.parts[0] = {weights.bytes().data(), scheme, shape.rows, shape.cols};
    const std::size_t bytes = packed_bytes(stack);
    if (next + bytes > weights.bytes().size()) next = 0;
    stack.parts[0].data = weights.bytes().data() + next;
    if (mapped) {
      matrix.mapped = stack;
    } else {
      matrix.panels = stack.parts[0].data;
    }
    next += bytes;
    return matrix;
  }

  Rows rows(const HugeBuffer& buffer, int tokens, int cols) const {
    return {reinterpret_cast<float*>(buffer.bytes().data()), tokens, cols};
  }
};

using Clock = std::chrono::steady_clock;

void report(benchmark::State& state, const Bench& bench, double best, double bytes, double flops) {
  state.counters["GB/s"] = bytes / best * 1e-9;
  state.counters["of_read"] = bytes / best / bench.read_bandwidth;
  state.counters["GF/s"] = flops / best * 1e-9;
  state.counters["of_peak"] = flops / best / bench.multiply_add;
}

// Runs the products once per iteration.
void run(benchmark::State& state, Bench& bench, Scheme scheme, const std::vector<Shape>& shapes,
         Scheme head_scheme, int tokens) {
  double best = 1e9;
  double bytes = 0;
  double flops = 0;
  for (auto _ : state) {
    double seconds = 0;
    bytes = flops = 0;
    for (const Shape& shape : shapes) {
      const PackedMatrix w =
          bench.take(&shape == &shapes.back() && shapes.size() > 1 ? head_scheme : scheme, shape);
      const auto start = Clock::now();
      matmul(*bench.pool, bench.scratch, bench.rows(bench.outputs, tokens, shape.rows),
             bench.rows(bench.inputs, tokens, shape.cols), w, Write::set);
      seconds += std::chrono::duration<double>(Clock::now() - start).count();
      const double size = static_cast<double>(shape.rows) * static_cast<double>(shape.cols);
      bytes += size / kQuantBlock * static_cast<double>(row_bytes(w.scheme, kQuantBlock));
      flops += 2 * size * tokens;
    }
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
  }
  report(state, bench, best, bytes, flops);
}

void add(Bench& bench, Scheme scheme, const std::string& name, const std::vector<Shape>& shapes) {
  for (const int tokens : {1, 2, 4, 8, 32, 512}) {
    benchmark::RegisterBenchmark(fmt::format("{}/{}/{}", to_string(scheme), name, tokens).c_str(),
                                 [&bench, scheme, shapes, tokens](benchmark::State& state) {
                                   run(state, bench, scheme, shapes, Scheme::bf16, tokens);
                                 })
        ->UseManualTime()
        ->MinTime(0.3);
  }
}

void fill(const HugeBuffer& buffer, ThreadPool& pool, std::uint16_t (*value)(std::uint64_t)) {
  auto* words = reinterpret_cast<std::uint16_t*>(buffer.bytes().data());
  pool.parallel_for(static_cast<int>(buffer.bytes().size() / 2), [&](int begin, int end, int) {
    for (int i = begin; i < end; ++i) words[i] = value(static_cast<std::uint64_t>(i));
  });
}

int run_all(int argc, char** argv) {
  const std::string threads = take_flag(argc, argv, "threads");
  const std::string target = take_flag(argc, argv, "target");
  const std::string mapped = take_flag(argc, argv, "mapped");
  if (!target.empty()) {
    std::int64_t chosen = 0;
    for (const std::int64_t t : hwy::SupportedAndGeneratedTargets()) {
      if (target == hwy::TargetName(t)) chosen = t;
    }
    if (chosen == 0) {
      std::fprintf(stderr, "--target: this CPU or build has no %s\n", target.c_str());
      return 2;
    }
    hwy::SetSupportedTargetsForTest(chosen);
  }
  const int n_threads = threads.empty() ? static_cast<int>(std::thread::hardware_concurrency())
                                        : std::atoi(threads.c_str());
  Bench bench;
  bench.mapped = mapped == "1";
  bench.pool = or_die(ThreadPool::create(n_threads));
  bench.scratch = or_die(MatmulScratch::create(n_threads, kMaxTokens, 3072));
  bench.weights = or_die(HugeBuffer::create(kWeightMemory));
  bench.inputs = or_die(HugeBuffer::create(std::size_t{kMaxTokens} * 3072 * 4));
  bench.outputs =
      or_die(HugeBuffer::create(std::size_t{kMaxTokens} * std::size_t{151936} * sizeof(float)));
  fill(bench.weights, *bench.pool,
       [](std::uint64_t i) { return static_cast<std::uint16_t>(0x2c00u | (mix64(i) & 0x3ffu)); });
  fill(bench.inputs, *bench.pool, [](std::uint64_t i) {  // FP32 between -2 and 2
    const std::uint64_t bits = mix64(i);
    return static_cast<std::uint16_t>(i % 2 == 0 ? bits
                                                 : (bits & 0x8000u) | 0x3f00u | (bits & 0x7fu));
  });
  bench.read_bandwidth = or_die(measure_read_bandwidth(*bench.pool, std::size_t{512} << 20, 12));
  bench.multiply_add = measure_multiply_add(*bench.pool, 40);
  std::printf("%d threads: reads %.1f GB/s, multiply-add peak %.1f GFLOP/s\n", n_threads,
              bench.read_bandwidth * 1e-9, bench.multiply_add * 1e-9);
  std::fflush(stdout);
  for (const Scheme scheme :
       {Scheme::bf16, Scheme::q8_0, Scheme::affine4_gs32, Scheme::scale4_gs32}) {
    for (const Shape& shape : kLayer) add(bench, scheme, shape.name, {shape});
    if (scheme == Scheme::bf16) add(bench, scheme, kHead.name, {kHead});
    std::vector<Shape> step;
    for (int l = 0; l < kLayers; ++l) step.insert(step.end(), std::begin(kLayer), std::end(kLayer));
    step.push_back(kHead);
    add(bench, scheme, "step", step);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace kipp::cpu

int main(int argc, char** argv) { return kipp::cpu::run_all(argc, argv); }
