#include "engine/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/tiny_model.h"

namespace kipp {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Pair;

constexpr int kBlocks = 30;

class SessionTest : public testing::Test {
 protected:
  Session create(int capacity, CacheSalt salt = 0) {
    auto session = Session::create(model_, capacity, salt);
    EXPECT_TRUE(session) << session.error().message;
    return *std::move(session);
  }
  static std::vector<float> logits(const Session& session) {
    return {session.logits().begin(), session.logits().end()};
  }
  // What a session that never saw anything else computes.
  std::vector<float> cold(std::span<const Token> prompt) {
    Session session = create(128, ++salt_);
    EXPECT_EQ(session.sync(prompt).value(), 0);
    return logits(session);
  }

  const std::shared_ptr<Model> model_ = test::open_twin_model("tiny-tied", Scheme::bf16, kBlocks);
  const std::vector<Token> prompt_ = test::random_tokens(80, 1);
  CacheSalt salt_ = 0;
};

TEST_F(SessionTest, ReusesTheCommonPrefix) {
  Session session = create(128);
  EXPECT_THAT(session.sync(prompt_).value(), 0);
  EXPECT_THAT(session.tokens(), ElementsAreArray(prompt_));

  auto longer = prompt_;
  longer.insert(longer.end(), {7, 8, 9});
  EXPECT_EQ(session.sync(longer).value(), 80);
  EXPECT_EQ(logits(session), cold(longer));

  auto other = longer;
  other[50] = other[50] == 1 ? 2 : 1;
  EXPECT_EQ(session.sync(other).value(), 50);
  EXPECT_EQ(logits(session), cold(other));
  EXPECT_THAT(session.tokens(), ElementsAreArray(other));

  // A prefix of what is there: everything but its last token is kept, which is evaluated for its
  // logits.
  const auto shorter = std::span(other).first(60);
  EXPECT_EQ(session.sync(shorter).value(), 59);
  EXPECT_EQ(logits(session), cold(shorter));
  EXPECT_EQ(session.sync(shorter).value(), 59);
  EXPECT_EQ(logits(session), cold(shorter));
  EXPECT_EQ(session.tokens().size(), 60u);

  EXPECT_EQ(session.sync(session.tokens()).value(), 59);
  EXPECT_EQ(logits(session), cold(shorter));

  const std::vector<Token> unrelated = {other[0] == 5 ? 6 : 5};
  EXPECT_EQ(session.sync(unrelated).value(), 0);
  EXPECT_EQ(logits(session), cold(unrelated));
}

TEST_F(SessionTest, AppendsAndScores) {
  Session session = create(128);
  ASSERT_TRUE(session.sync(std::span(prompt_).first(70)));
  for (std::size_t i = 70; i < 74; ++i) ASSERT_TRUE(session.append(prompt_[i]));
  EXPECT_EQ(logits(session), cold(std::span(prompt_).first(74)));

  const auto scored = session.append_scored(std::span(prompt_).subspan(74));
  ASSERT_TRUE(scored);
  ASSERT_EQ(scored->rows, 6);
  std::vector<std::vector<float>> rows;
  for (int r = 0; r < 6; ++r) rows.emplace_back(scored->row(r).begin(), scored->row(r).end());
  EXPECT_EQ(logits(session), rows.back());
  for (std::size_t r = 0; r < 6; ++r) EXPECT_EQ(rows[r], cold(std::span(prompt_).first(75 + r)));
  EXPECT_THAT(session.tokens(), ElementsAreArray(prompt_));
}

TEST_F(SessionTest, TruncatesAndResumes) {
  Session session = create(128);
  ASSERT_TRUE(session.sync(prompt_));
  ASSERT_TRUE(session.truncate(80));
  EXPECT_FALSE(session.logits().empty()) << "nothing was forgotten";
  ASSERT_TRUE(session.truncate(33));
  EXPECT_TRUE(session.logits().empty()) << "the logits of position 32 are not known";
  EXPECT_EQ(session.tokens().size(), 33u);
  ASSERT_TRUE(session.append(11));
  auto expected = std::vector(prompt_.begin(), prompt_.begin() + 33);
  expected.push_back(11);
  EXPECT_EQ(logits(session), cold(expected));
  ASSERT_TRUE(session.truncate(0));
  EXPECT_TRUE(session.tokens().empty());
  EXPECT_EQ(session.sync(prompt_).value(), 64) << "its full blocks are found again";
  EXPECT_EQ(logits(session), cold(prompt_));

  EXPECT_THAT(session.truncate(81).error().message, HasSubstr("expected 0 to 80 tokens, found 81"));
  EXPECT_FALSE(session.truncate(-1));
  EXPECT_EQ(session.tokens().size(), 80u);
}

TEST_F(SessionTest, StopsBetweenChunksAndGoesOn) {
  const auto prompt = test::random_tokens(600, 2);
  Session session = create(640);
  std::atomic<bool> cancel = false;
  std::vector<std::pair<int, int>> seen;
  const auto stopped = session.sync(
      prompt,
      [&](int done, int total) {
        seen.emplace_back(done, total);
        cancel = done > 0;
      },
      &cancel);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::interrupted);
  EXPECT_THAT(stopped.error().message, HasSubstr("after 512 of 600 tokens"));
  EXPECT_THAT(seen, ElementsAre(Pair(0, 600), Pair(512, 600)));
  EXPECT_EQ(session.tokens().size(), 512u) << "what was evaluated is kept";
  EXPECT_TRUE(session.logits().empty());

