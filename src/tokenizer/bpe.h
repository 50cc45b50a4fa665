// Byte-level BPE over one piece of pre-tokenized text: of all neighbours that some merge joins, the
// pair of the lowest rank is joined first, the leftmost of equals, until none is left.
//
// Nothing is merged to find that result. Tokens t1 t2 .. tn are the encoding of their bytes exactly
// if every pair of neighbours is the encoding of its own bytes: a merge across the border of two
// tokens would happen in the whole text if and only if it happens in these two alone. So the
// encoder walks from left to right, tries the longest token that matches and then shorter ones, and
// steps back where none is compatible with what stands before. The tokens that encode a beginning
// of the piece are unique, hence no position is left twice and the walk is linear.
//
// This needs a vocabulary in which the bytes of every token encode to that token; bpe_test.cc
// checks all of Qwen's.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/vocabulary.h"

namespace kipp {

class Bpe {
 public:
  explicit Bpe(const Vocabulary& vocabulary);

  // Appends the tokens of `piece`. Linear in its length. Thread-safe.
  void encode(std::string_view piece, std::vector<Token>& out) const;

 private:
  static constexpr Token kNone = (1 << 18) - 1;  // fits the slots below, and exceeds every token

  // What the two merge into, or kNone. A lower token is a lower rank.
  Token merged(Token left, Token right) const;
  bool compatible(Token left, Token right) const;
  Token longest_match(std::string_view text) const;
  void encode_several(std::string_view piece, Token first, std::vector<Token>& out) const;

  void add_merges(const Vocabulary& vocabulary);
  void add_trie(const Vocabulary& vocabulary);

  struct Edge {
    std::uint32_t node;
    Token token;  // that ends at the node, or kNone
  };
  bool find_edge(std::uint32_t node, unsigned char byte, Edge& edge) const;

  // Hash tables with open addressing, each entry one word.
  std::vector<std::uint64_t> pairs_;   // merges: left << 36 | right << 18 | product
  std::vector<std::uint64_t> filter_;  // a bit for the hash of each pair in pairs_
  std::vector<std::uint64_t> edges_;   // trie of tokens: node << 45 | byte << 37 | to << 18 | token
  std::vector<Edge> starts_;           // [65536] by first two bytes, the first low; node 0: none

  // By token.
  std::vector<Merge> parts_;         // what it was merged from; of no meaning for single bytes
  std::vector<Token> shorter_;       // the longest token that is a proper prefix of it, or kNone
  std::vector<std::uint8_t> sizes_;  // bytes, 128 at most
  std::array<Token, 256> byte_token_;
};

}  // namespace kipp
