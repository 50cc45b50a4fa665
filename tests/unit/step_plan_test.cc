#include "model/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "model/config.h"

namespace kipp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr StepLimits kLimits = {
    .max_step_tokens = 64, .max_logit_rows = 20, .kv_blocks = 8, .context_length = 128};

struct Owned {
  SeqId seq = 0;
  int pos = 0;
  std::vector<Token> tokens;
  std::vector<BlockId> blocks;
  LogitRows want = LogitRows::last;

  EvalItem item() const {
    return {.seq = seq, .pos = pos, .tokens = tokens, .blocks = blocks, .want = want};
  }
};

std::vector<EvalItem> items_of(const std::vector<Owned>& owned) {
  std::vector<EvalItem> items;
  for (const Owned& o : owned) items.push_back(o.item());
  return items;
}

TEST(StepPlan, FlattensItemsInOrder) {
  const std::vector<Owned> owned = {
      {.seq = 4, .pos = 31, .tokens = {10, 11, 12}, .blocks = {7, 2, 5}, .want = LogitRows::all},
      {.seq = 1, .pos = 0, .tokens = {20, 21}, .blocks = {3}, .want = LogitRows::none},
      {.seq = 2, .pos = 64, .tokens = {30, 31}, .blocks = {0, 1, 6}, .want = LogitRows::last}};
  StepPlanner planner(kLimits);
  const auto plan = planner.plan(items_of(owned));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT((*plan)->tokens, ElementsAre(10, 11, 12, 20, 21, 30, 31));
  EXPECT_THAT((*plan)->positions, ElementsAre(31, 32, 33, 0, 1, 64, 65));
  EXPECT_THAT((*plan)->item_of_row, ElementsAre(0, 0, 0, 1, 1, 2, 2));
  EXPECT_THAT((*plan)->logit_rows, ElementsAre(0, 1, 2, 6));
  EXPECT_THAT((*plan)->table(0), ElementsAre(7, 2));  // what covers position 33, the reserve is cut
  EXPECT_THAT((*plan)->table(1), ElementsAre(3));
  EXPECT_THAT((*plan)->table(2), ElementsAre(0, 1, 6));
}

TEST(StepPlan, SharesFullBlocksBetweenSequences) {
  const std::vector<Owned> owned = {{.seq = 0, .pos = 40, .tokens = {1}, .blocks = {5, 1}},
                                    {.seq = 1, .pos = 40, .tokens = {2}, .blocks = {5, 2}}};
  EXPECT_TRUE(StepPlanner(kLimits).plan(items_of(owned)));
}

TEST(StepPlan, TakesTheLastPositionAndTheFullStep) {
  StepPlanner planner(kLimits);
  const std::vector<Owned> last = {{.pos = 127, .tokens = {1}, .blocks = {0, 1, 2, 3}}};
  EXPECT_TRUE(planner.plan(items_of(last)));
  const std::vector<Owned> full = {{.tokens = std::vector<Token>(64, 5), .blocks = {0, 1}}};
  EXPECT_TRUE(planner.plan(items_of(full)));
}

struct Refusal {
  const char* name;
  std::vector<Owned> items;
  const char* message;
};

class StepPlanRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(StepPlanRefuses, WithASentence) {
  StepPlanner planner(kLimits);
  const std::vector<Owned> good = {{.seq = 3, .tokens = {1, 2, 3}, .blocks = {6}}};
  ASSERT_TRUE(planner.plan(items_of(good)));
  const auto refused = planner.plan(items_of(GetParam().items));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid);
  EXPECT_THAT(refused.error().message, HasSubstr(GetParam().message));
  EXPECT_TRUE(planner.plan(items_of(good))) << "a refusal must not spoil the planner";
}

const Refusal kRefusals[] = {
    {"NoItems", {}, "items: a step needs at least one"},
    {"EmptyItem",
     {{.tokens = {1}, .blocks = {0}}, {.seq = 1, .tokens = {}, .blocks = {1}}},
     "items[1].tokens: expected at least one token"},
    {"TooManyTokens",
     {{.seq = 0, .tokens = std::vector<Token>(40, 1), .blocks = {0, 1}},
      {.seq = 1, .tokens = std::vector<Token>(25, 1), .blocks = {2}}},
     "expected at most 64 tokens in one step, found 65"},
    {"TooManyLogits",
     {{.seq = 0, .tokens = std::vector<Token>(19, 1), .blocks = {0}, .want = LogitRows::all},
      {.seq = 1, .tokens = {1, 1}, .blocks = {1}, .want = LogitRows::none},
      {.seq = 2, .tokens = {1, 1}, .blocks = {2}, .want = LogitRows::last},
      {.seq = 3, .tokens = {1}, .blocks = {3}, .want = LogitRows::last}},
     "items: expected at most 20 rows of logits in one step, found 21"},
    {"IdOfNoToken",
     {{.tokens = {5, kNamedTokens}, .blocks = {0}}},
     "items[0].tokens[1]: expected a token id from 0 to 151668, found 151669"},
    {"NegativeId", {{.tokens = {-1}, .blocks = {0}}}, "items[0].tokens[0]"},
    {"NegativePosition", {{.pos = -1, .tokens = {1}, .blocks = {0}}}, "items[0].pos"},
    {"PastTheContext",
     {{.pos = 127, .tokens = {1, 2}, .blocks = {0, 1, 2, 3, 4}}},
     "items[0].pos: expected positions within the context of 128, found 2 tokens at 127"},
    {"FarPastTheContext", {{.pos = 2147483647, .tokens = {1}, .blocks = {0}}}, "items[0].pos"},
    {"UncoveredPosition",
     {{.pos = 31, .tokens = {1, 2}, .blocks = {0}}},
     "items[0].blocks: expected 2 blocks to cover 33 positions, found 1"},
    {"UnknownBlock",
     {{.pos = 32, .tokens = {1}, .blocks = {8, 0}}},
     "items[0].blocks[0]: expected a block from 0 to 7, found 8"},
    {"NegativeBlock", {{.tokens = {1}, .blocks = {-1}}}, "found -1"},
    {"OneSequenceTwice",
     {{.seq = 2, .tokens = {1}, .blocks = {0}},
      {.seq = 9, .tokens = {1}, .blocks = {1}},
      {.seq = 2, .tokens = {1}, .blocks = {2}}},
     "expected distinct sequences, found 2 twice"},
    {"OneBlockWrittenByTwo",
     {{.seq = 0, .tokens = {1}, .blocks = {4}}, {.seq = 1, .tokens = {1}, .blocks = {4}}},
     "items[1].blocks[0]: block 4 is also written by items[0]"},
    {"OneBlockWrittenTwiceByOne",
     {{.tokens = std::vector<Token>(40, 1), .blocks = {4, 4}}},
     "items[0].blocks[1]: block 4 is also written by items[0]"},
    {"ReadByOneWrittenByAnother",
     {{.seq = 0, .pos = 32, .tokens = {1}, .blocks = {4, 5}},
      {.seq = 1, .tokens = {1}, .blocks = {4}}},
     "items[0].blocks[0]: block 4 is read here while items[1] writes it"},
};

INSTANTIATE_TEST_SUITE_P(All, StepPlanRefuses, testing::ValuesIn(kRefusals),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace kipp
