#include "cli/config_json.h"

namespace kipp {

nlohmann::ordered_json config_json(const ModelConfig& config) {
  return {{"hidden_size", config.hidden},
          {"num_hidden_layers", config.layers},
          {"num_attention_heads", config.query_heads},
          {"num_key_value_heads", kKvHeads},
          {"head_dim", kHeadDim},
          {"intermediate_size", config.intermediate},
          {"vocab_size", kVocabRows},
          {"max_position_embeddings", config.context_length},
          {"rope_theta", config.rope_theta},
          {"tie_word_embeddings", config.tied}};
}

}  // namespace kipp
