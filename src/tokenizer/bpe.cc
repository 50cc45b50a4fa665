#include "tokenizer/bpe.h"

namespace kipp {
namespace {

constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
constexpr int kTokenBits = 18;
constexpr int kNodeBits = 19;
constexpr std::uint64_t kTokenMask = (1U << kTokenBits) - 1;
constexpr std::uint64_t kNodeMask = (1U << kNodeBits) - 1;

// Sized for the second-level cache rather than for few probes: 2 MB of pairs (151,387 merges) and 4
// MB of edges (332,753). Nearly all pairs that are asked for do not merge, which one bit of 256 KB
// says for 93 % of them.
constexpr int kPairSlotBits = 18;
constexpr int kEdgeSlotBits = 19;
constexpr int kFilterBits = 21;

// The slot where the search for a key begins (Fibonacci hashing).
std::size_t home(std::uint64_t key, int slot_bits) {
  return static_cast<std::size_t>(key * 0x9E3779B97F4A7C15U >> (64 - slot_bits));
}

std::uint64_t unsigned_token(Token id) { return static_cast<std::uint32_t>(id); }

std::uint64_t pair_key(Token left, Token right) {
  return unsigned_token(left) << kTokenBits | unsigned_token(right);
}

std::uint64_t edge_key(std::uint32_t node, unsigned char byte) {
  return std::uint64_t{node} << 8 | byte;
}

// Which positions of a piece turned out to lead nowhere. Most pieces need none, few more than the
// first block.
class DeadEnds {
 public:
  bool contains(std::size_t at) const {
    return at / 64 < words_.size() && (words_[at / 64] >> at % 64 & 1) != 0;
  }
  void insert(std::size_t at) {
    if (at / 64 >= words_.size()) words_.resize(at / 64 * 2 + 1);
    words_[at / 64] |= std::uint64_t{1} << at % 64;
  }

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary) : byte_token_(vocabulary.byte_token) {
  add_merges(vocabulary);
  add_trie(vocabulary);
}

void Bpe::add_merges(const Vocabulary& vocabulary) {
  constexpr std::size_t kMask = (std::size_t{1} << kPairSlotBits) - 1;
  pairs_.assign(kMask + 1, kEmpty);
  filter_.assign((std::size_t{1} << kFilterBits) / 64, 0);
  parts_.assign(kByteTokens, Merge{});
  parts_.insert(parts_.end(), vocabulary.merges.begin(), vocabulary.merges.end());
  for (std::size_t id = kByteTokens; id < parts_.size(); ++id) {
    const std::uint64_t key = pair_key(parts_[id].left, parts_[id].right);
    std::size_t slot = home(key, kPairSlotBits);
    while (pairs_[slot] != kEmpty) slot = (slot + 1) & kMask;
    pairs_[slot] = key << kTokenBits | id;
    const std::size_t bit = home(key, kFilterBits);
    filter_[bit / 64] |= std::uint64_t{1} << bit % 64;
  }
}

void Bpe::add_trie(const Vocabulary& vocabulary) {
  constexpr std::size_t kMask = (std::size_t{1} << kEdgeSlotBits) - 1;
  edges_.assign(kMask + 1, kEmpty);

  struct Node {
    std::uint32_t parent;
    Token token;
  };
  // A node is made before its children. The root is node 0; the nodes of single bytes follow.
  std::vector<Node> nodes{{0, kNone}};
  nodes.reserve(std::size_t{1} << kNodeBits);
  const auto child = [&](std::uint32_t node, unsigned char byte) -> std::uint64_t& {
    const std::uint64_t key = edge_key(node, byte);
    std::size_t slot = home(key, kEdgeSlotBits);
    while (edges_[slot] != kEmpty && edges_[slot] >> (kNodeBits + kTokenBits) != key) {
      slot = (slot + 1) & kMask;
    }
    if (edges_[slot] == kEmpty) {
      edges_[slot] = key << (kNodeBits + kTokenBits) | nodes.size() << kTokenBits | kTokenMask;
      nodes.push_back({node, kNone});
    }
    return edges_[slot];
  };
  const auto node_of = [](std::uint64_t edge) {
    return static_cast<std::uint32_t>(edge >> kTokenBits & kNodeMask);
  };

  std::vector<std::uint32_t> ends(parts_.size());  // by token: its node
  for (std::size_t id = 0; id < parts_.size(); ++id) {
    std::string_view bytes = vocabulary.token_bytes(static_cast<Token>(id));
    sizes_.push_back(static_cast<std::uint8_t>(bytes.size()));
    std::uint32_t node = 0;
    if (id >= kByteTokens) {  // the left part is in the trie already
      const auto left = static_cast<std::size_t>(parts_[id].left);
      node = ends[left];
      bytes.remove_prefix(sizes_[left]);
    }
    std::uint64_t* edge = nullptr;
    for (const char byte : bytes) {
      edge = &child(node, static_cast<unsigned char>(byte));
      node = node_of(*edge);
    }
    *edge = (*edge & ~kTokenMask) | id;
    nodes[node].token = static_cast<Token>(id);
    ends[id] = node;
  }

  shorter_.assign(parts_.size(), kNone);
  std::vector<Token> longest(nodes.size(), kNone);  // by node: the longest token on the way to it
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    longest[i] = longest[nodes[i].parent];
    if (nodes[i].token != kNone) {
      shorter_[static_cast<std::size_t>(nodes[i].token)] = longest[i];
      longest[i] = nodes[i].token;
    }
  }

