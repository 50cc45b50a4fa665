// The split pattern, alternative by alternative. Equality with the regular expression itself is
// checked by tests/python/test_tokenizer_equality.py.
#include "tokenizer/pretokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

namespace kipp {
namespace {

using testing::ElementsAre;

std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> out;
  for (PieceScanner scanner(text); !scanner.done();) out.emplace_back(scanner.next());
  return out;
}

TEST(Pieces, NothingHasNone) { EXPECT_THAT(pieces(""), ElementsAre()); }

TEST(Pieces, Contractions) {
  EXPECT_THAT(pieces("it's"), ElementsAre("it", "'s"));
  EXPECT_THAT(pieces("WE'RE"), ElementsAre("WE", "'RE"));
  EXPECT_THAT(pieces("it'\u017Fat"), ElementsAre("it", "'\u017F", "at"));  // the long s is an s
  EXPECT_THAT(pieces("'sat"), ElementsAre("'s", "at"));
  EXPECT_THAT(pieces("'rx"), ElementsAre("'rx"));
  EXPECT_THAT(pieces("'r"), ElementsAre("'r"));
  EXPECT_THAT(pieces("'"), ElementsAre("'"));
  EXPECT_THAT(pieces(" 's"), ElementsAre(" '", "s"));
  EXPECT_THAT(pieces("''s"), ElementsAre("''", "s"));
}

TEST(Pieces, WordsTakeOneCharacterBeforeThem) {
  EXPECT_THAT(pieces("a b"), ElementsAre("a", " b"));
  EXPECT_THAT(pieces("a\tb"), ElementsAre("a", "\tb"));
  EXPECT_THAT(pieces("(b"), ElementsAre("(b"));
  EXPECT_THAT(pieces("((b"), ElementsAre("((", "b"));
  EXPECT_THAT(pieces("1b"), ElementsAre("1", "b"));
  EXPECT_THAT(pieces("\nb"), ElementsAre("\n", "b"));
  EXPECT_THAT(pieces("\u00A0b"), ElementsAre("\u00A0b"));
  EXPECT_THAT(pieces("\u0301b"), ElementsAre("\u0301b"));
}

TEST(Pieces, NumbersStandAlone) {
  EXPECT_THAT(pieces(" 12"), ElementsAre(" ", "1", "2"));
  EXPECT_THAT(pieces("\u0661\u2462"), ElementsAre("\u0661", "\u2462"));
}

TEST(Pieces, SymbolsTakeASpaceBeforeAndNewlinesAfter) {
  EXPECT_THAT(pieces(" !?\r\n\nx"), ElementsAre(" !?\r\n\n", "x"));
  EXPECT_THAT(pieces("\t!"), ElementsAre("\t", "!"));
  EXPECT_THAT(pieces("! \n"), ElementsAre("!", " \n"));
}

TEST(Pieces, WhiteSpace) {
  EXPECT_THAT(pieces("  x"), ElementsAre(" ", " x"));
  EXPECT_THAT(pieces("  1"), ElementsAre(" ", " ", "1"));
  EXPECT_THAT(pieces("x   "), ElementsAre("x", "   "));
  EXPECT_THAT(pieces("  \n  x"), ElementsAre("  \n", " ", " x"));
  EXPECT_THAT(pieces(" \n \r "), ElementsAre(" \n \r", " "));
  EXPECT_THAT(pieces("\u3000\u3000\u0085 !"), ElementsAre("\u3000\u3000\u0085", " !"));
}

TEST(Pieces, BrokenBytesAreSymbols) {
  EXPECT_THAT(pieces(" \xFF\xC3\n"), ElementsAre(" \xFF\xC3\n"));
  EXPECT_THAT(pieces("\xE4\xB8z"), ElementsAre("\xE4\xB8", "z"));
}

RC_GTEST_PROP(Pieces, JoinToTheText, (const std::string& text)) {
  std::string joined;
  for (const std::string& piece : pieces(text)) {
    RC_ASSERT(!piece.empty());
    joined += piece;
  }
  RC_ASSERT(joined == text);
}

}  // namespace
}  // namespace kipp
