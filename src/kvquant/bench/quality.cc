// What quantization costs, as CSV: generated rows through a backend, for every scheme worth asking
// about and every width its codes can be read at. tools/kvquant_report.py makes the tables and
// plots of README.md of it, and the Python tests hold the figures to their targets.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numbers>
#include <span>
#include <string_view>
#include <vector>

#include "kvquant/codec.h"
#include "kvquant/cpu_ref.h"
#include "kvquant/plane_arena.h"
#if KVQUANT_HIGHWAY
#include "kvquant/cpu_simd.h"
using Backend = kvquant::CpuSimdBackend;
#else
using Backend = kvquant::CpuRefBackend;
#endif

namespace kvquant {
namespace {

constexpr KvShape kShape = {8, 128};
constexpr std::size_t kRow = 8 * 128;
constexpr std::size_t kBlockElements = kBlockPositions * kRow;

// --- inputs

// SplitMix64: small, and the same on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  double uniform() {  // (0, 1)
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (static_cast<double>(z >> 12) + 0.5) * 0x1p-52;
  }

  double gaussian() {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

  double laplace() {
    const double u = uniform();
    return u < 0.5 ? std::log(2.0 * u) : -std::log(2.0 - 2.0 * u);
  }

  double student(int freedom) {
    double squares = 0;
    for (int i = 0; i < freedom; ++i) {
      const double g = gaussian();
      squares += g * g;
    }
    return gaussian() / std::sqrt(squares / freedom);
  }

 private:
  std::uint64_t state_;
};

struct Input {
  const char* name;
  double (*draw)(Random& random, std::size_t channel);
};

// In every head two channels of 128, not the same ones, are twenty times as large as the others,
// at every token: what keys look like before anything is done about it.
bool is_outlier(std::size_t channel) {
  const std::size_t head = channel / 128;
  return channel % 128 == 5 + 11 * head || channel % 128 == 70 + 7 * head;
}

constexpr Input kInputs[] = {
    {"gaussian", [](Random& r, std::size_t) { return r.gaussian(); }},
    {"laplace", [](Random& r, std::size_t) { return r.laplace(); }},
    {"student_t5", [](Random& r, std::size_t) { return r.student(5); }},
    {"outlier_channels",
     [](Random& r, std::size_t channel) { return r.gaussian() * (is_outlier(channel) ? 20 : 1); }},
};

std::vector<float> make_rows(const Input& input, std::uint64_t seed, int blocks) {
  Random random(seed);
  std::vector<float> rows(static_cast<std::size_t>(blocks * kSides) * kBlockElements);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<float>(input.draw(random, i % kRow));
  }
  return rows;
}

// --- what is measured

class Sums {
 public:
  Sums() : channel_error_(kRow), channel_energy_(kRow) {}

  // Whole rows as they went in and as they came out.
  void add(std::span<const float> in, std::span<const float> out) {
    for (std::size_t head = 0; head < in.size(); head += 128) {
      double* channel_error = channel_error_.data() + head % kRow;
      double* channel_energy = channel_energy_.data() + head % kRow;
      float largest = 0, worst = 0;
      for (std::size_t i = 0; i < 128; ++i) {
        const double x = in[head + i];
        const double found = out[head + i];
        channel_error[i] += (found - x) * (found - x);
        channel_energy[i] += x * x;
        cross_ += x * found;
        largest = std::max(largest, std::fabs(in[head + i]));
        worst = std::max(worst, std::fabs(out[head + i] - in[head + i]));
      }
      worst_ = std::max(worst_, static_cast<double>(worst / largest));
    }
  }

  // Squared error over squares.
  double mse() const { return total(channel_error_) / total(channel_energy_); }
  // The same of each channel for itself, then their mean: what ordinary channels pay for others.
  double channel_mse() const {
    double sum = 0;
    for (std::size_t c = 0; c < kRow; ++c) sum += channel_error_[c] / channel_energy_[c];
    return sum / kRow;
  }
  // What a dot product with the original is multiplied by: below 1 where reading shrinks.
  double gain() const { return cross_ / total(channel_energy_); }
  // The largest error, as a share of the largest magnitude in its head's row.
  double worst() const { return worst_; }

 private:
  static double total(const std::vector<double>& parts) {
    double sum = 0;
    for (const double part : parts) sum += part;
    return sum;
  }

  std::vector<double> channel_error_, channel_energy_;
  double cross_ = 0, worst_ = 0;
};

struct Reading {
  BitWidth width;
  const char* levels;  // "own": the codes' width; "centres" or "fitted": top bits of wider codes
  Sums sums;
};

