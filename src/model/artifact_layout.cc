#include "model/artifact_layout.h"

#include <xxhash.h>

namespace kipp {
namespace {

// ggml's file types.
constexpr std::uint32_t file_type(Scheme scheme) {
  switch (scheme) {
    case Scheme::bf16:
      return 32;
    case Scheme::q8_0:
      return 7;
    case Scheme::affine4_gs32:
      return 3;
    case Scheme::scale4_gs32:
      return 2;
  }
  return 0;
}

constexpr ArrayPin kPins[] = {
    {"tokenizer.ggml.tokens", GgufType::string, kVocabRows, 2588248,
     "e2368d8c89fb2ed78f6eaa55bc3cdee1"},
    {"tokenizer.ggml.token_type", GgufType::i32, kVocabRows, 607744,
     "a7f65aef8eb38f5adf824cdc9230cb7e"},
    {"tokenizer.ggml.merges", GgufType::string, 151387, 2731548,
     "59d3cb761010fc27d230c629b8db49b5"},
};

constexpr std::uint32_t kEndOfText = 151643;  // <|endoftext|>
constexpr std::uint32_t kImEnd = 151645;      // <|im_end|>

void add_layer(const ModelConfig& config, int layer, TensorRole role,
               std::vector<TensorSpec>& out) {
  const auto add = [&](std::string_view name, int rows, int cols) {
    out.push_back({fmt::format("blk.{}.{}.weight", layer, name), role, rows, cols});
  };
  if (role == TensorRole::norm) {
    add("attn_norm", 1, config.hidden);
    add("attn_q_norm", 1, kHeadDim);
    add("attn_k_norm", 1, kHeadDim);
    add("ffn_norm", 1, config.hidden);
    return;
  }
  add("attn_q", config.attention_width(), config.hidden);
  add("attn_k", kKvWidth, config.hidden);
  add("attn_v", kKvWidth, config.hidden);
  add("attn_output", config.hidden, config.attention_width());
  add("ffn_gate", config.intermediate, config.hidden);
  add("ffn_up", config.intermediate, config.hidden);
  add("ffn_down", config.hidden, config.intermediate);
}

}  // namespace

std::vector<MetadataEntry> artifact_metadata(const Checkpoint& checkpoint, Scheme scheme,
                                             std::string_view revision) {
  const auto u32 = [](int value) { return static_cast<std::uint32_t>(value); };
  const ModelConfig& c = checkpoint.config;
  std::vector<MetadataEntry> all = {
      {"general.architecture", "qwen3"},
      {"general.name", std::string(checkpoint.id)},
      {"general.alignment", u32(kGgufAlignment)},
      {"general.file_type", file_type(scheme)},
  };
  if (scheme != Scheme::bf16) all.push_back({"general.quantization_version", 2u});
  const std::uint32_t eos = checkpoint.variant == Variant::base ? kEndOfText : kImEnd;
  const MetadataEntry rest[] = {
      {"qwen3.block_count", u32(c.layers)},
      {"qwen3.context_length", u32(c.context_length)},
      {"qwen3.embedding_length", u32(c.hidden)},
      {"qwen3.feed_forward_length", u32(c.intermediate)},
      {"qwen3.attention.head_count", u32(c.query_heads)},
      {"qwen3.attention.head_count_kv", u32(kKvHeads)},
      {"qwen3.attention.layer_norm_rms_epsilon", kRmsEps},
      {"qwen3.attention.key_length", u32(kHeadDim)},
      {"qwen3.attention.value_length", u32(kHeadDim)},
      {"qwen3.rope.freq_base", static_cast<float>(c.rope_theta)},
      {"qwen3.vocab_size", u32(kVocabRows)},
      {"kipp.format.version", kFormatVersion},
      {"kipp.converter.version", std::string(kConverterVersion)},
      {kRepositoryKey, std::string(checkpoint.repository)},
      {kRevisionKey, std::string(revision)},
      {kSchemeKey, std::string(to_string(scheme))},
      {"tokenizer.ggml.model", "gpt2"},
      {"tokenizer.ggml.pre", "qwen2"},
      {"tokenizer.ggml.eos_token_id", eos},
      {"tokenizer.ggml.bos_token_id", kEndOfText},
      {"tokenizer.ggml.padding_token_id", kEndOfText},
      {"tokenizer.ggml.add_bos_token", false},
  };
  all.insert(all.end(), std::begin(rest), std::end(rest));
  return all;
}

std::span<const ArrayPin, 3> vocabulary_pins() { return kPins; }

std::string xxh128_hex(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::vector<TensorSpec> artifact_tensors(const ModelConfig& config) {
  std::vector<TensorSpec> all;
  for (int layer = 0; layer < config.layers; ++layer) {
    add_layer(config, layer, TensorRole::norm, all);
  }
  all.push_back({"output_norm.weight", TensorRole::norm, 1, config.hidden});
  all.push_back({"token_embd.weight", TensorRole::embedding, kVocabRows, config.hidden});
  for (int layer = 0; layer < config.layers; ++layer) {
    add_layer(config, layer, TensorRole::projection, all);
  }
  if (!config.tied) {
    all.push_back({"output.weight", TensorRole::head, kVocabRows, config.hidden});
  }
  return all;
}

GgmlType stored_type(TensorRole role, Scheme scheme) {
  if (role == TensorRole::norm) return GgmlType::f32;
  if (role != TensorRole::projection) return GgmlType::bf16;
  switch (scheme) {
    case Scheme::bf16:
      return GgmlType::bf16;
    case Scheme::q8_0:
      return GgmlType::q8_0;
    case Scheme::affine4_gs32:
      return GgmlType::q4_1;
    case Scheme::scale4_gs32:
      return GgmlType::q4_0;
  }
  return GgmlType::bf16;
}

std::uint64_t stored_bytes(const TensorSpec& spec, Scheme scheme) {
  if (spec.role == TensorRole::norm) {
    return static_cast<std::uint64_t>(spec.cols) * sizeof(float);
  }
  const Scheme used = spec.role == TensorRole::projection ? scheme : Scheme::bf16;
  return static_cast<std::uint64_t>(spec.rows) * row_bytes(used, spec.cols);
}

}  // namespace kipp
