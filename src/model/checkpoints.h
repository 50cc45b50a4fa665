// The registry: every checkpoint kipp accepts, with each pinned fact. What is not here is refused.
// Facts: the Hub's files at the pinned revisions; tests/data/registry_facts.json is their copy and
// a test compares the two field by field.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/types.h"
#include "model/config.h"

namespace kipp {

enum class Variant : std::uint8_t { base, instruct, instruct_2507, thinking_2507 };

// pinned: on the Hub at a fixed revision. demo: ships with this repository. synthetic: real shapes
// with random weights, accepted only where the caller allows it.
enum class CheckpointKind : std::uint8_t { pinned, demo, synthetic };

struct PinnedFile {
  std::string_view name;
  std::int64_t bytes = 0;   // 0: not known
  std::string_view sha256;  // 64 lower-case hex digits; empty: not known
  bool verified = false;    // false: the value rests on one source or on inference
};

struct SamplingDefaults {
  bool sample = false;  // false: greedy
  float temperature = 0;
  float top_p = 1;
  int top_k = 0;
};

struct Checkpoint {
  std::string_view id;  // "qwen3-0.6b-base"
  CheckpointKind kind = CheckpointKind::pinned;
  Variant variant = Variant::base;
  std::string_view repository;  // "Qwen/Qwen3-0.6B-Base"
  std::string_view revision;    // 40 hex digits
  ModelConfig config;
  std::int64_t parameters = 0;  // distinct ones: a tied head is not counted twice
  std::span<const Token> stop_tokens;
  SamplingDefaults sampling;
  std::span<const PinnedFile> files;             // weights first, then the small files
  std::span<const std::string_view> unverified;  // which facts are, in words; empty: none
};

// All thirteen pinned checkpoints, then kipp-demo.
std::span<const Checkpoint> checkpoints();

// Looks an id up ("qwen3-0.6b", "kipp-demo"). The error lists the ids that exist.
Result<const Checkpoint*> find_checkpoint(std::string_view id);

// Looks an artifact's identity up among the pinned, demo and synthetic entries.
// Synthetic twins have the repository "synthetic/<shape>" with any revision "seed-<n>".
Result<const Checkpoint*> find_checkpoint(std::string_view repository, std::string_view revision);

// Shapes `kipp synthesize` can write: a twin of every pinned checkpoint, and the tiny ones for
// tests.
std::span<const Checkpoint> synthetic_checkpoints();

std::string_view to_string(Variant variant);
std::string_view to_string(CheckpointKind kind);

}  // namespace kipp
