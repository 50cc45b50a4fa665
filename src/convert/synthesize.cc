#include "convert/synthesize.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "base/float16.h"
#include "base/rng.h"
#include "convert/parallel_rows.h"

namespace kipp {
namespace {

constexpr Token kFirstControlToken = 151643;  // <|endoftext|>, then the other added tokens

// One in so many ordinary tokens speaks louder, by this factor. With all rows alike, the best two
// of 151,936 random logits lie so close together that rounding decides between them; with a few
// loud rows the arg max stands out as it does in a trained model, and it never is a control token
// or a row without one. An untied head has the embedding's loud rows, each moved to the next loud
// token: greedy text walks through them, where a tied twin repeats one.
constexpr std::uint64_t kLoudOneIn = 512;
constexpr float kLoud = 6.0f;

// Close to normal with mean 0 and deviation 1, within 3.47: the sum of four uniform 16-bit
// integers.
inline float normal_like(std::uint64_t bits) {
  constexpr float kDeviation = 37837.22f;  // sqrt(4 * (2^32 - 1) / 12)
  constexpr std::int32_t kMean = 2 * 65535;
  const std::uint64_t pairs =
      (bits & 0x0000ffff0000ffffull) + ((bits >> 16) & 0x0000ffff0000ffffull);
  const auto sum = static_cast<std::int32_t>((pairs & 0xffffffffull) + (pairs >> 32));
  return static_cast<float>(sum - kMean) * (1.0f / kDeviation);
}

std::uint64_t stream_of(std::uint64_t seed, std::string_view name) {
  return draw_bits(seed, XXH3_64bits(name.data(), name.size()));
}

// The loud rows in ascending order; the same in the embedding and in an untied head.
std::vector<int> loud_rows(std::uint64_t seed) {
  std::vector<int> rows;
  for (int row = 0; row < kFirstControlToken; ++row) {
    if (draw_bits(~seed, static_cast<std::uint64_t>(row)) % kLoudOneIn == 0) rows.push_back(row);
  }
  return rows;
}

}  // namespace

Result<const Checkpoint*> find_synthetic(std::string_view name) {
  std::string known;
  for (const Checkpoint& entry : synthetic_checkpoints()) {
    const std::string_view shape = entry.repository.substr(entry.repository.find('/') + 1);
    if (shape == name) return &entry;
    known += known.empty() ? "" : ", ";
    known += shape;
  }
  return fail(ErrorCode::invalid, "shape: expected one of {}; found \"{}\"", known, name);
}

RowSource synthetic_rows(const Checkpoint& checkpoint, std::uint64_t seed, int threads) {
  // What the layers add to the residual stream, all together: half the size of a loud embedding, so
  // that both the token and its context decide.
  const ModelConfig& config = checkpoint.config;
  const float residual =
      0.5f * kLoud /
      std::sqrt(2.0f * static_cast<float>(config.layers) * static_cast<float>(config.hidden));
  return [seed, threads, residual, loud = loud_rows(stream_of(seed, checkpoint.repository))](
             std::string_view name, int first_row, int n_rows, int cols,
             std::span<std::uint16_t> out) -> Result<void> {
    const std::uint64_t own_stream = stream_of(seed, name);
    const auto width = static_cast<std::size_t>(cols);
    if (name.ends_with("norm.weight")) {
      for (std::size_t i = 0; i < width; ++i) {
        out[i] = f32_to_bf16(1.0f + 0.1f * normal_like(draw_bits(own_stream, i)));
      }
      return {};
    }
    const bool head = name == "output.weight";
    const bool vocabulary_rows = head || name == "token_embd.weight";
    const bool into_residual =
        name.ends_with("attn_output.weight") || name.ends_with("ffn_down.weight");
    // Products of unit-size inputs stay of unit size; IEEE square roots are exact everywhere.
    const float unit = (into_residual ? residual : 1.0f) / std::sqrt(static_cast<float>(cols));
    parallel_rows(n_rows, threads, [&](int first, int count) {
      for (int i = first; i < first + count; ++i) {
        int source_row = first_row + i;
        std::uint64_t stream = own_stream;
        float scale = unit;
        const auto at = std::lower_bound(loud.begin(), loud.end(), source_row);
        if (vocabulary_rows && at != loud.end() && *at == source_row) {
          scale *= kLoud;
          if (head) {  // answers to the embedding of the loud row before it
            source_row = at == loud.begin() ? loud.back() : *(at - 1);
            stream = stream_of(seed, "token_embd.weight");
          }
        }
        const std::uint64_t counter = static_cast<std::uint64_t>(source_row) * width;
        std::uint16_t* row = out.data() + static_cast<std::size_t>(i) * width;
        for (std::size_t col = 0; col < width; ++col) {
          row[col] = f32_to_bf16(scale * normal_like(draw_bits(stream, counter + col)));
        }
      }
    });
    return {};
  };
}

Result<void> synthesize(const std::string& path, const Checkpoint& checkpoint, std::uint64_t seed,
                        Scheme scheme, const WriteProgress& progress,
                        const std::atomic<bool>* cancel) {
  if (checkpoint.kind != CheckpointKind::synthetic) {
    return fail(ErrorCode::invalid, "checkpoint: expected a synthetic shape, found {}",
                checkpoint.id);
  }
  const ArtifactSource source{std::string(checkpoint.repository), fmt::format("seed-{}", seed), {}};
  const auto threads = static_cast<int>(std::thread::hardware_concurrency());
  return write_artifact(path, checkpoint, scheme, source, synthetic_rows(checkpoint, seed, threads),
                        progress, cancel);
}

}  // namespace kipp
