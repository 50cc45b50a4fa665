// Prompts that share prefixes, and hashes that collide.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "kv/prefix_index.h"

namespace kipp::test {

// A letter stands for one block of tokens. They differ from 'a' in a single token: 'b' in the first
// of the block, 'c' in the last, 'd' in the middle.
inline std::vector<Token> spell(std::string_view blocks) {
  std::vector<Token> tokens;
  for (const char letter : blocks) {
    const std::size_t at = tokens.size();
    tokens.resize(at + kBlockPositions, 7);
    const std::size_t differs = letter == 'b' ? 0 : letter == 'c' ? kBlockPositions - 1 : 16;
    if (letter != 'a') tokens[at + differs] = letter;
  }
  return tokens;
}

inline BlockTokens block_of(std::span<const Token> tokens, std::size_t i) {
  return tokens.subspan(i * kBlockPositions).first<kBlockPositions>();
}

inline std::uint64_t hash_of_two_bits(std::uint64_t before, BlockTokens tokens) {
  return prefix_hash(before, tokens) & 3;
}
inline std::uint64_t hash_of_none(std::uint64_t, BlockTokens) { return 0; }

inline constexpr PrefixHash kHashes[] = {prefix_hash, hash_of_two_bits, hash_of_none};

}  // namespace kipp::test
