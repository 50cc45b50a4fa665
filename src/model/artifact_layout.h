// What a kipp artifact of one checkpoint and scheme holds: its keys, its tensors, their order. The
// writer writes exactly this and the loader accepts nothing else, so the two cannot drift apart;
// docs/MODEL_FILE.md is its prose.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/types.h"
#include "model/checkpoints.h"
#include "model/gguf.h"
#include "model/weights.h"

namespace kipp {

inline constexpr std::uint32_t kFormatVersion = 1;
// Changes when the same source would give other bytes, not with every release.
inline constexpr std::string_view kConverterVersion = "1";

inline constexpr std::string_view kRepositoryKey = "kipp.source.repository";
inline constexpr std::string_view kRevisionKey = "kipp.source.revision";
inline constexpr std::string_view kSchemeKey = "kipp.quant.scheme";
// Parallel arrays of strings; present unless the checkpoint has no source files.
inline constexpr std::string_view kSourceFilesKey = "kipp.source.files";
inline constexpr std::string_view kSourceHashesKey = "kipp.source.sha256";

using MetadataValue = std::variant<std::uint32_t, float, bool, std::string>;

struct MetadataEntry {
  std::string_view key;
  MetadataValue value;
};

// Every key with one value, in file order. Arrays are apart: the source files vary, the vocabulary
// is pinned.
std::vector<MetadataEntry> artifact_metadata(const Checkpoint& checkpoint, Scheme scheme,
                                             std::string_view revision);

// The vocabulary arrays are the family's, the same bytes in every artifact, pinned by their hash.
struct ArrayPin {
  std::string_view key;
  GgufType element;
  std::uint64_t count;
  std::uint64_t bytes;      // of all elements as stored
  std::string_view xxh128;  // XXH3-128 of those bytes in hex
};
std::span<const ArrayPin, 3> vocabulary_pins();
inline constexpr std::size_t kTokensPin = 0;
inline constexpr std::size_t kTokenTypesPin = 1;
inline constexpr std::size_t kMergesPin = 2;

// XXH3-128 in hex, as the pins spell it.
std::string xxh128_hex(std::span<const std::byte> bytes);

// llama.cpp's kinds of tokens, as tokenizer.ggml.token_type stores them.
enum class GgufTokenType : std::int32_t { normal = 1, control = 3, user_defined = 4, unused = 5 };

enum class TensorRole : std::uint8_t { norm, embedding, projection, head };

struct TensorSpec {
  std::string name;  // "blk.0.attn_q.weight"
  TensorRole role = TensorRole::norm;
  int rows = 0;  // 1 for norms, which are stored with one dimension
  int cols = 0;

  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// In file order: the norms first, so that a loader's look at them touches a few neighbouring pages.
std::vector<TensorSpec> artifact_tensors(const ModelConfig& config);

GgmlType stored_type(TensorRole role, Scheme scheme);
std::uint64_t stored_bytes(const TensorSpec& spec, Scheme scheme);

}  // namespace kipp