std::vector<Reading> readings_of(const QuantScheme& scheme) {
  if (scheme.bits == BitWidth::bf16) return {{BitWidth::bf16, "own", {}}};
  std::vector<Reading> readings;
  for (const BitWidth width : {BitWidth::int8, BitWidth::int4, BitWidth::int2}) {
    if (width > scheme.bits) continue;
    readings.push_back({width, width == scheme.bits ? "own" : "centres", {}});
    if (width == BitWidth::int2 && has_fitted_pair(scheme)) {
      readings.push_back({width, "fitted", {}});
    }
  }
  return readings;
}

// Int2 at the centres of the cells of wider codes: what a fitted pair is better than. No backend
// reads so, hence from the planes themselves.
void read_centres(const BlockLayout& layout, const KvBlock& block, Side side, float* out) {
  const QuantScheme& scheme = layout.scheme().side(side);
  const int width = layout.shape().head_width;
  const Plane plane = layout.range_plane(side);
  const PlaneLayout& parts = layout.plane(side, plane);
  const std::uint8_t* params = block.plane(side, plane);
  for (int position = 0; position < kBlockPositions; ++position) {
    for (int head = 0; head < layout.shape().kv_heads; ++head, out += width) {
      const std::uint8_t* codes = block.plane(side, Plane::hi2) +
                                  static_cast<std::size_t>(head * kBlockPositions + position) *
                                      layout.plane(side, Plane::hi2).row_bytes;
      for (int c = 0; c < width; ++c) {
        const std::size_t group = layout.group_of(side, position, head, c);
        GroupParams pair;
        std::memcpy(&pair.scale, params + parts.scales + 2 * group, 2);
        if (!scheme.symmetric) std::memcpy(&pair.offset, params + parts.offsets + 2 * group, 2);
        out[c] =
            fp16_to_float(pair.offset) +
            fp16_to_float(pair.scale) * level_of(scheme, BitWidth::int2, get2(codes, width, c));
      }
      if (scheme.hadamard) hadamard(out, width);
    }
  }
}

// --- bits

double per_element(std::size_t bytes) {
  return static_cast<double>(bytes) * 8 / static_cast<double>(kBlockElements);
}

// Codes and parameters that a read touches. The range of codes and the int2 pair are separate
// parameters, and no read needs both.
double bits_read(const BlockLayout& layout, const Reading& reading) {
  const bool fitted = std::strcmp(reading.levels, "fitted") == 0;
  std::size_t bytes = 0;
  for (const Plane plane : {Plane::hi2, Plane::mid2, Plane::low4, Plane::bf16}) {
    if (!planes_for(reading.width).has(plane)) continue;
    const PlaneLayout& parts = layout.plane(Side::key, plane);
    const bool pair_unused = plane == Plane::hi2 && has_fitted_pair(layout.scheme().key) && !fitted;
    bytes += pair_unused ? parts.scales : parts.bytes;
  }
  if (!fitted && reading.width == BitWidth::int2 && layout.range_plane(Side::key) != Plane::hi2) {
    const PlaneLayout& parts = layout.plane(Side::key, layout.range_plane(Side::key));
    bytes += parts.bytes - parts.scales;
  }
  return per_element(bytes);
}

// What memory holds once every plane that a read at `width` does not need is freed.
double bits_stored(const BlockLayout& layout, BitWidth width) {
  return per_element(layout.bytes(Side::key, planes_for(width)));
}

// --- the run

bool report(const Status& status) {
  if (!status.ok()) std::fprintf(stderr, "kvquant_quality: %s\n", status.message());
  return status.ok();
}

