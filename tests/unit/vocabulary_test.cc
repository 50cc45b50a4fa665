// The compiled-in table. That it is Qwen's is checked by tests/python/test_vocabulary.py.
#include "tokenizer/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace kipp {
namespace {

TEST(Vocabulary, HoldsBytesMergesAndAddedTokens) {
  const Vocabulary& v = qwen_vocabulary();
  EXPECT_EQ(v.merges.size(), static_cast<std::size_t>(kMerges));
  EXPECT_EQ(kByteTokens + kMerges, kFirstAddedToken);
  EXPECT_EQ(v.begins.size(), static_cast<std::size_t>(kFirstAddedToken + kAddedTokens + 1));
  EXPECT_EQ(v.begins.back(), v.bytes.size());
  std::set<Token> bytes(v.byte_token.begin(), v.byte_token.end());
  EXPECT_EQ(bytes.size(), 256u);
  EXPECT_EQ(*bytes.rbegin(), 255);
}

TEST(Vocabulary, NamesKnownTokens) {
  const Vocabulary& v = qwen_vocabulary();
  EXPECT_EQ(v.token_bytes(0), "!");
  EXPECT_EQ(v.token_bytes(198), "\n");
  EXPECT_EQ(v.token_bytes(271), "\n\n");
  EXPECT_EQ(v.token_bytes(872), "user");
  EXPECT_EQ(v.token_bytes(8948), "system");
  EXPECT_EQ(v.token_bytes(9707), "Hello");
  EXPECT_EQ(v.token_bytes(77091), "assistant");
  EXPECT_EQ(v.token_bytes(kThinkEnd), "</think>");
}

TEST(Vocabulary, ATokenIsTheBytesOfItsParts) {
  const Vocabulary& v = qwen_vocabulary();
  for (std::size_t rank = 0; rank < v.merges.size(); ++rank) {
    const Merge& merge = v.merges[rank];
    ASSERT_EQ(v.token_bytes(static_cast<Token>(kByteTokens + rank)),
              std::string(v.token_bytes(merge.left)) + std::string(v.token_bytes(merge.right)));
  }
}

TEST(AddedTokens, AreTheTwentySix) {
  const auto added = added_tokens();
  ASSERT_EQ(added.size(), 26u);
  for (std::size_t i = 0; i < added.size(); ++i) {
    EXPECT_EQ(added[i].id, kFirstAddedToken + static_cast<Token>(i));
    EXPECT_EQ(added[i].special, added[i].id < kToolCall);
  }
  const auto text = [&](Token id) {
    return added[static_cast<std::size_t>(id - kFirstAddedToken)].text;
  };
  EXPECT_EQ(text(kEndOfText), "<|endoftext|>");
  EXPECT_EQ(text(kImStart), "<|im_start|>");
  EXPECT_EQ(text(kImEnd), "<|im_end|>");
  EXPECT_EQ(text(kToolCall), "<tool_call>");
  EXPECT_EQ(text(kToolCallEnd), "</tool_call>");
  EXPECT_EQ(text(kToolResponse), "<tool_response>");
  EXPECT_EQ(text(kToolResponseEnd), "</tool_response>");
  EXPECT_EQ(text(kThink), "<think>");
  EXPECT_EQ(text(kThinkEnd), "</think>");
}

// The encoder looks for one match, not for the longest of several.
TEST(AddedTokens, NoneBeginsAnother) {
  for (const AddedToken& a : added_tokens()) {
    for (const AddedToken& b : added_tokens()) {
      EXPECT_TRUE(a.id == b.id || !a.text.starts_with(b.text)) << a.text << ' ' << b.text;
    }
  }
}

TEST(Printable, SpellsBytesAsGpt2Does) {
  EXPECT_EQ(to_printable(" the\n"), "\u0120the\u010A");
  EXPECT_EQ(to_printable("\u00E9"), "\u00C3\u00A9");
  EXPECT_EQ(to_printable(std::string_view("\0\x7F\xAD", 3)), "\u0100\u0121\u0143");
}

}  // namespace
}  // namespace kipp
