#include "tokenizer/vocabulary.h"

#include <zstd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tokenizer/unicode.h"

extern "C" {
extern const unsigned char kipp_qwen3_vocabulary[];
extern const unsigned char kipp_qwen3_vocabulary_end[];
}

namespace kipp {
namespace {

constexpr std::array<AddedToken, kAddedTokens> kAdded{{
    {151643, "<|endoftext|>", true},      {151644, "<|im_start|>", true},
    {151645, "<|im_end|>", true},         {151646, "<|object_ref_start|>", true},
    {151647, "<|object_ref_end|>", true}, {151648, "<|box_start|>", true},
    {151649, "<|box_end|>", true},        {151650, "<|quad_start|>", true},
    {151651, "<|quad_end|>", true},       {151652, "<|vision_start|>", true},
    {151653, "<|vision_end|>", true},     {151654, "<|vision_pad|>", true},
    {151655, "<|image_pad|>", true},      {151656, "<|video_pad|>", true},
    {151657, "<tool_call>", false},       {151658, "</tool_call>", false},
    {151659, "<|fim_prefix|>", false},    {151660, "<|fim_middle|>", false},
    {151661, "<|fim_suffix|>", false},    {151662, "<|fim_pad|>", false},
    {151663, "<|repo_name|>", false},     {151664, "<|file_sep|>", false},
    {151665, "<tool_response>", false},   {151666, "</tool_response>", false},
    {151667, "<think>", false},           {151668, "</think>", false},
}};

// The table is part of the program: if it is broken, so is the program, and nobody could handle
// that.
[[noreturn]] void broken_build(const char* what) {
  std::fprintf(stderr, "kipp: the compiled-in vocabulary is damaged: %s\n", what);
  std::abort();
}

// "KQV1", 256 byte values by token, u32 merge count, then the left and the right ids of all merges,
// each as three planes of one byte per merge, low byte first. Planes compress far better than whole
// numbers.
constexpr std::size_t kMagicSize = 4;
constexpr std::size_t kCountAt = kMagicSize + kByteTokens;
constexpr std::size_t kPlanesAt = kCountAt + 4;
constexpr std::size_t kTableSize = kPlanesAt + std::size_t{6} * kMerges;

std::vector<unsigned char> unpack_table() {
  std::vector<unsigned char> table(kTableSize);
  const auto packed = static_cast<std::size_t>(kipp_qwen3_vocabulary_end - kipp_qwen3_vocabulary);
  const std::size_t n = ZSTD_decompress(table.data(), table.size(), kipp_qwen3_vocabulary, packed);
  if (n != kTableSize) broken_build("it does not unpack to its size");
  if (std::memcmp(table.data(), "KQV1", kMagicSize) != 0)
    broken_build("it does not begin with KQV1");
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < 4; ++i) count |= std::uint32_t{table[kCountAt + i]} << (8 * i);
  if (count != kMerges) broken_build("its number of merges is wrong");
  return table;
}

std::unique_ptr<const Vocabulary> build_vocabulary() {
  const std::vector<unsigned char> table = unpack_table();
  auto vocabulary = std::make_unique<Vocabulary>();
  Vocabulary& v = *vocabulary;
  v.bytes.reserve(std::size_t{1} << 20);
  v.begins.reserve(kFirstAddedToken + kAddedTokens + 1);
  v.begins.push_back(0);
  const auto end_token = [&] { v.begins.push_back(static_cast<std::uint32_t>(v.bytes.size())); };

  for (Token id = 0; id < kByteTokens; ++id) {
    const unsigned char byte = table[kMagicSize + static_cast<std::size_t>(id)];
    v.byte_token[byte] = id;
    v.bytes += static_cast<char>(byte);
    end_token();
  }
  v.merges.resize(kMerges);
  const auto id_at = [&](std::size_t plane, std::size_t rank) {
    const unsigned char* p = table.data() + kPlanesAt + plane * kMerges + rank;
    return static_cast<Token>(p[0] | p[kMerges] << 8 | p[2 * std::size_t{kMerges}] << 16);
  };
  for (std::size_t rank = 0; rank < kMerges; ++rank) {
    const Merge merge{id_at(0, rank), id_at(3, rank)};
    const auto product = static_cast<Token>(kByteTokens + rank);
    if (merge.left >= product || merge.right >= product) broken_build("a merge precedes its parts");
    v.merges[rank] = merge;
    for (const Token part : {merge.left, merge.right}) {
      const auto i = static_cast<std::size_t>(part);
      v.bytes.append(v.bytes, v.begins[i], v.begins[i + 1] - v.begins[i]);
    }
    end_token();
  }
  for (const AddedToken& added : kAdded) {
    v.bytes += added.text;
    end_token();
  }
  return vocabulary;
}

}  // namespace

std::span<const AddedToken> added_tokens() { return kAdded; }

const Vocabulary& qwen_vocabulary() {
  static const std::unique_ptr<const Vocabulary> vocabulary = build_vocabulary();
  return *vocabulary;
}

std::string to_printable(std::string_view bytes) {
  // Bytes that print as they are: ! to ~, U+00A1 to U+00AC, U+00AE to U+00FF. The others follow
  // from U+0100 on.
  const auto prints = [](unsigned b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
  };
  std::array<char32_t, 256> alphabet;
  char32_t next = 0x100;
  for (unsigned b = 0; b < 256; ++b) alphabet[b] = prints(b) ? char32_t{b} : next++;
  std::string out;
  for (const char c : bytes) append_utf8(out, alphabet[static_cast<unsigned char>(c)]);
  return out;
}

}  // namespace kipp
