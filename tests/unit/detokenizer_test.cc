// Streaming decode: whole characters only, and together exactly the text of everything.
#include "tokenizer/detokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "tokenizer/unicode.h"

namespace kipp {
namespace {

using testing::ElementsAre;

const Tokenizer& tokenizer() {
  static const Tokenizer instance;
  return instance;
}

Token byte_token(unsigned char byte) { return qwen_vocabulary().byte_token[byte]; }

std::vector<Token> byte_tokens(std::string_view bytes) {
  std::vector<Token> ids;
  for (const char c : bytes) ids.push_back(byte_token(static_cast<unsigned char>(c)));
  return ids;
}

// Every push and, last, what finish() gives.
std::vector<std::string> stream(const std::vector<Token>& ids, bool skip_special = false) {
  Detokenizer detokenizer(tokenizer(), skip_special);
  std::vector<std::string> parts;
  for (const Token id : ids) parts.push_back(detokenizer.push(id));
  parts.push_back(detokenizer.finish());
  return parts;
}

TEST(ToValidUtf8, ReplacesEachMaximalPrefixOnce) {
  EXPECT_EQ(to_valid_utf8("plain \u00E9\u4E2D\U0001F600"), "plain \u00E9\u4E2D\U0001F600");
  EXPECT_EQ(to_valid_utf8("\uFFFD"), "\uFFFD");
  EXPECT_EQ(to_valid_utf8("\xFF"), "\uFFFD");
  EXPECT_EQ(to_valid_utf8("\x80\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(to_valid_utf8("\xF0\x9F\x98"), "\uFFFD");  // one character, cut
  EXPECT_EQ(to_valid_utf8("\xF0\x9F\x98z"), "\uFFFDz");
  EXPECT_EQ(to_valid_utf8("\xF0\x9F\xF0\x9F\x98\x80"), "\uFFFD\U0001F600");
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"),
            "\uFFFD\uFFFD\uFFFD");  // a surrogate: no prefix of it is valid
  EXPECT_EQ(to_valid_utf8("\xC0\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(to_valid_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(to_valid_utf8("a\xE4\xB8"), "a\uFFFD");
}

TEST(Detokenizer, HoldsBackHalfACharacter) {
  EXPECT_THAT(stream(byte_tokens("\U0001F600!")), ElementsAre("", "", "", "\U0001F600", "!", ""));
}

TEST(Detokenizer, ReplacesWhatStaysIncomplete) {
  EXPECT_THAT(stream(byte_tokens("a\xF0\x9F")), ElementsAre("a", "", "", "\uFFFD"));
  EXPECT_THAT(stream(byte_tokens("\xF0\x9Fz")), ElementsAre("", "", "\uFFFDz", ""));
}

TEST(Detokenizer, IsEmptyAfterFinish) {
  Detokenizer detokenizer(tokenizer(), false);
  detokenizer.push(byte_token(0xF0));
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.finish(), "");
  EXPECT_EQ(detokenizer.push(9707), "Hello");
}

TEST(Detokenizer, LeavesSpecialTokensOut) {
  EXPECT_THAT(stream({kImStart, 9707, kThink}, true), ElementsAre("", "Hello", "<think>", ""));
  EXPECT_THAT(stream({kImStart, 9707}, false), ElementsAre("<|im_start|>", "Hello", ""));
  EXPECT_THAT(stream({-1, 151'700, 9707}), ElementsAre("", "", "Hello", ""));
}

// An id that, more often than chance would have it, ends inside a character.
rc::Gen<Token> any_token() {
  return rc::gen::oneOf(
      rc::gen::inRange<Token>(0, 151'680), rc::gen::inRange<Token>(0, 256),
      rc::gen::map(rc::gen::inRange(0x80, 0x100),
                   [](int byte) { return byte_token(static_cast<unsigned char>(byte)); }),
      rc::gen::elementOf(tokenizer().encode(
          "\uFFFD\U0001F30A\U0001F3D6\uFE0F\U0001F468\u200D\U0001F467", AddedTokens::as_text)));
}

RC_GTEST_PROP(Detokenizer, StreamsWhatDecodingAtOnceGives, (bool skip_special)) {
  const auto ids = *rc::gen::container<std::vector<Token>>(any_token());
  std::string joined;
  for (const std::string& part : stream(ids, skip_special)) {
    RC_ASSERT(to_valid_utf8(part) == part);  // never half a character
    joined += part;
  }
  RC_ASSERT(joined == to_valid_utf8(tokenizer().decode(ids, skip_special)));
}

// A character leaves with the token that completes it: nothing waits that cannot grow into a
// character.
RC_GTEST_PROP(Detokenizer, HoldsBackNoMoreThanItMust, ()) {
  const auto ids = *rc::gen::container<std::vector<Token>>(any_token());
  Detokenizer detokenizer(tokenizer(), false);
  std::string so_far;
  std::vector<Token> seen;
  for (const Token id : ids) {
    so_far += detokenizer.push(id);
    seen.push_back(id);
    const std::string all = to_valid_utf8(tokenizer().decode(seen, false));
    RC_ASSERT(so_far == all || so_far + "\uFFFD" == all);
  }
}

}  // namespace
}  // namespace kipp