  starts_.resize(65536);
  for (std::size_t i = 0; i < starts_.size(); ++i) {
    const auto first = static_cast<std::size_t>(byte_token_[i & 0xFF]);
    if (!find_edge(ends[first], static_cast<unsigned char>(i >> 8), starts_[i])) {
      starts_[i] = {0, kNone};
    }
  }
}

Token Bpe::merged(Token left, Token right) const {
  constexpr std::size_t kMask = (std::size_t{1} << kPairSlotBits) - 1;
  const std::uint64_t key = pair_key(left, right);
  const std::size_t bit = home(key, kFilterBits);
  if ((filter_[bit / 64] >> bit % 64 & 1) == 0) return kNone;
  for (std::size_t slot = home(key, kPairSlotBits);; slot = (slot + 1) & kMask) {
    const std::uint64_t entry = pairs_[slot];
    if (entry == kEmpty) return kNone;
    if (entry >> kTokenBits == key) return static_cast<Token>(entry & kTokenMask);
  }
}

bool Bpe::find_edge(std::uint32_t node, unsigned char byte, Edge& edge) const {
  constexpr std::size_t kMask = (std::size_t{1} << kEdgeSlotBits) - 1;
  const std::uint64_t key = edge_key(node, byte);
  for (std::size_t slot = home(key, kEdgeSlotBits);; slot = (slot + 1) & kMask) {
    const std::uint64_t entry = edges_[slot];
    if (entry >> (kNodeBits + kTokenBits) == key) {
      edge = {static_cast<std::uint32_t>(entry >> kTokenBits & kNodeMask),
              static_cast<Token>(entry & kTokenMask)};
      return true;
    }
    if (entry == kEmpty) return false;
  }
}

// Plays the merges of the two tokens backwards, always undoing the later one, and looks at each
// pair of parts that stood side by side at the border: were it joined before one of the two grew,
// the border would have been crossed. Merges happen in the order of their products, equal ones from
// left to right; hence the + 1 on the right side.
bool Bpe::compatible(Token left, Token right) const {
  for (Token limit = kNone;;) {
    if (merged(left, right) < limit) return false;
    if (left > right) {
      if (left < kByteTokens) return true;
      limit = left;
      left = parts_[static_cast<std::size_t>(left)].right;
    } else {
      if (right < kByteTokens) return true;
      limit = right + 1;
      right = parts_[static_cast<std::size_t>(right)].left;
    }
  }
}

// The longest token that text begins with; text is not empty.
Token Bpe::longest_match(std::string_view text) const {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  Token longest = byte_token_[byte(0)];
  if (text.size() == 1) return longest;
  Edge edge = starts_[byte(0) | std::size_t{byte(1)} << 8];
  if (edge.node == 0) return longest;
  if (edge.token != kNone) longest = edge.token;
  for (std::size_t i = 2; i < text.size() && find_edge(edge.node, byte(i), edge); ++i) {
    if (edge.token != kNone) longest = edge.token;
  }
  return longest;
}

void Bpe::encode(std::string_view piece, std::vector<Token>& out) const {
  const Token first = longest_match(piece);
  if (sizes_[static_cast<std::size_t>(first)] == piece.size()) {
    out.push_back(first);
  } else {
    encode_several(piece, first, out);
  }
}

void Bpe::encode_several(std::string_view piece, Token first, std::vector<Token>& out) const {
  const std::size_t begin = out.size();
  const auto size_of = [&](Token id) -> std::size_t {
    return sizes_[static_cast<std::size_t>(id)];
  };
  DeadEnds dead_ends;
  Token candidate = first;
  for (std::size_t at = 0;;) {
    const std::size_t end = at + size_of(candidate);
    if (!dead_ends.contains(end) && (out.size() == begin || compatible(out.back(), candidate))) {
      out.push_back(candidate);
      if (end == piece.size()) return;
      at = end;
      candidate = longest_match(piece.substr(at));
      continue;
    }
    candidate = shorter_[static_cast<std::size_t>(candidate)];
    while (candidate == kNone) {
      dead_ends.insert(at);
      at -= size_of(out.back());
      candidate = shorter_[static_cast<std::size_t>(out.back())];
      out.pop_back();
    }
  }
}

}  // namespace kipp
