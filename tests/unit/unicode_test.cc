// UTF-8, character classes and NFC. That characters are as in Hugging Face `tokenizers` is
// checked by tests/python/test_tokenizer_equality.py.
#include "tokenizer/unicode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kipp {
namespace {

std::string nfc(std::string_view text) {
  std::string buffer;
  return std::string(to_nfc(text, buffer));
}

std::string utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

TEST(Utf8, EveryScalarValueSurvives) {
  std::string bytes;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c == 0xD800) c = 0xE000;
    bytes.clear();
    append_utf8(bytes, c);
    const Utf8Char decoded = decode_utf8(bytes, 0);
    ASSERT_EQ(decoded.code_point, c);
    ASSERT_EQ(decoded.size, bytes.size());
  }
}

TEST(Utf8, WhatIsNotWellFormedIsOneByte) {
  const std::vector<std::string> bad = {
      "\x80",              // a continuation alone
      "\xC0\x80",          // overlong NUL
      "\xC1\xBF",          // overlong
      "\xE0\x9F\xBF",      // overlong
      "\xF0\x8F\xBF\xBF",  // overlong
      "\xED\xA0\x80",      // a surrogate
      "\xED\xBF\xBF",      // a surrogate
      "\xF4\x90\x80\x80",  // above U+10FFFF
      "\xF5\x80\x80\x80",
      "\xFF",
      "\xC3",  // cut
      "\xE4\xB8",
      "\xF0\x9F\x98",
      "\xC3(",  // interrupted
      "\xE4\xB8(",
      "\xF0\x9F\x98(",
  };
  for (const std::string& bytes : bad) {
    const Utf8Char decoded = decode_utf8(bytes, 0);
    EXPECT_EQ(decoded.code_point, kInvalidByte) << testing::PrintToString(bytes);
    EXPECT_EQ(decoded.size, 1u) << testing::PrintToString(bytes);
  }
}

TEST(Utf8, DoesNotReadPastTheEnd) {
  const std::string text = "\xF0\x9F\x98\x80";
  EXPECT_EQ(decode_utf8(std::string_view(text).substr(0, 3), 0).code_point, kInvalidByte);
  EXPECT_EQ(decode_utf8(text, 0).code_point, char32_t{0x1F600});
}

TEST(CharClasses, FollowThePattern) {
  const CharTable& table = CharTable::instance();
  const auto all = [&](std::u32string_view text, CharClass expected) {
    for (const char32_t c : text) {
      EXPECT_EQ(table.char_class(c), expected) << std::hex << static_cast<std::uint32_t>(c);
    }
  };
  all(U"azAZ\u00AA\u00E9\u017F\u01C5\u02B0\u0627\u4E2D\uAC00\U00010400\U00016D40",
      CharClass::letter);
  all(U"09\u00B2\u00BD\u0660\u2167\u2460\u3007\uFF10\U0001D7CE\U000116D0", CharClass::number);
  all(U"\t\v\f \u0085\u00A0\u1680\u2000\u200A\u2028\u2029\u202F\u205F\u3000", CharClass::space);
  all(U"\r\n", CharClass::newline);
  all(U"!_~\u001C\u0301\u093F\u180E\u200B\u200D\u20DD\uFE0F\uFEFF\U0001F600\U0010FFFF",
      CharClass::other);
  EXPECT_EQ(table.char_class(kInvalidByte), CharClass::other);
}

TEST(Nfc, NormalTextIsNotCopied) {
  for (const std::string_view text :
       {"", "plain ASCII text, longer than a word", "na\u00EFve Stra\u00DFe",
        "\u4E2D\u6587\uAC00\U0001F600", "\xFF\xC3"}) {
    std::string buffer;
    EXPECT_EQ(to_nfc(text, buffer).data(), text.data()) << text;
  }
}

TEST(Nfc, Composes) {
  EXPECT_EQ(nfc("Cafe\u0301"), "Caf\u00E9");
  EXPECT_EQ(nfc("\u212B"), "\u00C5");
  EXPECT_EQ(nfc("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(nfc("\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C");  // excluded from composition
  EXPECT_EQ(nfc("a\u0323\u0307"), nfc("a\u0307\u0323"));
  EXPECT_EQ(nfc("a\u0307\u0323"), "\u1EA1\u0307");
  EXPECT_EQ(nfc("\u00E9\u0323"), "\u1EB9\u0301");  // the mark reaches into the composite before it
  EXPECT_EQ(nfc("\u0CC6\u0CC2\u0CD5"), "\u0CCB");  // starters that compose with each other
  EXPECT_EQ(nfc("\U000110A5\U000110BA"), "\U000110AB");
  EXPECT_EQ(nfc("a\u0305\u0301"), "a\u0305\u0301");  // blocked by a mark of the same class
  EXPECT_EQ(nfc("\u0301a"), "\u0301a");
  EXPECT_EQ(nfc("\uFB01\u2460"), "\uFB01\u2460");  // compatibility forms stay
}

TEST(Nfc, KnowsNothingThatCameAfterUnicode9) {
  EXPECT_EQ(nfc("\U00011935\U00011930"), "\U00011935\U00011930");
  EXPECT_EQ(nfc("\U00011938"), "\U00011938");
  EXPECT_EQ(nfc("a\u1ACD\u0316"), "a\u1ACD\u0316");
}

TEST(Nfc, ChangesOnlyWhatNeedsIt) {
  EXPECT_EQ(nfc("before e\u0301 between o\u0308 after"), "before \u00E9 between \u00F6 after");
  EXPECT_EQ(nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(nfc("12345678e\u0301"), "12345678\u00E9");
}

TEST(Nfc, BrokenBytesStayAndSeparate) {
  EXPECT_EQ(nfc("e\xFF\u0301"), "e\xFF\u0301");
  EXPECT_EQ(nfc("\xC3\u0301e\u0301\xE4\xB8"), "\xC3\u0301\u00E9\xE4\xB8");
  EXPECT_EQ(nfc("\xCC"), "\xCC");  // the first byte of a mark
  EXPECT_EQ(nfc("e\u0301\xCC"), "\u00E9\xCC");
}

TEST(Nfc, SortsLongRunsOfMarks) {
  std::u32string marks = U"a";
  std::u32string sorted = U"\u1EA1";
  for (int i = 0; i < 100'000; ++i) marks += U"\u0301\u0323";
  sorted += std::u32string(99'999, U'\u0323') + std::u32string(100'000, U'\u0301');
  EXPECT_EQ(nfc(utf8(marks)), utf8(sorted));
}

}  // namespace
}  // namespace kipp
