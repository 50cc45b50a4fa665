// The pace of streams beside a long prompt, against machines made up: a step costs what it costs
// without prompt tokens, plus so much for each.
#include "engine/prompt_pace.h"

#include <gtest/gtest.h>

#include <chrono>

namespace kipp {
namespace {

struct Machine {
  double alone = 0;      // seconds of a step that only generates
  double per_token = 0;  // for each prompt token beside

  Clock::Time step(int tokens) const {
    return std::chrono::nanoseconds(static_cast<std::int64_t>((alone + per_token * tokens) * 1e9));
  }
};

// Steps until `total` prompt tokens are read; how often a step was beyond twice its time alone.
struct Outcome {
  int steps = 0;
  int too_slow = 0;
  int looks = 0;
};
Outcome read(PromptPace& pace, const Machine& machine, int total) {
  Outcome outcome;
  for (int left = total; left > 0; ++outcome.steps) {
    const int tokens = std::min(left, pace.tokens());
    const Clock::Time took = machine.step(tokens);
    pace.learn(1, tokens, took);
    outcome.too_slow += seconds(took) > 2 * machine.alone;
    outcome.looks += tokens == 0;
    left -= tokens;
  }
  return outcome;
}

TEST(PromptPace, ReadsAsMuchAsStaysBelowTwiceTheTime) {
  // Twenty tokens double the time of a step.
  PromptPace pace(512, 1.8);
  const Outcome outcome = read(pace, {.alone = 0.02, .per_token = 0.001}, 16000);
  EXPECT_EQ(outcome.too_slow, 0);
  EXPECT_LT(outcome.steps, 16000 / 12);
  EXPECT_GT(outcome.looks, outcome.steps / 100);
  EXPECT_LT(outcome.looks, outcome.steps / 50);
}

TEST(PromptPace, OneTokenIsAlwaysRead) {
  // A single token is more than the bound allows: the prompt is read all the same.
  PromptPace pace(512, 1.8);
  const Outcome outcome = read(pace, {.alone = 0.001, .per_token = 0.01}, 500);
  EXPECT_LT(outcome.steps, 520);
}

TEST(PromptPace, AFastMachineReadsWhatAStepTakes) {
  PromptPace pace(256, 1.8);
  const Outcome outcome = read(pace, {.alone = 0.01, .per_token = 1e-6}, 100000);
  EXPECT_EQ(outcome.too_slow, 0);
  EXPECT_LT(outcome.steps, 100000 / 256 + 100);
}

TEST(PromptPace, FollowsAMachineThatSlowsDown) {
  PromptPace pace(512, 1.8);
  read(pace, {.alone = 0.02, .per_token = 0.001}, 4000);
  const Outcome outcome = read(pace, {.alone = 0.02, .per_token = 0.004}, 4000);
  EXPECT_LE(outcome.too_slow, 3);
}

TEST(PromptPace, AStreamThatJoinsMakesItStricter) {
  PromptPace pace(512, 1.8);
  read(pace, {.alone = 0.02, .per_token = 0.001}, 4000);
  const int before = pace.tokens();
  for (int i = 0; i < 8; ++i) pace.learn(2, pace.tokens(), std::chrono::milliseconds(60));
  EXPECT_LT(pace.tokens(), before / 2);
}

TEST(PromptPace, WithoutABoundEveryStepReadsTheMost) {
  PromptPace pace(40, 0);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(pace.tokens(), 40);
    pace.learn(1, 40, std::chrono::seconds(1));
  }
}

TEST(PromptPace, AClockThatStandsStillChangesNothing) {
  PromptPace pace(4, 1.8);
  for (int i = 0; i < PromptPace::kStepsBeforeFirstLook; ++i) {
    EXPECT_EQ(pace.tokens(), 4);
    pace.learn(1, 4, Clock::Time{0});
  }
  EXPECT_EQ(pace.tokens(), 0);
  pace.learn(1, 0, Clock::Time{0});
  EXPECT_EQ(pace.tokens(), 4);
  pace.learn(1, 4, Clock::Time{0});
  EXPECT_EQ(pace.tokens(), 4);
}

}  // namespace
}  // namespace kipp