// Every block of `rows` through the backend: even blocks as keys, odd ones as values.
bool measure(KvBackend& backend, const Input& input, const QuantScheme& scheme,
             std::span<const float> rows) {
  const Expected<BlockLayout> made = BlockLayout::make(kShape, {scheme, scheme});
  if (!made.ok()) return report(made.status());
  const BlockLayout& layout = made.value();
  PlaneArena arena;
  PlaneArena::Counts counts;
  for (auto& side : counts.planes) {
    for (int& count : side) count = 1;
  }
  if (!report(arena.reserve(layout, counts))) return false;
  KvBlock block;
  for (const Side side : {Side::key, Side::value}) {
    for (const Plane plane : {Plane::hi2, Plane::mid2, Plane::low4, Plane::bf16}) {
      if (layout.planes(side).has(plane)) block.plane(side, plane) = arena.take(side, plane);
    }
  }
  std::vector<Reading> readings = readings_of(scheme);
  std::vector<float> out[kSides] = {std::vector<float>(kBlockElements),
                                    std::vector<float>(kBlockElements)};
  for (std::size_t at = 0; at < rows.size(); at += kSides * kBlockElements) {
    const std::span<const float> in[kSides] = {rows.subspan(at, kBlockElements),
                                               rows.subspan(at + kBlockElements, kBlockElements)};
    block.positions = 0;
    if (!report(backend.quantize_append(layout, in[0], in[1], block))) return false;
    for (Reading& reading : readings) {
      if (reading.width == BitWidth::int2 && std::strcmp(reading.levels, "centres") == 0) {
        read_centres(layout, block, Side::key, out[0].data());
        read_centres(layout, block, Side::value, out[1].data());
      } else {
        const Tier tier = {reading.width, reading.width};
        if (!report(backend.dequantize_for_attention(layout, block, tier, 0, kBlockPositions,
                                                     out[0], out[1]))) {
          return false;
        }
      }
      for (int side = 0; side < kSides; ++side) reading.sums.add(in[side], out[side]);
    }
  }
  for (const Reading& reading : readings) {
    std::printf("%s,%s,%s,%d,%d,%d,%d,%s,%s,%.6g,%.6g,%.6g,%.6g,%.6f,%.6g\n", input.name,
                name_of(scheme.bits),
                scheme.grouping == Grouping::per_token ? "per_token" : "per_channel",
                scheme.group_size, scheme.symmetric, scheme.hadamard, scheme.clip_percent,
                name_of(reading.width), reading.levels, bits_read(layout, reading),
                bits_stored(layout, reading.width), reading.sums.mse(), reading.sums.channel_mse(),
                reading.sums.gain(), reading.sums.worst());
  }
  return true;
}

// Every group size, with and without symmetry and rotation; every share of the range for the group
// size that most would take, a few for the others.
std::vector<QuantScheme> schemes() {
  struct Group {
    Grouping grouping;
    int size;
    std::vector<int> clips;
  };
  const std::vector<Group> groups = {
      {Grouping::per_token, 32, {100, 90, 80}},
      {Grouping::per_token, 64, {100, 90, 80}},
      {Grouping::per_token, 128, {100, 95, 90, 85, 80, 75, 70, 65, 60}},
      {Grouping::per_token, 1024, {100, 90, 80}},
      {Grouping::per_channel, 32, {100, 90, 80}},
  };
  QuantScheme plain;
  plain.bits = BitWidth::bf16;
  std::vector<QuantScheme> all = {plain};
  for (const BitWidth bits : {BitWidth::int8, BitWidth::int4, BitWidth::int2}) {
    for (const Group& group : groups) {
      for (const int clip : group.clips) {
        if (clip < 100 && bits == BitWidth::int8) continue;
        for (const bool symmetric : {false, true}) {
          for (const bool hadamard : {false, true}) {
            all.push_back(
                {bits, group.grouping, group.size, symmetric, hadamard, BitWidth::int2, clip});
          }
        }
      }
    }
  }
  return all;
}

struct Options {
  int blocks = 64;  // pairs of key and value blocks for each input: 65,536 elements each
  std::uint64_t seed = 1;
  std::string_view input;  // every one when empty
};

template <class Number>
bool parse(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse(int count, char** arguments, Options* options) {
  for (int i = 1; i < count; i += 2) {
    const std::string_view name = arguments[i];
    const std::string_view value = i + 1 < count ? arguments[i + 1] : "";
    bool known = false;
    if (name == "--blocks") known = parse(value, &options->blocks) && options->blocks > 0;
    if (name == "--seed") known = parse(value, &options->seed);
    if (name == "--input") {
      options->input = value;
      for (const Input& input : kInputs) known = known || value == input.name;
    }
    if (known) continue;
    std::fprintf(stderr,
                 "kvquant_quality: cannot use %s '%s'\n"
                 "usage: kvquant_quality [--blocks COUNT] [--seed NUMBER] [--input NAME]\n",
                 arguments[i], i + 1 < count ? arguments[i + 1] : "");
    return false;
  }
  return true;
}

int run(const Options& options) {
  Backend backend;
  std::printf(
      "input,bits,grouping,group_size,symmetric,hadamard,clip_percent,width,levels,bits_read,"
      "bits_stored,mse,channel_mse,gain,worst\n");
  for (const Input& input : kInputs) {
    if (!options.input.empty() && options.input != input.name) continue;
    const std::vector<float> rows = make_rows(input, options.seed, options.blocks);
    for (const QuantScheme& scheme : schemes()) {
      if (!measure(backend, input, scheme, rows)) return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace kvquant

int main(int count, char** arguments) {
  kvquant::Options options;
  if (!kvquant::parse(count, arguments, &options)) return 2;
  return kvquant::run(options);
}