  cancel = false;
  seen.clear();
  const auto resumed = session.sync(
      prompt, [&](int done, int total) { seen.emplace_back(done, total); }, &cancel);
  EXPECT_EQ(resumed.value(), 512);
  EXPECT_THAT(seen, ElementsAre(Pair(512, 600), Pair(600, 600)));
  EXPECT_EQ(session.logits().size(), static_cast<std::size_t>(kVocabRows));

  cancel = true;
  EXPECT_EQ(session.sync(std::span(prompt).first(10), {}, &cancel).error().code,
            ErrorCode::interrupted);
  EXPECT_EQ(session.tokens().size(), 9u) << "the common prefix";
  EXPECT_TRUE(session.logits().empty())
      << "those of another timeline must not be taken for its own";
}

TEST_F(SessionTest, RefusesBadPromptsAndStaysAsItWas) {
  Session session = create(100);
  ASSERT_TRUE(session.sync(prompt_));
  const auto before = logits(session);
  auto bad = prompt_;
  bad[70] = kNamedTokens;
  bad[3] = 1;

  const auto unnamed = session.sync(bad);
  ASSERT_FALSE(unnamed);
  EXPECT_EQ(unnamed.error().code, ErrorCode::invalid);
  EXPECT_THAT(unnamed.error().message,
              HasSubstr("prompt[70]: expected a token id from 0 to 151668"));
  EXPECT_EQ(session.sync({}).error().code, ErrorCode::invalid);
  const auto too_long = session.sync(test::random_tokens(101, 3));
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, ErrorCode::exhausted);
  EXPECT_THAT(too_long.error().message,
              HasSubstr("101 tokens do not fit into its capacity of 100"));

  EXPECT_THAT(session.tokens(), ElementsAreArray(prompt_));
  EXPECT_EQ(logits(session), before);

  EXPECT_FALSE(session.append(-1));
  EXPECT_FALSE(session.append_scored({}));
  EXPECT_THAT(session.tokens(), ElementsAreArray(prompt_));
  ASSERT_TRUE(session.append(5));
  auto expected = prompt_;
  expected.push_back(5);
  EXPECT_EQ(logits(session), cold(expected));
}

TEST_F(SessionTest, FillsItsCapacityExactly) {
  Session session = create(33);
  ASSERT_TRUE(session.sync(std::span(prompt_).first(32)));
  ASSERT_TRUE(session.append(1));
  EXPECT_EQ(session.append(1).error().code, ErrorCode::exhausted);
  const std::vector<Token> one = {1};
  EXPECT_EQ(session.append_scored(one).error().code, ErrorCode::exhausted);
  EXPECT_EQ(session.tokens().size(), 33u);
}

TEST_F(SessionTest, ReservesItsBlocksAndGivesThemBack) {
  EXPECT_EQ(Session::create(model_, 0).error().code, ErrorCode::invalid);
  EXPECT_THAT(Session::create(model_, 2049).error().message,
              HasSubstr("capacity: expected 1 to 2048 positions, found 2049"));
  {
    Session first = create(20 * kBlockPositions);
    const auto second = Session::create(model_, 11 * kBlockPositions);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::exhausted);
    EXPECT_TRUE(Session::create(model_, 10 * kBlockPositions));
    Session moved = std::move(first);
    EXPECT_EQ(moved.capacity(), 640);
  }
  EXPECT_TRUE(Session::create(model_, kBlocks * kBlockPositions));
}

TEST_F(SessionTest, SessionsOfOneModelDoNotDisturbEachOther) {
  Session a = create(128), b = create(128);
  const auto other = test::random_tokens(50, 4);
  ASSERT_TRUE(a.sync(prompt_));
  const auto after_prompt = logits(a);
  ASSERT_TRUE(b.sync(other));
  EXPECT_EQ(logits(a), after_prompt) << "another session's eval leaves these logits alone";
  ASSERT_TRUE(a.append(3));
  ASSERT_TRUE(b.append(4));
  auto a_tokens = prompt_, b_tokens = other;
  a_tokens.push_back(3);
  b_tokens.push_back(4);
  EXPECT_EQ(logits(a), cold(a_tokens));
  EXPECT_EQ(logits(b), cold(b_tokens));
}

TEST(ModelOpen, RefusesWhatItCannotHonour) {
  const auto path = test::tiny_artifact_path("tiny-tied", Scheme::bf16);
  const auto no_backend = Model::open(path, {.backend = "fast", .allow_synthetic = true});
  ASSERT_FALSE(no_backend);
  EXPECT_THAT(no_backend.error().message,
              HasSubstr("cpu, reference, cuda, webgpu; found \"fast\""));
  EXPECT_FALSE(Model::open(path, {.backend = "reference"})) << "a twin is refused unless asked for";
  EXPECT_FALSE(
      Model::open(path, {.backend = "reference", .allow_synthetic = true, .kv_blocks = -1}));
  EXPECT_FALSE(Model::open("/nowhere/model.gguf", {.backend = "reference"}));

  const auto model = Model::open(path, {.backend = "reference", .allow_synthetic = true});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(Session::create(*model, 2048)) << "by default the cache holds the whole context";
  EXPECT_EQ((*model)->tokenizer().encode("Hello", AddedTokens::as_text), std::vector<Token>{9707});
}

}  // namespace
}  // namespace kipp
