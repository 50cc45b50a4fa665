// Several sessions in one step, and how much of a prompt is there before it is asked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "engine/session.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;

using Tokens = std::vector<Token>;

class SessionSteps : public testing::TestWithParam<std::string_view> {
 protected:
  ~SessionSteps() override {
    const auto sound = model_->pool().check();
    EXPECT_TRUE(sound) << sound.error().message;
  }
  Session create(int capacity = 128) {
    auto session = Session::create(model_, capacity);
    EXPECT_TRUE(session) << session.error().message;
    return *std::move(session);
  }
  static std::vector<float> logits(const Session& session) {
    return {session.logits().begin(), session.logits().end()};
  }
  // What a session over a cache of its own computes.
  std::vector<float> alone(std::span<const Token> tokens) {
    auto session =
        Session::create(test::open_twin_model("tiny-tied", Scheme::bf16, 4, GetParam()), 128);
    EXPECT_TRUE(session && session->sync(tokens));
    return logits(*session);
  }
  static Tokens tokens_of(const Session& session) {
    return {session.tokens().begin(), session.tokens().end()};
  }

  const std::shared_ptr<Model> model_ =
      test::open_twin_model("tiny-tied", Scheme::bf16, 30, GetParam());
};

INSTANTIATE_TEST_SUITE_P(Backends, SessionSteps, testing::Values("reference", "cpu"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_P(SessionSteps, TogetherEachComputesWhatItComputesAlone) {
  std::vector<Session> sessions;
  for (const std::size_t n : {70u, 3u, 31u}) {
    sessions.push_back(create());
    ASSERT_TRUE(sessions.back().sync(test::random_tokens(n, static_cast<unsigned>(n))));
  }
  auto fork = sessions[0].fork();
  ASSERT_TRUE(fork);
  sessions.push_back(*std::move(fork));
  sessions.push_back(create());  // begins with this step

  for (unsigned round = 0; round < 3; ++round) {
    std::vector<Tokens> given;
    std::vector<Session::Step> steps;
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      given.push_back(test::random_tokens(1 + 7 * (i % 3), 100 * round + static_cast<unsigned>(i)));
    }
    for (std::size_t i = 0; i < sessions.size(); ++i) steps.push_back({&sessions[i], given[i]});
    const auto done = Session::append_together(steps);
    ASSERT_TRUE(done) << done.error().message;
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      const Tokens now = tokens_of(sessions[i]);
      EXPECT_THAT(std::span(now).last(given[i].size()), ElementsAreArray(given[i]));
      EXPECT_EQ(logits(sessions[i]), alone(now)) << "session " << i << ", round " << round;
    }
  }
}

TEST_P(SessionSteps, TogetherIsAllOrNothing) {
  Session first = create();
  Session full = create(40);
  ASSERT_TRUE(first.sync(test::random_tokens(5, 1)));
  ASSERT_TRUE(full.sync(test::random_tokens(40, 2)));
  const Tokens one = {7};
  const Tokens none;
  const Tokens bad = {kNamedTokens};
  const auto refused = [&](std::vector<Session::Step> steps) {
    const auto before = logits(first);
    const auto done = Session::append_together(steps);
    EXPECT_FALSE(done);
    EXPECT_EQ(first.tokens().size(), 5u);
    EXPECT_EQ(full.tokens().size(), 40u);
    EXPECT_EQ(logits(first), before);
    return done ? std::string() : done.error().message;
  };
  EXPECT_THAT(refused({{&first, one}, {&full, one}}), HasSubstr("do not fit"));
  EXPECT_THAT(refused({{&first, one}, {&first, one}}), HasSubstr("found one of them twice"));
  EXPECT_THAT(refused({{&first, none}}), HasSubstr("at least one token"));
  EXPECT_THAT(refused({{&first, bad}}), HasSubstr("expected a token id"));
  EXPECT_THAT(refused({}), HasSubstr("at least one"));
  const auto other_model = test::open_twin_model("tiny-tied", Scheme::bf16, 4, GetParam());
  auto other = Session::create(other_model, 32);
  ASSERT_TRUE(other);
  EXPECT_THAT(refused({{&first, one}, {&*other, one}}), HasSubstr("one model"));
  EXPECT_TRUE(Session::append_together(std::vector<Session::Step>{{&first, one}}));
  EXPECT_EQ(first.tokens().size(), 6u);
}

TEST_P(SessionSteps, MatchSaysWhatSyncWillReuse) {
  const Tokens prompt = test::random_tokens(100, 3);
  Session writer = create();
  EXPECT_EQ(writer.match(prompt).value(), 0);
  ASSERT_TRUE(writer.sync(prompt));
  EXPECT_EQ(writer.match(prompt).value(), 99) << "the last token is always evaluated";
  EXPECT_EQ(writer.match({}).value(), 0);
  EXPECT_THAT(writer.match(Tokens{-1}).error().message, HasSubstr("prompt[0]"));

  Tokens longer = prompt;
  longer.insert(longer.end(), {1, 2, 3});
  Tokens other = longer;
  other[50] = other[50] == 1 ? 2 : 1;
  Session reader = create();
  for (Session* session : {&writer, &reader}) {
    for (const Tokens& wanted : {longer, other, Tokens(prompt.begin(), prompt.begin() + 33)}) {
      const int said = session->match(wanted).value();
      EXPECT_EQ(session->match(wanted).value(), said) << "asking changes nothing";
      EXPECT_EQ(session->sync(wanted).value(), said);
    }
  }
  // What was appended and is not published yet counts.
  ASSERT_TRUE(reader.sync(std::span(prompt).first(20)));
  ASSERT_TRUE(reader.append_scored(std::span(other).subspan(20, 60)));
  const int said = reader.match(other).value();
  EXPECT_GE(said, 80);
  EXPECT_EQ(reader.sync(other).value(), said);
}

}  // namespace
}  // namespace kipp
