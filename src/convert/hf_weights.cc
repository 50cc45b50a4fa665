#include "convert/hf_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>

#include "convert/strict_json.h"
#include "model/artifact_layout.h"

namespace kipp {
namespace {

static_assert(std::endian::native == std::endian::little, "weights are copied as they are stored");

constexpr std::string_view kEmbedding = "model.embed_tokens.weight";
constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::size_t kMaxIndexBytes = 16u << 20;

struct NamePair {
  std::string_view artifact;
  std::string_view hub;
};
constexpr std::array<NamePair, 3> kTop{{{"token_embd.weight", kEmbedding},
                                        {"output_norm.weight", "model.norm.weight"},
                                        {"output.weight", kHead}}};
constexpr std::array<NamePair, 11> kLayer{{{"attn_norm.weight", "input_layernorm.weight"},
                                           {"attn_q.weight", "self_attn.q_proj.weight"},
                                           {"attn_k.weight", "self_attn.k_proj.weight"},
                                           {"attn_v.weight", "self_attn.v_proj.weight"},
                                           {"attn_q_norm.weight", "self_attn.q_norm.weight"},
                                           {"attn_k_norm.weight", "self_attn.k_norm.weight"},
                                           {"attn_output.weight", "self_attn.o_proj.weight"},
                                           {"ffn_norm.weight", "post_attention_layernorm.weight"},
                                           {"ffn_gate.weight", "mlp.gate_proj.weight"},
                                           {"ffn_up.weight", "mlp.up_proj.weight"},
                                           {"ffn_down.weight", "mlp.down_proj.weight"}}};

std::string_view hub_part(std::span<const NamePair> pairs, std::string_view artifact) {
  const auto place = std::find_if(pairs.begin(), pairs.end(),
                                  [&](const NamePair& pair) { return pair.artifact == artifact; });
  return place == pairs.end() ? std::string_view() : place->hub;
}

Result<void> check_tensor(std::string_view file, std::string_view name, const SafetensorsView& view,
                          std::span<const std::int64_t> shape) {
  if (view.dtype != DType::bf16) {
    return fail(ErrorCode::refused, "{}: {}.dtype: expected BF16, found {}", file, name,
                to_string(view.dtype));
  }
  if (!std::equal(view.shape.begin(), view.shape.end(), shape.begin(), shape.end())) {
    return fail(ErrorCode::refused, "{}: {}.shape: expected {}, found {}", file, name,
                shape_text(shape), shape_text(view.shape));
  }
  return {};
}

}  // namespace

std::string hf_tensor_name(std::string_view artifact_name) {
  if (const auto top = hub_part(kTop, artifact_name); !top.empty()) return std::string(top);
  constexpr std::string_view kBlock = "blk.";
  const auto dot = artifact_name.find('.', kBlock.size());
  if (!artifact_name.starts_with(kBlock) || dot == std::string_view::npos) return {};
  const auto part = hub_part(kLayer, artifact_name.substr(dot + 1));
  if (part.empty()) return {};
  return fmt::format("model.layers.{}.{}", artifact_name.substr(kBlock.size(), dot - kBlock.size()),
                     part);
}

Result<HfWeights> HfWeights::open(const std::filesystem::path& directory,
                                  const Checkpoint& checkpoint) {
  HfWeights weights;
  bool indexed = false;
  for (const PinnedFile& file : checkpoint.files) {
    indexed = indexed || file.name == kIndex;
    if (!file.name.ends_with(".safetensors")) continue;
    KIPP_TRY_ASSIGN(shard, Safetensors::open((directory / file.name).string()));
    weights.shards_.emplace_back(file.name, std::move(shard));
  }
  KIPP_TRY(weights.gather(checkpoint));
  if (indexed) KIPP_TRY(weights.check_index(directory / kIndex));
  KIPP_TRY(weights.check_set(checkpoint));
  return weights;
}

Result<void> HfWeights::gather(const Checkpoint& checkpoint) {
  if (shards_.empty()) {
    return fail(ErrorCode::invalid, "{}: expected a checkpoint with safetensors files, found none",
                checkpoint.id);
  }
  for (const auto& [file, shard] : shards_) {
    for (const auto& [name, view] : shard.tensors()) {
      const auto [place, added] = tensors_.try_emplace(name, Placed{&view, file});
      if (!added) {
        return fail(ErrorCode::refused, "{}: expected in one file, found in {} and {}", name,
                    place->second.file, file);
      }
    }
  }
  return {};
}

// Its metadata.total_size is wrong in files that Qwen published, so only the map is looked at.
Result<void> HfWeights::check_index(const std::filesystem::path& path) const {
  KIPP_TRY_ASSIGN(index, read_strict_json(path, kMaxIndexBytes));
  KIPP_TRY(expect_fields(
      index, {{"metadata", nlohmann::json::object()}, {"weight_map", nlohmann::json::object()}},
      kIndex, {"metadata", "weight_map"}));
  const auto& map = index["weight_map"];
  for (const auto& [name, placed] : tensors_) {
    const auto place = map.find(name);
    if (place == map.end() || *place != placed.file) {
      return fail(ErrorCode::refused,
                  "{}: weight_map: {}: expected {}, where the tensor is, found {}", kIndex, name,
                  placed.file, place == map.end() ? "nothing" : shown(*place));
    }
  }
  for (const auto& [name, file] : map.items()) {
    if (!tensors_.contains(name)) {
      return fail(ErrorCode::refused,
                  "{}: weight_map: {}: expected a tensor of the files, found none in {}", kIndex,
                  shown(name), shown(file));
    }
  }
  return {};
}

Result<void> HfWeights::check_set(const Checkpoint& checkpoint) {
  std::set<std::string, std::less<>> expected;
  for (const TensorSpec& spec : artifact_tensors(checkpoint.config)) {
    const std::string name = hf_tensor_name(spec.name);
    const std::array<std::int64_t, 2> sides{spec.rows, spec.cols};
    const auto shape = std::span(sides).subspan(spec.role == TensorRole::norm ? 1 : 0);
    const auto place = tensors_.find(name);
    if (place == tensors_.end()) {
      return fail(ErrorCode::refused, "{}: expected a tensor BF16 {}, found none", name,
                  shape_text(shape));
    }
    KIPP_TRY(check_tensor(place->second.file, name, *place->second.view, shape));
    expected.insert(name);
  }
  const auto head = tensors_.find(kHead);
  redundant_head_ = checkpoint.config.tied && head != tensors_.end();
  if (redundant_head_) {
    const std::array<std::int64_t, 2> shape{kVocabRows, checkpoint.config.hidden};
    KIPP_TRY(check_tensor(head->second.file, kHead, *head->second.view, shape));
    expected.emplace(kHead);
  }
  for (const auto& [name, placed] : tensors_) {
    if (!expected.contains(name)) {
      return fail(ErrorCode::refused, "{}: expected only the {} tensors of {}, found {} too",
                  placed.file, expected.size(), checkpoint.id, name);
    }
  }
  return {};
}

Result<void> HfWeights::check_redundant_head() const {
  if (!redundant_head_) return {};
  const auto head = tensors_.find(kHead);
  const auto embedding = tensors_.find(kEmbedding);
  const auto a = embedding->second.view->bytes;
  const auto b = head->second.view->bytes;
  if (std::memcmp(a.data(), b.data(), a.size()) == 0) return {};
  const auto different = std::mismatch(a.begin(), a.end(), b.begin());
  const auto at = static_cast<std::size_t>(different.first - a.begin());
  const std::size_t bytes_of_row = a.size() / static_cast<std::size_t>(kVocabRows);
  return fail(ErrorCode::refused,
              "{}: {}: expected the bytes of {}, because the checkpoint is tied, found another "
              "value in row {}, "
              "column {}",
              head->second.file, kHead, kEmbedding, at / bytes_of_row, at % bytes_of_row / 2);
}

RowSource HfWeights::rows() const {
  return [this](std::string_view name, int first_row, int n_rows, int cols,
                std::span<std::uint16_t> out) -> Result<void> {
    const auto place = tensors_.find(hf_tensor_name(name));
    if (place == tensors_.end()) {
      return fail(ErrorCode::invalid, "{}: expected the name of a tensor, found another", name);
    }
    const std::size_t row = static_cast<std::size_t>(cols) * sizeof(std::uint16_t);
    const auto from = place->second.view->bytes.subspan(static_cast<std::size_t>(first_row) * row,
                                                        static_cast<std::size_t>(n_rows) * row);
    std::memcpy(out.data(), from.data(), from.size());
    return {};
  };
}

}  // namespace kipp
