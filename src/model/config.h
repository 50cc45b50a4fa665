// The sizes of one checkpoint, and the constants the whole Qwen3 dense family shares.
#pragma once

#include <cstdint>

namespace kipp {

inline constexpr int kKvHeads = 8;
inline constexpr int kHeadDim = 128;
inline constexpr int kKvWidth = kKvHeads * kHeadDim;
inline constexpr int kVocabRows = 151936;    // rows of the embedding and of the logits
inline constexpr int kNamedTokens = 151669;  // ids from here on name no token and are never emitted
inline constexpr float kRmsEps = 1e-6f;

struct ModelConfig {
  int hidden = 0;
  int layers = 0;
  int query_heads = 0;
  int intermediate = 0;
  int context_length = 0;
  int rope_theta = 0;
  bool tied = false;  // the output head is the token embedding

  // Not the hidden width: they differ at 0.6B, 4B and 32B.
  constexpr int attention_width() const { return query_heads * kHeadDim; }
  constexpr int queries_per_kv_head() const { return query_heads / kKvHeads; }

  friend constexpr bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

}  // namespace kipp
