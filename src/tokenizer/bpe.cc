#include "tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>

namespace kipp {
namespace {

constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
constexpr int kIdBits = 18;
constexpr std::uint64_t kIdMask = (1U << kIdBits) - 1;
constexpr int kSlotBits =
    19;  // 2^19 slots for 151,387 merges: a miss, the usual case, ends after 1.2 probes
constexpr std::size_t kSlotMask = (std::size_t{1} << kSlotBits) - 1;

std::uint64_t pair_key(Token left, Token right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << kIdBits |
         static_cast<std::uint32_t>(right);
}

std::size_t home_slot(std::uint64_t key) {
  return static_cast<std::size_t>(key * 0x9E3779B97F4A7C15U >> (64 - kSlotBits));
}

// Up to this many bytes, looking through all pairs for the lowest beats a heap.
constexpr std::size_t kShortPiece = 48;

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary) : vocabulary_(vocabulary), slots_(kSlotMask + 1, kEmpty) {
  for (std::size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const Merge& merge = vocabulary.merges[rank];
    const std::uint64_t key = pair_key(merge.left, merge.right);
    std::size_t slot = home_slot(key);
    while (slots_[slot] != kEmpty) slot = (slot + 1) & kSlotMask;
    slots_[slot] = key << kIdBits | (kByteTokens + rank);
  }
}

Token Bpe::merged(Token left, Token right) const {
  const std::uint64_t key = pair_key(left, right);
  for (std::size_t slot = home_slot(key);; slot = (slot + 1) & kSlotMask) {
    const std::uint64_t entry = slots_[slot];
    if (entry == kEmpty) return kNoToken;
    if (entry >> kIdBits == key) return static_cast<Token>(entry & kIdMask);
  }
}

void Bpe::encode(std::string_view piece, std::vector<Token>& out) const {
  if (piece.size() <= kShortPiece) {
    merge_short(piece, out);
  } else {
    merge_long(piece, out);
  }
}

void Bpe::merge_short(std::string_view piece, std::vector<Token>& out) const {
  std::array<Token, kShortPiece> ids;
  std::array<Token, kShortPiece> joined;  // what ids[i] and ids[i + 1] merge into
  std::size_t n = piece.size();
  for (std::size_t i = 0; i < n; ++i) {
    ids[i] = vocabulary_.byte_token[static_cast<unsigned char>(piece[i])];
  }
  for (std::size_t i = 0; i + 1 < n; ++i) joined[i] = merged(ids[i], ids[i + 1]);
  while (n > 1) {
    const auto lowest = std::min_element(joined.begin(), joined.begin() + static_cast<long>(n) - 1);
    if (*lowest == kNoToken) break;
    const auto i = static_cast<std::size_t>(lowest - joined.begin());
    ids[i] = *lowest;
    std::copy(ids.begin() + static_cast<long>(i) + 2, ids.begin() + static_cast<long>(n),
              ids.begin() + static_cast<long>(i) + 1);
    std::copy(joined.begin() + static_cast<long>(i) + 1, joined.begin() + static_cast<long>(n) - 1,
              joined.begin() + static_cast<long>(i));
    --n;
    if (i > 0) joined[i - 1] = merged(ids[i - 1], ids[i]);
    if (i + 1 < n) joined[i] = merged(ids[i], ids[i + 1]);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<long>(n));
}

void Bpe::merge_long(std::string_view piece, std::vector<Token>& out) const {
  struct Node {
    Token id;
    std::uint32_t previous;
    std::uint32_t next;
  };
  const auto n = static_cast<std::uint32_t>(piece.size());
  constexpr Token kGone = -1;
  std::vector<Node> nodes(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    nodes[i] = {vocabulary_.byte_token[static_cast<unsigned char>(piece[i])], i - 1, i + 1};
  }
  // product << 32 | position of the left part; stale entries are recognized when they come up
  std::vector<std::uint64_t> heap;
  heap.reserve(n);
  const auto candidate = [&](std::uint32_t i) {
    const std::uint32_t next = nodes[i].next;
    if (next == n) return false;
    const Token product = merged(nodes[i].id, nodes[next].id);
    if (product == kNoToken) return false;
    heap.push_back(static_cast<std::uint64_t>(product) << 32 | i);
    return true;
  };
  for (std::uint32_t i = 0; i < n; ++i) candidate(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const std::uint64_t top = heap.back();
    heap.pop_back();
    const auto i = static_cast<std::uint32_t>(top);
    const auto product = static_cast<Token>(top >> 32);
    Node& node = nodes[i];
    if (node.id == kGone || node.next == n || merged(node.id, nodes[node.next].id) != product)
      continue;
    node.id = product;
    nodes[node.next].id = kGone;
    node.next = nodes[node.next].next;
    if (node.next != n) nodes[node.next].previous = i;
    if (candidate(i)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    if (i != 0 && candidate(node.previous))
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
  }
  for (std::uint32_t i = 0; i < n; i = nodes[i].next) out.push_back(nodes[i].id);
}

}  // namespace kipp
