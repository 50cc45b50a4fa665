#include "convert/synthesize.h"

#include <xxhash.h>

#include <cmath>
#include <thread>

#include "base/float16.h"
#include "base/rng.h"
#include "convert/parallel_rows.h"

namespace kipp {
namespace {

constexpr Token kFirstControlToken = 151643;  // <|endoftext|>, then the other added tokens

// One in so many ordinary tokens speaks louder, by this factor. With all rows alike, the best two
// of 151,936 random logits lie so close together that rounding decides between them; with a few
// loud rows the arg max stands out as it does in a trained model, and it never is a control token
// or a row without one.
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

float row_scale(std::uint64_t seed, bool vocabulary_rows, int row, int cols) {
  // Products of unit-size inputs stay of unit size; IEEE square roots are exact everywhere.
  const float scale = 1.0f / std::sqrt(static_cast<float>(cols));
  const bool loud = vocabulary_rows && row < kFirstControlToken &&
                    draw_bits(~seed, static_cast<std::uint64_t>(row)) % kLoudOneIn == 0;
  return loud ? scale * kLoud : scale;
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
  // Loud rows are the same in the embedding and in an untied head.
  const std::uint64_t loud_seed = stream_of(seed, checkpoint.repository);
  return [seed, loud_seed, threads](std::string_view name, int first_row, int n_rows, int cols,
                                    std::span<std::uint16_t> out) -> Result<void> {
    const std::uint64_t stream = stream_of(seed, name);
    const auto width = static_cast<std::size_t>(cols);
    if (name.ends_with("norm.weight")) {
      for (std::size_t i = 0; i < width; ++i) {
        out[i] = f32_to_bf16(1.0f + 0.1f * normal_like(draw_bits(stream, i)));
      }
      return {};
    }
    const bool vocabulary_rows = name == "token_embd.weight" || name == "output.weight";
    parallel_rows(n_rows, threads, [&](int first, int count) {
      for (int i = first; i < first + count; ++i) {
        const float scale = row_scale(loud_seed, vocabulary_rows, first_row + i, cols);
        const std::uint64_t counter = static_cast<std::uint64_t>(first_row + i) * width;
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
