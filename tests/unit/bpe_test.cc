// The linear encoder against the definition of BPE, and the property of the vocabulary that it
// needs.
#include "tokenizer/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kipp {
namespace {

const Bpe& bpe() {
  static const Bpe instance(qwen_vocabulary());
  return instance;
}

std::vector<Token> encode(std::string_view piece) {
  std::vector<Token> out;
  bpe().encode(piece, out);
  return out;
}

// BPE as defined: joins the pair of the lowest rank, the leftmost of equals, again and again.
std::vector<Token> merge_by_definition(std::string_view piece) {
  static const auto ranks = [] {
    std::map<std::pair<Token, Token>, Token> all;
    Token product = kByteTokens;
    for (const Merge& merge : qwen_vocabulary().merges) all[{merge.left, merge.right}] = product++;
    return all;
  }();
  std::vector<Token> ids;
  for (const char c : piece) {
    ids.push_back(qwen_vocabulary().byte_token[static_cast<unsigned char>(c)]);
  }
  while (true) {
    Token lowest = kFirstAddedToken;
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found != ranks.end() && found->second < lowest) {
        lowest = found->second;
        where = i;
      }
    }
    if (lowest == kFirstAddedToken) return ids;
    ids[where] = lowest;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

TEST(Bpe, EveryTokensBytesEncodeToIt) {
  for (Token id = 0; id < kFirstAddedToken; ++id) {
    const std::string_view bytes = qwen_vocabulary().token_bytes(id);
    ASSERT_THAT(encode(bytes), testing::ElementsAre(id)) << bytes;
  }
}

TEST(Bpe, AppendsToWhatIsThere) {
  std::vector<Token> out{7};
  bpe().encode("antidisestablishmentarianism", out);
  ASSERT_GT(out.size(), 2u);
  EXPECT_EQ(out[0], 7);
}

// Alphabets in which many merges compete: few letters, bytes, runs.
TEST(Bpe, EqualsTheDefinitionOnRandomStrings) {
  std::mt19937 random(20240519);
  const auto below = [&](std::size_t n) { return random() % n; };
  for (const std::string_view alphabet :
       {"ab", "aeint", "etaoinshrdlu", "= -", "\xE4\xB8\xAD\xE6\x96\x87",
        "\xF0\x9F\x98\x80\x81\x82", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"}) {
    for (int i = 0; i < 2000; ++i) {
      std::string piece(1 + below(40), ' ');
      for (char& c : piece) c = alphabet[below(alphabet.size())];
      ASSERT_EQ(encode(piece), merge_by_definition(piece)) << testing::PrintToString(piece);
    }
  }
}

// Tokens side by side, cut anywhere: near misses of whole tokens, which make the encoder step back.
TEST(Bpe, EqualsTheDefinitionOnPartsOfTokens) {
  std::mt19937 random(7);
  const auto part = [&] {
    const auto id = static_cast<Token>(random() % kFirstAddedToken);
    const std::string_view bytes = qwen_vocabulary().token_bytes(id);
    const std::size_t begin = random() % bytes.size();
    return std::string(random() % 2 == 0 ? bytes.substr(begin) : bytes.substr(0, begin + 1));
  };
  for (int i = 0; i < 10'000; ++i) {
    const std::string piece = part() + part() + part();
    ASSERT_EQ(encode(piece), merge_by_definition(piece)) << testing::PrintToString(piece);
  }
}

RC_GTEST_PROP(Bpe, EqualsTheDefinition, (const std::string& piece)) {
  RC_PRE(!piece.empty());
  RC_ASSERT(encode(piece) == merge_by_definition(piece));
}

TEST(Bpe, EqualsTheDefinitionOnALongPiece) {
  std::mt19937 random(1);
  std::string piece(3000, ' ');
  for (char& c : piece) c = static_cast<char>('a' + random() % 26);
  EXPECT_EQ(encode(piece), merge_by_definition(piece));
}

}  // namespace
}  // namespace kipp
