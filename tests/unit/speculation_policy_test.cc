// How much is proposed: never so much that text which does not repeat gets slow, soon enough where
// it does, and from nothing but what was drawn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/speculation.h"
#include "support/drafters.h"

namespace kipp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Token kRight = 100;
constexpr Token kWrong = 200;
constexpr double kRowCost = 0.25;

// Few rows cost hardly more than one, many cost arithmetic.
double step_cost(int rows) { return std::max(1 + 0.05 * (rows - 1), kRowCost * rows); }

// Says kRight or kWrong, as the test wants at the time.
struct Oracle {
  bool right = false;
  DraftProspect prospect = {.kind = 0, .likely = 0.5};
  int asked = 0;         // calls of draft()
  int tokens_asked = 0;  // in them
};

class OracleDrafter final : public Drafter {
 public:
  explicit OracleDrafter(Oracle& oracle) : oracle_(oracle) {}
  std::optional<DraftProspect> look(std::span<const Token>) override { return oracle_.prospect; }
  Result<void> draft(std::span<const Token>, int n, std::vector<Token>& out) override {
    ++oracle_.asked;
    oracle_.tokens_asked += n;
    out.assign(static_cast<std::size_t>(n), oracle_.right ? kRight : kWrong);
    return {};
  }

 private:
  Oracle& oracle_;
};

Speculation speculation_of(Oracle& oracle, int max_draft = 8) {
  return {.drafter = [&oracle](const DraftTask&) -> Result<std::unique_ptr<Drafter>> {
            return std::make_unique<OracleDrafter>(oracle);
          },
          .max_draft = max_draft,
          .row_cost = kRowCost};
}

// A generation that draws kRight for ever.
struct Decoding {
  explicit Decoding(Oracle& o) : oracle(o), speculator(speculation_of(o), {}, {}) {}

  int step(int n_generating = 1) {
    const int drafted = static_cast<int>(speculator.propose(timeline, 1000, n_generating).size());
    const int accepted = oracle.right ? drafted : 0;
    speculator.settle(drafted, accepted);
    timeline.insert(timeline.end(), static_cast<std::size_t>(accepted) + 1, kRight);
    cost += step_cost(1 + drafted);
    return drafted;
  }
  // Against one step a token.
  double slower_by() const {
    const double own = oracle.prospect.cost_token * oracle.tokens_asked;
    return (cost + own) / static_cast<double>(timeline.size() - 1) - 1;
  }

  Oracle& oracle;
  Speculator speculator;
  std::vector<Token> timeline = {kRight};
  double cost = 0;  // of all steps, in steps of one row
};

TEST(SpeculationPolicy, TextThatIsNeverRightCostsAtMostThreePerCent) {
  for (const double likely : {0.05, 0.5, 0.99}) {
    for (const double cost_token : {0.0, 0.05, 0.4}) {
      SCOPED_TRACE(fmt::format("likely {}, a token costs {}", likely, cost_token));
      Oracle oracle{.right = false,
                    .prospect = {.kind = 0, .likely = likely, .cost_token = cost_token}};
      Decoding run(oracle);
      for (int i = 0; i < 120; ++i) run.step();
      EXPECT_LE(run.slower_by(), 0.03);
      for (int i = 0; i < 2000; ++i) run.step();
      EXPECT_LE(run.slower_by(), 0.012);
    }
  }
}

TEST(SpeculationPolicy, ADrafterThatDeceivesGainsNothingByIt) {
  for (const int period : {2, 5, 20, 60}) {
    SCOPED_TRACE(period);
    Oracle oracle{.right = false, .prospect = {.kind = 0, .likely = 0.9}};
    Decoding run(oracle);
    for (int i = 0; i < 3000; ++i) {
      oracle.right = i / period % 2 == 0;
      run.step();
    }
    EXPECT_LE(run.slower_by(), 0.012);
  }
}

TEST(SpeculationPolicy, WhatCostsNothingProvesItselfWithoutAnyCost) {
  Oracle oracle{.right = true, .prospect = {.kind = 3, .likely = 0}};
  Decoding run(oracle);
  int steps = 0;
  while (run.step() < 3) ASSERT_LT(++steps, 10);
  EXPECT_GT(steps, 0);  // not before it was right
  for (int i = 0; i < 60; ++i) run.step();
  EXPECT_LT(run.slower_by(), -0.6);
  // Another kind has its own record.
  oracle.prospect.kind = 4;
  EXPECT_EQ(run.step(), 0);
}

TEST(SpeculationPolicy, WhatCostsSomethingIsTriedRarelyAndTrustedAgain) {
  Oracle oracle{.right = false, .prospect = {.kind = 0, .likely = 0.9, .cost_token = 0.1}};
  Decoding run(oracle);
  for (int i = 0; i < 300; ++i) run.step();
  const int asked = oracle.asked;
  for (int i = 0; i < 1000; ++i) run.step();
  EXPECT_GE(oracle.asked - asked, 3);
  EXPECT_LE(oracle.asked - asked, 30);
  oracle.right = true;
  int steps = 0;
  while (run.step() < 4) ASSERT_LT(++steps, 600);
  int drafted = 0;
  for (int i = 0; i < 20; ++i) drafted += run.step();
  EXPECT_GT(drafted, 40);
}

TEST(SpeculationPolicy, ManySequencesFillTheStepThemselves) {
  Oracle oracle{.right = true, .prospect = {.kind = 0, .likely = 0.99}};
  EXPECT_GE(Decoding(oracle).step(1), 3);
  EXPECT_EQ(Decoding(oracle).step(8), 0);
}

TEST(SpeculationPolicy, ProposesNothingThatCannotBeDrawn) {
  std::vector<Token> says;
  const auto proposed = [&](int most) {
    struct Saying final : Drafter {
      explicit Saying(const std::vector<Token>& all) : tokens(all) {}
      std::optional<DraftProspect> look(std::span<const Token>) override {
        return DraftProspect{.kind = 0, .likely = 1};
      }
      Result<void> draft(std::span<const Token>, int, std::vector<Token>& out) override {
        out = tokens;
        return {};
      }
      const std::vector<Token>& tokens;
    };
    Speculation speculation =
        test::eager([&](const DraftTask&) -> Result<std::unique_ptr<Drafter>> {
          return std::make_unique<Saying>(says);
        });
    const std::vector<Token> stops = {77};
    const std::vector<Token> timeline = {1, 2};
    Speculator speculator(speculation, {}, stops);
    const auto draft = speculator.propose(timeline, most);
    return std::vector<Token>(draft.begin(), draft.end());
  };
  says = {5, 6, 7, 8};
  EXPECT_THAT(proposed(9), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(proposed(2), ElementsAre(5, 6));
  EXPECT_THAT(proposed(0), IsEmpty());
  EXPECT_THAT(proposed(-3), IsEmpty());
  says = {5, 77, 6};
  EXPECT_THAT(proposed(9), ElementsAre(5));
  says = {5, kNamedTokens, 6};
  EXPECT_THAT(proposed(9), ElementsAre(5));
  says = {-1, 5};
  EXPECT_THAT(proposed(9), IsEmpty());
}

}  // namespace
}  // namespace kipp
