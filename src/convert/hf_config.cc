#include "convert/hf_config.h"

#include "convert/strict_json.h"
#include "tokenizer/vocabulary.h"

namespace kipp {
namespace {

using Json = nlohmann::json;

// 0.6 as people write it: the nearest double, which the nearest float is not.
Json decimal(float value) { return Json::parse(fmt::format("{}", value)); }

// Which release of Transformers wrote the file; it says nothing about the model.
constexpr auto kWriter = "transformers_version";

Json expected_config(const Checkpoint& checkpoint) {
  const ModelConfig& c = checkpoint.config;
  return {
      {"architectures", Json::array({"Qwen3ForCausalLM"})},
      {"model_type", "qwen3"},
      {"hidden_size", c.hidden},
      {"num_hidden_layers", c.layers},
      {"num_attention_heads", c.query_heads},
      {"num_key_value_heads", kKvHeads},
      {"head_dim", kHeadDim},
      {"intermediate_size", c.intermediate},
      {"vocab_size", kVocabRows},
      {"max_position_embeddings", c.context_length},
      {"rope_theta", c.rope_theta},
      {"rope_scaling", nullptr},
      {"rms_norm_eps", decimal(kRmsEps)},
      {"tie_word_embeddings", c.tied},
      {"bos_token_id", kEndOfText},
      {"eos_token_id", checkpoint.stop_tokens.front()},
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"hidden_act", "silu"},
      {"initializer_range", 0.02},
      {"sliding_window", nullptr},
      {"use_sliding_window", false},
      {"max_window_layers", c.layers},
      {"torch_dtype", "bfloat16"},
      {kWriter, ""},
      {"use_cache", true},
  };
}

Json expected_generation_config(const Checkpoint& checkpoint) {
  const SamplingDefaults& s = checkpoint.sampling;
  Json expected{{"bos_token_id", kEndOfText}, {"do_sample", s.sample}, {kWriter, ""}};
  if (checkpoint.stop_tokens.size() == 1) {
    expected["eos_token_id"] = checkpoint.stop_tokens.front();
  } else {
    expected["eos_token_id"] = checkpoint.stop_tokens;
  }
  if (s.sample) {
    expected["pad_token_id"] = kEndOfText;
    expected["temperature"] = decimal(s.temperature);
    expected["top_k"] = s.top_k;
    expected["top_p"] = decimal(s.top_p);
  } else {
    expected["max_new_tokens"] = 2048;
  }
  return expected;
}

}  // namespace

Result<void> check_hf_config(const Checkpoint& checkpoint, const Json& config) {
  return expect_fields(config, expected_config(checkpoint), "config.json", {kWriter});
}

Result<void> check_hf_generation_config(const Checkpoint& checkpoint, const Json& config) {
  return expect_fields(config, expected_generation_config(checkpoint), "generation_config.json",
                       {kWriter});
}

}  // namespace kipp
