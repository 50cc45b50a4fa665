// Log-probabilities against the same in higher precision, sorted and summed without haste.
#include "engine/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "model/config.h"
#include "support/cpu_targets.h"
#include "support/random_floats.h"

namespace kipp {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr auto kNamed = static_cast<std::size_t>(kNamedTokens);

// Ids that name no token would win if they counted.
std::vector<float> row_of(std::vector<float> logits) {
  logits.resize(kVocabRows, 1e5f);
  for (std::size_t i = kNamed; i < logits.size(); ++i) logits[i] = 1e5f;
  return logits;
}

struct Row {
  std::string name;
  std::vector<float> logits;
};

std::vector<Row> rows() {
  std::vector<Row> all;
  for (const double scale : {0.01, 1.0, 3.0, 30.0, 300.0}) {
    all.push_back({"normal " + std::to_string(scale),
                   row_of(test::normal_floats(static_cast<std::uint64_t>(scale), kNamed, scale))});
  }
  all.push_back({"flat", row_of(std::vector<float>(kNamed, -3.0f))});
  std::vector<float> rising(kNamed);
  for (std::size_t i = 0; i < kNamed; ++i) rising[i] = static_cast<float>(i) * 1e-3f;
  all.push_back({"rising", row_of(rising)});
  std::ranges::reverse(rising);
  all.push_back({"falling", row_of(rising)});
  std::vector<float> far = test::normal_floats(7, kNamed);
  for (float& value : far) value -= 5000;
  far[100'000] = 5000;
  all.push_back({"one far above", row_of(far)});
  return all;
}

std::vector<Token> sorted_ids(const std::vector<float>& logits) {
  std::vector<Token> ids(kNamed);
  std::iota(ids.begin(), ids.end(), 0);
  std::ranges::stable_sort(
      ids, [&](float a, float b) { return a > b; },
      [&](Token id) { return logits[static_cast<std::size_t>(id)]; });
  return ids;
}

TEST(Logprobs, AreWithinAMillionthOfTheExactOnes) {
  for (const auto& [name, logits] : rows()) {
    SCOPED_TRACE(name);
    const auto named = std::span(logits).first(kNamed);
    const auto greatest = static_cast<long double>(*std::ranges::max_element(named));
    long double sum = 0;
    for (const float logit : named) sum += std::exp(static_cast<long double>(logit) - greatest);
    for (const Token token :
         {0, 1, 15, 16, 1023, 1024, 77'777, 151'551, 151'552, kNamedTokens - 1}) {
      const auto logit = static_cast<long double>(logits[static_cast<std::size_t>(token)]);
      const auto exact = static_cast<double>(logit - greatest - std::log(sum));
      // And half a unit of a float's last place.
      EXPECT_NEAR(logprob_of(logits, token).logprob, exact, 1e-6 + std::abs(exact) * 6e-8) << token;
    }
  }
}

TEST(Logprobs, BestAreThoseThatSortingFindsAndOfEqualsTheLowestIds) {
  auto all = rows();
  // Equals on both sides of every border there might be.
  std::vector<float> ties = test::normal_floats(3, kNamed);
  for (const std::size_t i : {0u, 15u, 16u, 127u, 128u, 1023u, 1024u, 2047u, 2048u, 151'551u,
                              151'552u, 151'663u, 151'664u, 151'668u}) {
    ties[i] = 9;
  }
  all.push_back({"ties", row_of(ties)});
  for (const auto& [name, logits] : all) {
    SCOPED_TRACE(name);
    const auto ids = sorted_ids(logits);
    for (const int n : {0, 1, 2, 5, kMaxTopLogprobs}) {
      const Logprobs found = logprobs_of(logits, 5, n);
      EXPECT_EQ(found.chosen, logprob_of(logits, 5));
      ASSERT_EQ(found.best.size(), static_cast<std::size_t>(n));
      for (std::size_t i = 0; i < found.best.size(); ++i) {
        EXPECT_EQ(found.best[i], logprob_of(logits, ids[i])) << "place " << i;
      }
    }
  }
}

TEST(Logprobs, AreTheSameOnEveryTarget) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    const Logprobs expected = logprobs_of(row.logits, 5, 3);
    int targets = 0;
    test::on_every_target([&](bool) {
      EXPECT_EQ(logprobs_of(row.logits, 5, 3), expected);
      ++targets;
    });
    EXPECT_GT(targets, 0);
  }
}

TEST(Logprobs, WhatIsNoNumberIsNeverLikely) {
  std::vector<float> logits = row_of(test::normal_floats(1, kNamed));
  const auto ids = sorted_ids(logits);
  const std::vector<float> whole = logits;
  for (const std::size_t i : {0u, 14u, 1024u, 151'668u}) logits[i] = kNan;
  logits[3] = -kInfinity;
  for (const Token token : {0, 14, 1024, 151'668, 3}) {
    EXPECT_EQ(logprob_of(logits, token).logprob, -kInfinity);
  }
  EXPECT_NEAR(logprob_of(logits, 9).logprob, logprob_of(whole, 9).logprob, 1e-3);
  logits[static_cast<std::size_t>(ids[1])] = kNan;
  const auto best = top_logprobs(logits, 2);
  ASSERT_EQ(best.size(), 2u);
  EXPECT_EQ(best[0].token, ids[0]);
  EXPECT_EQ(best[1].token, ids[2]);

  for (const float nothing : {kNan, -kInfinity}) {
    EXPECT_TRUE(top_logprobs(row_of(std::vector<float>(kNamed, nothing)), 5).empty());
  }
}

}  // namespace
}  // namespace kipp
