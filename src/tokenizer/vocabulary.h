// Qwen's vocabulary: 256 byte tokens, 151,387 merges in rank order, 26 added tokens. Token 256 + r
// is the product of merge r, so the merges alone determine every ordinary token. The table is
// compiled in (assets/qwen3_vocabulary.zst, from Qwen's tokenizer.json, Apache-2.0): the whole
// family shares it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace kipp {

struct AddedToken {
  Token id = 0;
  std::string_view text;
  bool special =
      false;  // removed when decoding without special tokens; all are matched when encoding
};

inline constexpr int kByteTokens = 256;
inline constexpr int kMerges = 151387;
inline constexpr Token kFirstAddedToken = 151643;
inline constexpr int kAddedTokens = 26;

inline constexpr Token kEndOfText = 151643;
inline constexpr Token kImStart = 151644;
inline constexpr Token kImEnd = 151645;
inline constexpr Token kToolCall = 151657;
inline constexpr Token kToolCallEnd = 151658;
inline constexpr Token kToolResponse = 151665;
inline constexpr Token kToolResponseEnd = 151666;
inline constexpr Token kThink = 151667;
inline constexpr Token kThinkEnd = 151668;

std::span<const AddedToken> added_tokens();  // 26, by id

struct Merge {
  Token left = 0;
  Token right = 0;
};

// The compiled-in table. Built on first use (thread-safe) and kept.
struct Vocabulary {
  std::array<Token, 256> byte_token;  // the token of each single byte
  std::vector<Merge> merges;          // by rank; merge r yields token kByteTokens + r
  std::string bytes;                  // all tokens' bytes, one after the other
  std::vector<std::uint32_t> begins;  // where each token begins in `bytes`, and the end

  std::string_view token_bytes(Token id) const {
    const auto i = static_cast<std::size_t>(id);
    return std::string_view(bytes).substr(begins[i], begins[i + 1] - begins[i]);
  }
};

const Vocabulary& qwen_vocabulary();

// GPT-2's printable alphabet for bytes, as tokenizer.json and GGUF spell tokens ("Ġthe" is " the").
std::string to_printable(std::string_view bytes);

}  // namespace kipp
