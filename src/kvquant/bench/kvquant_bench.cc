// How fast one core quantizes and reads back, beside what the memory itself allows. Every figure
// counts bytes of FP32, the input of quantize_append or the output of dequantize. Two working sets:
// "cache" is one block, 256 KiB of FP32 that stay in the second cache level; "memory" is 1024 of
// them, 256 MiB of FP32 and the planes beside it, far beyond any cache.
//
//   of_write  share of what writing as many FP32 bytes takes, by the faster of memset and streaming
//   of_copy   share of what memcpy moves, read and written bytes both counted
//
// --target=AVX2 forces an instruction set; everything else is Google Benchmark's.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "kvquant/kvquant.h"

namespace kvquant {
namespace {

constexpr KvShape kShape = {8, 128};
constexpr std::size_t kSideElements = kBlockPositions * std::size_t{8} * 128;
constexpr std::size_t kBlockBytes = kSides * kSideElements * sizeof(float);

enum class Set { cache, memory };

std::size_t blocks_in(Set set) { return set == Set::cache ? 1 : 1024; }
const char* name_of(Set set) { return set == Set::cache ? "cache" : "memory"; }

// Aligned to a cache line and touched, so that no page is missing when time is taken.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes)
      : memory_(static_cast<std::uint8_t*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64))),
        size_(bytes) {
    if (memory_ == nullptr) std::abort();
    std::memset(memory_.get(), 1, bytes);
  }
  std::uint8_t* data() const { return memory_.get(); }
  float* floats() const { return reinterpret_cast<float*>(memory_.get()); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::uint8_t* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::uint8_t, Free> memory_;
  std::size_t size_;
};

// --- what the memory allows

void write_plain(const Buffer& to) {
  std::memset(to.data(), 2, to.size());
  benchmark::ClobberMemory();
}

void write_streaming(const Buffer& to) {
#if defined(__SSE2__)
  const __m128i value = _mm_set1_epi8(2);
  for (std::size_t i = 0; i < to.size(); i += sizeof value) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to.data() + i), value);
  }
  _mm_sfence();
  benchmark::ClobberMemory();
#else
  write_plain(to);
#endif
}

void copy(const Buffer& to, const Buffer& from) {
  std::memcpy(to.data(), from.data(), to.size());
  benchmark::ClobberMemory();
}

// By processor time, as the benchmarks themselves are counted.
template <class Work>
double best_bytes_per_second(std::size_t bytes, const Work& work) {
  double best = 0;
  const std::size_t times = std::max<std::size_t>(1, (std::size_t{1} << 28) / bytes);
  for (int run = 0; run < 7; ++run) {
    const std::clock_t start = std::clock();
    for (std::size_t i = 0; i < times; ++i) work();
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    best = std::max(best, static_cast<double>(bytes * times) / seconds);
  }
  return best;
}

struct Bandwidth {
  double write, copy;  // bytes per second
};

// Measured once for each working set.
const Bandwidth& bandwidth(Set set) {
  static const auto measure = [](Set of) {
    const Buffer to(blocks_in(of) * kBlockBytes);
    const Buffer from(to.size());
    const double plain = best_bytes_per_second(to.size(), [&] { write_plain(to); });
    const double streaming = best_bytes_per_second(to.size(), [&] { write_streaming(to); });
    return Bandwidth{std::max(plain, streaming),
                     best_bytes_per_second(2 * to.size(), [&] { copy(to, from); })};
  };
  static const Bandwidth measured[] = {measure(Set::cache), measure(Set::memory)};
  return measured[static_cast<int>(set)];
}

// --- blocks

