// A validated model file: registry entry + GGUF -> weights, or a refusal that names what was
// expected and what was found. Nothing is copied: every view points into the read-only mapping the
// Artifact owns. Weights are not read; of the tensors only the norms are looked at.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/types.h"
#include "model/artifact_layout.h"
#include "model/checkpoints.h"
#include "model/weights.h"

namespace kipp {

// The tokenizer tables as the file holds them, in id order; the views live as long as the Artifact.
struct VocabularyView {
  std::vector<std::string_view> tokens;  // kVocabRows entries in GPT-2's printable byte alphabet
  std::vector<std::string_view> merges;  // "left right", by rank
};

// One tensor where the file holds it.
struct StoredTensor {
  TensorSpec spec;
  GgmlType type = GgmlType::bf16;
  std::uint64_t offset = 0;         // into the file
  std::span<const std::byte> data;  // rows of row_bytes(scheme, cols), or cols floats of a norm
};

// A file the artifact was made from. The views live as long as the Artifact.
struct SourceFile {
  std::string_view name;
  std::string_view sha256;
};

struct OpenOptions {
  bool allow_synthetic = false;  // synthetic twins are refused unless asked for
};

class Artifact {
 public:
  // Maps and validates the file.
  static Result<Artifact> open(const std::string& path, const OpenOptions& options);
  // The same over bytes the caller keeps alive, aligned for floats (tests, fuzzing).
  static Result<Artifact> from_bytes(std::span<const std::byte> file, const OpenOptions& options);

  const Checkpoint& checkpoint() const { return *checkpoint_; }
  const ModelConfig& config() const { return checkpoint_->config; }
  Scheme scheme() const { return scheme_; }
  const Qwen3Weights<StackedMatrix>& weights() const { return weights_; }
  const VocabularyView& vocabulary() const { return vocabulary_; }
  std::size_t file_bytes() const { return file_bytes_; }
  std::string_view source_revision() const { return source_revision_; }  // "seed-7" of a twin
  std::span<const SourceFile> source_files() const { return source_files_; }
  std::span<const StoredTensor> tensors() const { return tensors_; }  // by offset
  // By GGUF name; nullptr if the checkpoint has no such tensor.
  const StoredTensor* find_tensor(std::string_view name) const;

 private:
  const Checkpoint* checkpoint_ = nullptr;
  Scheme scheme_ = Scheme::bf16;
  Qwen3Weights<StackedMatrix> weights_;
  VocabularyView vocabulary_;
  std::size_t file_bytes_ = 0;
  std::string_view source_revision_;
  std::vector<SourceFile> source_files_;
  std::vector<StoredTensor> tensors_;
  std::shared_ptr<const void> mapping_;  // keeps the bytes alive
};

}  // namespace kipp
