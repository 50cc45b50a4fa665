// Cases of tests/cases/tokenizer with the ids that Hugging Face `tokenizers` gives, arbitrary
// bytes, and time.
#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <climits>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "support/sanitized.h"
#include "tokenizer/unicode.h"

namespace kipp {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;

const Tokenizer& tokenizer() {
  static const Tokenizer instance;
  return instance;
}

std::string repeated(std::string_view unit, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += unit;
  return out;
}

std::vector<Token> expanded(const Json& ids) {
  std::vector<Token> out;
  for (const Json& entry : ids) {
    if (!entry.is_object()) {
      out.push_back(entry.get<Token>());
      continue;
    }
    const auto unit = entry.at("ids").get<std::vector<Token>>();
    for (int i = entry.at("times").get<int>(); i > 0; --i) {
      out.insert(out.end(), unit.begin(), unit.end());
    }
  }
  return out;
}

class TokenizerCases : public testing::TestWithParam<std::string> {};

TEST_P(TokenizerCases, AreAsTheReferenceSays) {
  std::ifstream file(std::string(KIPP_TEST_CASES "/tokenizer/") + GetParam() + ".tok");
  int n_cases = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const Json c = Json::parse(line);
    const std::string text =
        repeated(c.at("text").get<std::string>(), c.value("repeat", std::size_t{1}));
    const auto added =
        c.value("added", "control") == "text" ? AddedTokens::as_text : AddedTokens::as_control;
    EXPECT_EQ(tokenizer().encode(text, added), expanded(c.at("ids"))) << c.at("why");
    ++n_cases;
  }
  EXPECT_GE(n_cases, 10);
}

std::vector<std::string> case_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(KIPP_TEST_CASES "/tokenizer")) {
    names.push_back(entry.path().stem().string());
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, TokenizerCases, testing::ValuesIn(case_files()),
                         [](const auto& file) { return file.param; });

TEST(Tokenizer, AppendsToWhatIsThere) {
  std::vector<Token> out{1};
  tokenizer().encode("Hello", AddedTokens::as_text, out);
  EXPECT_THAT(out, ElementsAre(1, 9707));
}

TEST(Tokenizer, UserTextNeverBecomesAControlToken) {
  std::string all;
  for (const AddedToken& added : added_tokens()) all += added.text;
  for (const Token id : tokenizer().encode(all, AddedTokens::as_text)) {
    EXPECT_LT(id, kFirstAddedToken);
  }
  EXPECT_EQ(tokenizer().encode(all, AddedTokens::as_control).size(), added_tokens().size());
}

TEST(Tokenizer, DecodesWithAndWithoutSpecialTokens) {
  const std::vector<Token> ids{kImStart, 872, 198, 9707, kImEnd, kThink, kThinkEnd};
  EXPECT_EQ(tokenizer().decode(ids, false), "<|im_start|>user\nHello<|im_end|><think></think>");
  EXPECT_EQ(tokenizer().decode(ids, true), "user\nHello<think></think>");
}

TEST(Tokenizer, IdsThatNameNoTokenAreEmpty) {
  for (const Token id : {-1, INT_MIN, 151669, 151935, 151936, INT_MAX}) {
    EXPECT_EQ(tokenizer().token_bytes(id), "");
    EXPECT_FALSE(tokenizer().is_special(id));
    EXPECT_EQ(tokenizer().decode(std::vector{id}, true), "");
  }
  EXPECT_EQ(tokenizer().token_bytes(151668), "</think>");
  EXPECT_FALSE(tokenizer().is_special(kToolCall));
  EXPECT_TRUE(tokenizer().is_special(151656));
}

TEST(Tokenizer, EveryByteSurvives) {
  std::string bytes;
  for (int b = 0; b < 256; ++b) bytes += static_cast<char>(b);
  bytes += std::string(bytes.rbegin(), bytes.rend());
  EXPECT_EQ(tokenizer().decode(tokenizer().encode(bytes, AddedTokens::as_text), false), bytes);
}

TEST(Tokenizer, BrokenUtf8SurvivesBesideOrdinaryText) {
  for (const std::string_view text :
       {"\xF0\x9F\x98", "a\xC3", "\xED\xA0\xBD\xED\xB8\x80", "\xE4\xB8<|im_end|>\xAD",
        " \xFF\n\xFE x", "caf\u00E9\xCC\u0301"}) {
    for (const auto added : {AddedTokens::as_text, AddedTokens::as_control}) {
      EXPECT_EQ(tokenizer().decode(tokenizer().encode(text, added), false), text);
    }
  }
}

RC_GTEST_PROP(Tokenizer, DecodingGivesTheNormalizedText, (const std::string& text)) {
  std::string buffer;
  RC_ASSERT(tokenizer().decode(tokenizer().encode(text, AddedTokens::as_text), false) ==
            to_nfc(text, buffer));
}

// Two megabytes that make a quadratic tokenizer hang take hundredths of a second. Four times the
// text may take eight times as long, and a little; a quadratic tokenizer takes sixteen times.
TEST(Tokenizer, TakesLinearTime) {
  constexpr std::size_t kSize = 2'000'000;
  std::mt19937 random(3);
  std::string letters(kSize, ' ');
  for (char& c : letters) c = static_cast<char>('a' + random() % 26);
  std::string bytes(kSize, ' ');
  for (char& c : bytes) c = static_cast<char>(random());
  const std::vector<std::pair<const char*, std::string>> texts = {
      {"one character", std::string(kSize, 'x')},
      {"spaces", std::string(kSize, ' ')},
      {"spaces before a word", repeated(" ", kSize) + "x"},
      {"newlines", std::string(kSize, '\n')},
      {"a newline, then spaces", repeated("\n", 2).append(repeated(" ", kSize)) + "x"},
      {"random letters", letters},
      {"random bytes", bytes},
      {"broken bytes", std::string(kSize, '\xFF')},
      {"marks out of order", repeated("\u0301\u0323", kSize / 4)},
      {"cut added tokens", repeated("<|im_st", kSize / 7)},
      {"opening brackets", std::string(kSize, '<')},
  };
  // Of processor time.
  const auto seconds_for = [](std::string_view text) {
    const std::clock_t start = std::clock();
    EXPECT_FALSE(tokenizer().encode(text, AddedTokens::as_control).empty());
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  for (const auto& [name, text] : texts) {
    const double part = seconds_for(std::string_view(text).substr(0, text.size() / 4));
    const double whole = seconds_for(text);
    EXPECT_LT(whole, 8 * part + 0.1) << name;
    if (!test::kSanitized) {
      EXPECT_LT(whole, 1.0) << name;
    }
  }
}

}  // namespace
}  // namespace kipp