// Rows and planes of a working set.
class Blocks {
 public:
  Blocks(const KvScheme& scheme, Set set)
      : layout_(BlockLayout::make(kShape, scheme).value()),
        count_(blocks_in(set)),
        floats_(count_ * kBlockBytes),
        planes_(count_ * block_bytes()),
        blocks_(count_) {
    std::uint8_t* at = planes_.data();
    for (KvBlock& block : blocks_) {
      for (const Side side : {Side::key, Side::value}) {
        for (const Plane plane : {Plane::hi2, Plane::mid2, Plane::low4, Plane::bf16}) {
          if (!layout_.planes(side).has(plane)) continue;
          block.plane(side, plane) = at;
          at += layout_.plane(side, plane).bytes;
        }
      }
    }
    fill();
  }

  const BlockLayout& layout() const { return layout_; }
  std::size_t count() const { return count_; }
  std::size_t float_bytes() const { return floats_.size(); }
  KvBlock& block(std::size_t i) { return blocks_[i]; }
  std::span<float> rows(std::size_t i, Side side) {
    const std::size_t at = kSides * i + static_cast<std::size_t>(side);
    return {floats_.floats() + at * kSideElements, kSideElements};
  }

  void append(KvBackend& backend, std::size_t i, std::size_t pieces) {
    blocks_[i].positions = 0;
    const std::size_t size = kSideElements / pieces;
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      const Status status =
          backend.quantize_append(layout_, rows(i, Side::key).subspan(piece * size, size),
                                  rows(i, Side::value).subspan(piece * size, size), blocks_[i]);
      if (!status.ok()) std::abort();
    }
  }

 private:
  std::size_t block_bytes() const {
    return layout_.bytes(Side::key, layout_.planes(Side::key)) +
           layout_.bytes(Side::value, layout_.planes(Side::value));
  }

  // Gaussian rows. The blocks beyond the first few repeat them: no time depends on the values.
  void fill() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const std::size_t drawn = std::min<std::size_t>(count_, 4);
    for (std::size_t i = 0; i < drawn * kSides * kSideElements; ++i) {
      floats_.floats()[i] = normal(random);
    }
    for (std::size_t i = drawn; i < count_; ++i) {
      std::memcpy(rows(i, Side::key).data(), rows(i % drawn, Side::key).data(), kBlockBytes);
    }
  }

  BlockLayout layout_;
  std::size_t count_;
  Buffer floats_, planes_;
  std::vector<KvBlock> blocks_;
};

void report(benchmark::State& state, Set set, std::size_t bytes_each_time) {
  const double bytes =
      static_cast<double>(bytes_each_time) * static_cast<double>(state.iterations());
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes));
  const auto share = [&](double of) {
    return benchmark::Counter(bytes / of, benchmark::Counter::kIsRate);
  };
  state.counters["of_write"] = share(bandwidth(set).write);
  state.counters["of_copy"] = share(bandwidth(set).copy);
}

void quantize(benchmark::State& state, KvBackend& backend, const KvScheme& scheme, Set set,
              std::size_t pieces) {
  Blocks blocks(scheme, set);
  for (auto _ : state) {
    for (std::size_t i = 0; i < blocks.count(); ++i) blocks.append(backend, i, pieces);
    benchmark::ClobberMemory();
  }
  report(state, set, blocks.float_bytes());
}

void dequantize(benchmark::State& state, KvBackend& backend, const KvScheme& scheme, BitWidth width,
                Set set) {
  Blocks blocks(scheme, set);
  CpuSimdBackend writer;
  for (std::size_t i = 0; i < blocks.count(); ++i) blocks.append(writer, i, 1);
  for (auto _ : state) {
    for (std::size_t i = 0; i < blocks.count(); ++i) {
      const Status status = backend.dequantize_for_attention(
          blocks.layout(), blocks.block(i), {width, width}, 0, kBlockPositions,
          blocks.rows(i, Side::key), blocks.rows(i, Side::value));
      if (!status.ok()) std::abort();
    }
    benchmark::ClobberMemory();
  }
  report(state, set, blocks.float_bytes());
}

// --- what is measured

struct Variant {
  const char* name;
  QuantScheme scheme;
};

