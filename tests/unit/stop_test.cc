// Stop strings: nothing of one is ever emitted, whatever the tokens' borders are.
#include "engine/stop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace kipp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

StopMatcher matcher_of(std::vector<std::string> stops) {
  auto matcher = StopMatcher::create(std::move(stops));
  EXPECT_TRUE(matcher.has_value()) << matcher.error().message;
  return *matcher;
}

// What each push emits, then what finish emits.
std::vector<std::string> emitted(StopMatcher& matcher, const std::vector<std::string>& pieces) {
  std::vector<std::string> out;
  for (const std::string& piece : pieces) out.push_back(matcher.push(piece));
  out.push_back(matcher.finish());
  return out;
}

std::string joined(const std::vector<std::string>& pieces) {
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  return all;
}

TEST(StopMatcher, EmitsNothingOfAStopThatSpansTokens) {
  StopMatcher matcher = matcher_of({"DEFGHIJ"});
  EXPECT_THAT(emitted(matcher, {"ABC", "DE", "FGH", "IJK", "L"}),
              ElementsAre("ABC", "", "", "", "", ""));
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.matched_stop(), "DEFGHIJ");
}

TEST(StopMatcher, CutsAcrossWordBorders) {
  StopMatcher matcher = matcher_of({"beta gamma"});
  EXPECT_EQ(joined(emitted(matcher, {"alpha", " beta", " delta beta", " gam", "ma delta"})),
            "alpha beta delta ");
}

TEST(StopMatcher, CutsInsideAToken) {
  StopMatcher dots = matcher_of({".."});
  EXPECT_EQ(joined(emitted(dots, {"wait", "...", "x"})), "wait");
  StopMatcher digit = matcher_of({"5"});
  EXPECT_EQ(joined(emitted(digit, {"12", "3456"})), "1234");
  StopMatcher lines = matcher_of({"\n\n"});
  EXPECT_EQ(joined(emitted(lines, {"a\n", "\nb"})), "a");
  StopMatcher emoji = matcher_of({"🌊"});
  EXPECT_EQ(joined(emitted(emoji, {"sea 🌊🏖️"})), "sea ");
}

TEST(StopMatcher, ReleasesWhatTurnsOutNotToBeAStop) {
  StopMatcher matcher = matcher_of({"aab"});
  EXPECT_THAT(emitted(matcher, {"xa", "a", "a", "c", "aa"}),
              ElementsAre("x", "", "a", "aac", "", "aa"));
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, TheEarliestMatchWins) {
  StopMatcher nested = matcher_of({"bc", "abcd"});
  EXPECT_THAT(emitted(nested, {"xabc", "d"}), ElementsAre("x", "", ""));
  EXPECT_EQ(nested.matched_stop(), "abcd");
  StopMatcher decided = matcher_of({"bc", "abcd"});
  EXPECT_THAT(emitted(decided, {"xabc", "e"}), ElementsAre("x", "a", ""));
  EXPECT_EQ(decided.matched_stop(), "bc");
  StopMatcher ended = matcher_of({"bc", "abcd"});
  EXPECT_THAT(emitted(ended, {"xabc"}), ElementsAre("x", "a"));
  EXPECT_TRUE(ended.matched());
  StopMatcher together = matcher_of({"abc", "ab"});
  EXPECT_THAT(emitted(together, {"xabc"}), ElementsAre("x", ""));
  EXPECT_EQ(together.matched_stop(), "ab");
}

TEST(StopMatcher, WithoutStopsEverythingPassesAtOnce) {
  StopMatcher matcher = matcher_of({});
  EXPECT_THAT(emitted(matcher, {"a", "bc"}), ElementsAre("a", "bc", ""));
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, RefusesBadStops) {
  EXPECT_THAT(StopMatcher::create({"a", ""}).error().message, HasSubstr("stop[1]"));
  EXPECT_THAT(StopMatcher::create({"1", "2", "3", "4", "5"}).error().message,
              HasSubstr("at most 4 strings, found 5"));
  EXPECT_THAT(StopMatcher::create({"\x8f"}).error().message, HasSubstr("UTF-8"));
}

RC_GTEST_PROP(StopMatcher, OutputIsTheTextCutAtTheEarliestMatchForAllSplits, ()) {
  const auto letter =
      rc::gen::elementOf(std::string("ab"));  // few letters, so that matches are many
  const auto word = [&](std::size_t longest) {
    return rc::gen::resize(static_cast<int>(longest), rc::gen::container<std::string>(letter));
  };
  const auto stops = *rc::gen::resize(
      kMaxStopStrings, rc::gen::container<std::vector<std::string>>(rc::gen::nonEmpty(word(9))));
  RC_PRE(stops.size() <= static_cast<std::size_t>(kMaxStopStrings));
  const auto pieces = *rc::gen::container<std::vector<std::string>>(word(5));

  const std::string text = joined(pieces);
  std::size_t cut = std::string::npos;
  std::size_t longest = 1;
  for (const std::string& stop : stops) {
    cut = std::min(cut, text.find(stop));
    longest = std::max(longest, stop.size());
  }

  StopMatcher matcher = matcher_of(stops);
  std::string out;
  std::size_t pushed = 0;
  for (const std::string& piece : pieces) {
    out += matcher.push(piece);
    pushed += piece.size();
    // No more waits than could still become a stop string.
    RC_ASSERT(matcher.matched() || pushed - out.size() < longest);
  }
  out += matcher.finish();
  RC_ASSERT(out == text.substr(0, cut));
  RC_ASSERT(matcher.matched() == (cut != std::string::npos));
  if (matcher.matched()) {
    RC_ASSERT(text.substr(cut).starts_with(matcher.matched_stop()));
    RC_ASSERT(matcher.push("more").empty());
  }
}

}  // namespace
}  // namespace kipp
