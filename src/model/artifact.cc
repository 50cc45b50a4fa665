#include "model/artifact.h"

#include <algorithm>
#include <unordered_map>

#include "base/mmap_file.h"
#include "model/artifact_checks.h"
#include "model/gguf_reader.h"

namespace kipp {
namespace {

// The placed tensors by name, as the views a backend takes. Every name it is asked for exists:
// match_tensors saw to that.
class WeightViews {
 public:
  WeightViews(std::span<const StoredTensor> tensors, Scheme scheme) : scheme_(scheme) {
    for (const StoredTensor& tensor : tensors) by_name_.emplace(tensor.spec.name, &tensor);
  }

  MatrixView matrix(std::string_view name) const {
    const StoredTensor& tensor = *by_name_.at(name);
    const Scheme scheme = tensor.spec.role == TensorRole::projection ? scheme_ : Scheme::bf16;
    return {tensor.data.data(), scheme, tensor.spec.rows, tensor.spec.cols};
  }
  std::span<const float> norm(std::string_view name) const {
    return norm_values(*by_name_.at(name));
  }

 private:
  Scheme scheme_;
  std::unordered_map<std::string_view, const StoredTensor*> by_name_;
};

StackedMatrix stack(std::initializer_list<MatrixView> parts) {
  StackedMatrix stacked;
  for (const MatrixView& part : parts) {
    stacked.parts[static_cast<std::size_t>(stacked.n_parts++)] = part;
  }
  return stacked;
}

LayerWeights<StackedMatrix> layer_weights(const WeightViews& views, int layer) {
  const auto name = [layer](std::string_view part) {
    return fmt::format("blk.{}.{}.weight", layer, part);
  };
  const auto matrix = [&](std::string_view part) { return views.matrix(name(part)); };
  const auto norm = [&](std::string_view part) { return views.norm(name(part)); };
  return {
      .attn_norm = norm("attn_norm"),
      .qkv = stack({matrix("attn_q"), matrix("attn_k"), matrix("attn_v")}),
      .q_norm = norm("attn_q_norm"),
      .k_norm = norm("attn_k_norm"),
      .attn_out = stack({matrix("attn_output")}),
      .mlp_norm = norm("ffn_norm"),
      .gate_up = stack({matrix("ffn_gate"), matrix("ffn_up")}),
      .down = stack({matrix("ffn_down")}),
  };
}

Qwen3Weights<StackedMatrix> weight_views(const ModelConfig& config, Scheme scheme,
                                         std::span<const StoredTensor> tensors) {
  const WeightViews views(tensors, scheme);
  Qwen3Weights<StackedMatrix> weights;
  weights.embed = views.matrix("token_embd.weight");
  for (int layer = 0; layer < config.layers; ++layer) {
    weights.layers.push_back(layer_weights(views, layer));
  }
  weights.final_norm = views.norm("output_norm.weight");
  weights.lm_head = stack({config.tied ? weights.embed : views.matrix("output.weight")});
  return weights;
}

std::vector<std::string_view> array_texts(const GgufValue& value) {
  std::vector<std::string_view> texts(static_cast<std::size_t>(value.count));
  for (std::size_t i = 0; i < texts.size(); ++i) texts[i] = value.element_text(i);
  return texts;
}

}  // namespace

Result<Artifact> Artifact::from_bytes(std::span<const std::byte> file, const OpenOptions& options) {
  if (reinterpret_cast<std::uintptr_t>(file.data()) % alignof(float) != 0) {
    return fail(ErrorCode::invalid, "file bytes: expected memory aligned for floats, found {}",
                fmt::ptr(file.data()));
  }
  KIPP_TRY_ASSIGN(gguf, read_gguf(file));
  Artifact artifact;
  KIPP_TRY_ASSIGN(repository, identity_text(gguf, kRepositoryKey));
  KIPP_TRY_ASSIGN(revision, identity_text(gguf, kRevisionKey));
  KIPP_TRY_ASSIGN(entry, find_checkpoint(repository, revision));
  if (entry->kind == CheckpointKind::synthetic && !options.allow_synthetic) {
    return fail(ErrorCode::refused,
                "{}: expected a checkpoint with trained weights, found the synthetic twin {} of "
                "random weights, which --allow-synthetic accepts",
                kRepositoryKey, entry->id);
  }
  KIPP_TRY_ASSIGN(scheme_name, identity_text(gguf, kSchemeKey));
  auto scheme = parse_scheme(scheme_name);
  if (!scheme) return fail(ErrorCode::refused, "{}: {}", kSchemeKey, scheme.error().message);

  KIPP_TRY(check_metadata(gguf, *entry, artifact_metadata(*entry, *scheme, revision)));
  KIPP_TRY_ASSIGN(sources, check_source_files(gguf, *entry));
  KIPP_TRY(check_vocabulary(gguf));
  KIPP_TRY_ASSIGN(tensors, match_tensors(gguf, entry->config, *scheme));
  KIPP_TRY(place_tensors(file, gguf.table_end, *scheme, tensors));
  KIPP_TRY(check_norms(tensors));

  artifact.checkpoint_ = entry;
  artifact.scheme_ = *scheme;
  artifact.file_bytes_ = file.size();
  artifact.source_revision_ = revision;
  artifact.source_files_ = std::move(sources);
  artifact.tensors_ = std::move(tensors);
  artifact.weights_ = weight_views(entry->config, *scheme, artifact.tensors_);
  artifact.vocabulary_.tokens = array_texts(*gguf.find(vocabulary_pins()[kTokensPin].key));
  artifact.vocabulary_.merges = array_texts(*gguf.find(vocabulary_pins()[kMergesPin].key));
  return artifact;
}

const StoredTensor* Artifact::find_tensor(std::string_view name) const {
  const auto it =
      std::find_if(tensors_.begin(), tensors_.end(),
                   [name](const StoredTensor& tensor) { return tensor.spec.name == name; });
  return it == tensors_.end() ? nullptr : &*it;
}

Result<Artifact> Artifact::open(const std::string& path, const OpenOptions& options) {
  KIPP_TRY_ASSIGN(file, MmapFile::open(path));
  auto artifact = from_bytes(file->bytes(), options);
  if (!artifact) return fail(artifact.error().code, "{}: {}", path, artifact.error().message);
  artifact->mapping_ = file;
  return artifact;
}

}  // namespace kipp