std::vector<Variant> variants() {
  QuantScheme int8;
  QuantScheme int4;
  int4.bits = BitWidth::int4;
  QuantScheme int8_hadamard = int8;
  int8_hadamard.hadamard = true;
  QuantScheme int4_hadamard = int4;
  int4_hadamard.hadamard = true;
  QuantScheme int8_channel = int8;
  int8_channel.grouping = Grouping::per_channel;
  int8_channel.group_size = kBlockPositions;
  return {{"int8", int8},
          {"int4", int4},
          {"int8_hadamard", int8_hadamard},
          {"int4_hadamard", int4_hadamard},
          {"int8_channel", int8_channel}};
}

CpuRefBackend oracle;
CpuSimdBackend simd;
CpuSimdBackend simd_streaming{CpuSimdBackend::Stores::streaming};

void register_bandwidth(Set set) {
  const auto add = [&](const char* name, auto&& work) {
    benchmark::RegisterBenchmark((std::string(name) + "/" + name_of(set)).c_str(), work);
  };
  add("write_memset", [set](benchmark::State& state) {
    const Buffer to(blocks_in(set) * kBlockBytes);
    for (auto _ : state) write_plain(to);
    report(state, set, to.size());
  });
  add("write_streaming", [set](benchmark::State& state) {
    const Buffer to(blocks_in(set) * kBlockBytes);
    for (auto _ : state) write_streaming(to);
    report(state, set, to.size());
  });
  add("copy_read_and_written", [set](benchmark::State& state) {
    const Buffer to(blocks_in(set) * kBlockBytes);
    const Buffer from(to.size());
    for (auto _ : state) copy(to, from);
    report(state, set, 2 * to.size());
  });
}

void register_backend(const char* name, KvBackend& backend, Set set) {
  const auto add = [&](const std::string& what, auto&& work) {
    benchmark::RegisterBenchmark((what + "/" + name_of(set) + "/" + name).c_str(), work);
  };
  for (const Variant& variant : variants()) {
    const KvScheme scheme = {variant.scheme, variant.scheme};
    const bool channel = variant.scheme.grouping == Grouping::per_channel;
    if (&backend != &simd_streaming) {
      add(std::string("quantize_append/") + variant.name,
          [=, &backend](benchmark::State& state) { quantize(state, backend, scheme, set, 1); });
    }
    for (const BitWidth width : {BitWidth::int8, BitWidth::int4, BitWidth::int2}) {
      if (width > variant.scheme.bits || (channel && width != BitWidth::int8)) continue;
      add(std::string("dequantize/") + variant.name + "_at_" + name_of(width),
          [=, &backend](benchmark::State& state) {
            dequantize(state, backend, scheme, width, set);
          });
    }
  }
  const KvScheme int8 = {variants()[0].scheme, variants()[0].scheme};
  add("dequantize/bf16", [=, &backend](benchmark::State& state) {
    dequantize(state, backend, int8, BitWidth::bf16, set);
  });
  if (&backend != &simd) return;
  add("quantize_append_row_by_row/int8", [=, &backend](benchmark::State& state) {
    quantize(state, backend, int8, set, kBlockPositions);
  });
}

int run(int count, char** arguments) {
  constexpr std::string_view kTarget = "--target=";
  int kept = 1;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (!argument.starts_with(kTarget)) {
      arguments[kept++] = arguments[i];
      continue;
    }
    const Status status =
        CpuSimdBackend::force_target(std::string(argument.substr(kTarget.size())).c_str());
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.message());
      return 2;
    }
  }
  for (const Set set : {Set::cache, Set::memory}) {
    register_bandwidth(set);
    register_backend("simd", simd, set);
  }
  register_backend("simd_streaming", simd_streaming, Set::memory);
  register_backend("oracle", oracle, Set::cache);
  benchmark::AddCustomContext("kvquant_target", CpuSimdBackend::target());
  benchmark::Initialize(&kept, arguments);
  if (benchmark::ReportUnrecognizedArguments(kept, arguments)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace kvquant

int main(int count, char** arguments) { return kvquant::run(count, arguments); }
