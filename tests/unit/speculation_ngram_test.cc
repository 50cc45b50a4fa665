// Prompt lookup: the index finds what a search through the whole timeline finds, and the draft is
// what followed there.
#include "engine/ngram_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "support/property.h"

namespace kipp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The specification of NgramIndex::find.
std::optional<NgramIndex::Match> naive_find(std::span<const Token> timeline) {
  const auto size = static_cast<int>(timeline.size());
  for (std::size_t level = NgramIndex::kLengths.size(); level-- > 0;) {
    const int length = NgramIndex::kLengths[level];
    const auto run = [&](int end) {
      return timeline.subspan(static_cast<std::size_t>(end - length),
                              static_cast<std::size_t>(length));
    };
    for (int end = size - 1; end >= length; --end) {
      if (std::ranges::equal(run(end), run(size))) {
        return NgramIndex::Match{.end = end, .length = length, .level = static_cast<int>(level)};
      }
    }
  }
  return std::nullopt;
}

std::vector<Token> drafted(std::vector<Token> timeline, int n) {
  NgramDrafter drafter;
  std::vector<Token> out;
  if (drafter.look(timeline)) {
    EXPECT_TRUE(drafter.draft(timeline, n, out));
  }
  return out;
}

TEST(NgramIndex, FindsWhatANaiveSearchFinds) {
  test::property(300, [] {
    // Few different tokens repeat a lot; negative and large ones are as good as any.
    const int letters = *test::among(1, 12);
    const Token first = *rc::gen::element<Token>(0, -3, 151'000, 2'147'000'000);
    const int length = *test::among(1, 400);
    std::vector<Token> all;
    NgramIndex index;
    while (static_cast<int>(all.size()) < length) {
      // Copies of earlier parts, so that long matches exist among many letters too.
      const int copied = all.empty() ? 0 : *test::among(0, 30);
      const auto from =
          static_cast<std::size_t>(*test::among<int>(0, static_cast<int>(all.size()) + 1));
      for (int i = 0; i < copied && from + static_cast<std::size_t>(i) < all.size(); ++i) {
        all.push_back(Token{all[from + static_cast<std::size_t>(i)]});
      }
      const int fresh = *test::among(1, 8);
      for (int i = 0; i < fresh; ++i) all.push_back(first + *test::among(0, letters));
    }
    // Looked at after any number of new tokens.
    for (std::size_t size = 0; size <= all.size();
         size += static_cast<std::size_t>(*test::among(1, 6))) {
      const auto timeline = std::span(all).first(size);
      const auto found = index.find(timeline);
      const auto expected = naive_find(timeline);
      RC_ASSERT(found.has_value() == expected.has_value());
      if (!found) continue;
      RC_ASSERT(found->end == expected->end);
      RC_ASSERT(found->length == expected->length);
      RC_ASSERT(found->level == expected->level);
    }
  });
}

// A search through chains of equal runs would take minutes here.
TEST(NgramIndex, RepetitiveTextCostsNoMoreThanOther) {
  constexpr int kTokens = 100'000;
  std::vector<Token> all(kTokens, 5);
  for (std::size_t i = 0; i < all.size(); i += 1000) all[i] = 6;
  NgramIndex index;
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t size = 1; size <= all.size(); ++size) index.find(std::span(all).first(size));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 10);
}

TEST(NgramDrafter, ProposesWhatFollowedTheLatestOccurrence) {
  EXPECT_THAT(drafted({1, 2, 3, 4, 9, 1, 2, 5, 6, 7, 1, 2}, 3), ElementsAre(5, 6, 7));
  // A longer match counts more than a later one.
  EXPECT_THAT(drafted({8, 1, 2, 3, 4, 1, 2, 5, 6, 8, 1, 2}, 2), ElementsAre(3, 4));
}

TEST(NgramDrafter, GoesOnRoundALoop) {
  EXPECT_THAT(drafted({9, 1, 2, 3, 1, 2, 3}, 7), ElementsAre(1, 2, 3, 1, 2, 3, 1));
  EXPECT_THAT(drafted({4, 4, 4}, 5), ElementsAre(4, 4, 4, 4, 4));
}

TEST(NgramDrafter, HasNoIdeaWhereNothingRepeats) {
  EXPECT_THAT(drafted({}, 3), IsEmpty());
  EXPECT_THAT(drafted({1}, 3), IsEmpty());
  EXPECT_THAT(drafted({1, 1}, 3), IsEmpty());  // one token is no evidence
  EXPECT_THAT(drafted({1, 2, 3, 4, 1}, 3), IsEmpty());
}

TEST(NgramDrafter, LongerMatchesAreOtherKindsAndLikelier) {
  std::vector<Token> passage;
  for (Token i = 0; i < 20; ++i) passage.push_back(100 + i);
  NgramDrafter drafter;
  std::vector<Token> timeline = passage;
  timeline.push_back(7);
  int kind = -1;
  double likely = 0;
  for (const Token token : passage) {
    timeline.push_back(token);
    const auto prospect = drafter.look(timeline);
    if (!prospect) continue;
    EXPECT_TRUE(prospect->free());
    EXPECT_GE(prospect->kind, kind);
    EXPECT_GE(prospect->likely, likely);
    kind = prospect->kind;
    likely = prospect->likely;
  }
  EXPECT_EQ(kind, static_cast<int>(NgramIndex::kLengths.size()) - 1);
}

}  // namespace
}  // namespace kipp
