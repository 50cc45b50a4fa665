// The sampling chain against a naive version of itself and against exact probabilities. Seeds are
// fixed: the statistical tests always see the same draws, and their bounds would be exceeded by
// chance about once in 10^5.
#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "base/rng.h"
#include "engine/logprobs.h"
#include "model/config.h"
#include "support/sanitized.h"

namespace kipp {
namespace {

using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> row(const std::map<Token, float>& logits, float rest) {
  std::vector<float> out(kVocabRows, rest);
  for (const auto& [id, value] : logits) out[static_cast<std::size_t>(id)] = value;
  return out;
}

// A row like a model's: most logits in a heap, few above it.
std::vector<float> model_like_row(std::uint64_t seed) {
  std::vector<float> out(kVocabRows);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double u = draw_uniform(seed, i);
    out[i] = static_cast<float>(4 * u + (u > 0.9995 ? 12 * draw_uniform(seed + 1, i) : 0));
  }
  return out;
}

Token greedy(const std::vector<float>& logits, SamplingParams params,
             const SampleContext& context) {
  params.temperature = 0;
  return sample(logits, params, context, 0);
}

// The chain as its definition reads, sorting everything. Penalties are tested by hand instead.
Token naive_sample(const std::vector<float>& logits, const SamplingParams& params,
                   std::uint64_t draw) {
  struct Entry {
    Token id;
    double logit;
    double weight;
  };
  std::vector<Entry> all;
  for (Token id = 0; id < kNamedTokens; ++id) {
    all.push_back({id, logits[static_cast<std::size_t>(id)], 0});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Entry& a, const Entry& b) { return a.logit > b.logit; });
  const double best = all[0].logit;
  for (Entry& e : all)
    e.weight = std::exp((e.logit - best) / static_cast<double>(params.temperature));
  const auto total = [&] {
    double sum = 0;
    for (const Entry& e : all) sum += e.weight;
    return sum;
  };
  if (params.top_k > 0) all.resize(std::min(all.size(), static_cast<std::size_t>(params.top_k)));
  if (params.top_p < 1) {
    const double share = static_cast<double>(params.top_p) * total();
    double sum = 0;
    std::size_t n = 0;
    while (n < all.size() && sum < share) sum += all[n++].weight;
    all.resize(n);
  }
  std::erase_if(all, [&](const Entry& e) { return e.weight < static_cast<double>(params.min_p); });
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) { return a.id < b.id; });
  const double target = draw_uniform(params.seed, draw) * total();
  double sum = 0;
  for (const Entry& e : all) {
    sum += e.weight;
    if (target < sum) return e.id;
  }
  return all.back().id;
}

// Pearson's statistic of `draws` tokens against probabilities, expected to be near the degrees of
// freedom.
void expect_distribution(const std::vector<float>& logits, const SamplingParams& params,
                         const std::map<Token, double>& weights, int draws) {
  double total = 0;
  for (const auto& [id, weight] : weights) total += weight;
  std::map<Token, int> counts;
  for (int i = 0; i < draws; ++i) {
    ++counts[sample(logits, params, {}, static_cast<std::uint64_t>(i))];
  }
  double statistic = 0;
  for (const auto& [id, weight] : weights) {
    const double expected = draws * weight / total;
    ASSERT_GT(expected, 5) << "too few draws to test token " << id;
    statistic += (counts[id] - expected) * (counts[id] - expected) / expected;
    counts.erase(id);
  }
  EXPECT_TRUE(counts.empty()) << "drew " << counts.begin()->first << ", which a filter removes";
  const auto freedom = static_cast<double>(weights.size() - 1);
  // Wilson and Hilferty's approximation of the 0.99999 quantile.
  const double root = 1 - 2 / (9 * freedom) + 4.26 * std::sqrt(2 / (9 * freedom));
  EXPECT_LT(statistic, freedom * root * root * root);
}

TEST(Sampler, GreedyTakesTheBestAndOfEqualsTheLowest) {
  EXPECT_EQ(greedy(row({{9, 3.f}, {5, 2.f}, {7, 3.f}}, 0.f), {}, {}), 7);
  EXPECT_EQ(greedy(row({}, -4.f), {}, {}), 0);
  SamplingParams negative_zero;
  negative_zero.temperature = -0.0f;
  ASSERT_TRUE(validate(negative_zero));
  EXPECT_EQ(sample(row({{3, 1.f}}, 0.f), negative_zero, {}, 5), 3);
}

TEST(Sampler, NeverEmitsAnIdThatNamesNoToken) {
  std::vector<float> logits = row({{3, 1.f}}, 0.f);
  for (std::size_t i = kNamedTokens; i < kVocabRows; ++i) logits[i] = 100.f;
  SamplingParams params;
  EXPECT_EQ(greedy(logits, params, {}), 3);
  for (const int top_k : {0, 5, kVocabRows}) {
    params.top_k = top_k;
    for (std::uint64_t i = 0; i < 50; ++i) EXPECT_LT(sample(logits, params, {}, i), kNamedTokens);
  }
  for (const TokenLogprob& entry : top_logprobs(logits, 3)) EXPECT_LT(entry.token, kNamedTokens);
}

TEST(Sampler, GreedyLooksAfterAllAdjustments) {
  const std::vector<float> logits = row({{1, 4.f}, {2, 3.f}, {3, -1.f}}, -5.f);
  const std::vector<Token> seen = {1};
  SamplingParams params;
  params.repetition_penalty = 2;  // 4 / 2 < 3
  EXPECT_EQ(greedy(logits, params, {seen, {}}), 2);
  params.repetition_penalty = 0.5;  // rewards: -1 * 0.5, 3 / 0.5
  EXPECT_EQ(greedy(logits, params, {std::vector<Token>{2, 3}, {}}), 2);
  params = {};
  params.logit_bias = {{3, 6.f}};
  EXPECT_EQ(greedy(logits, params, {}), 3);
  params.logit_bias = {{1, -100.f}};
  EXPECT_EQ(greedy(logits, params, {}), 2);
  params = {};
  params.presence_penalty = 1.5;
  EXPECT_EQ(greedy(logits, params, {{}, seen}), 2);
}

// The difference that a penalty makes to token 1, found by bisecting the bias that undoes it.
double penalty_on_token_1(const SamplingParams& params, const SampleContext& context, float logit) {
  double low = -200;
  double high = 200;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    const auto rival = static_cast<float>(logit + middle);
    // Token 2 ties lose, so it wins exactly when it is above the penalized token 1.
    (greedy(row({{1, logit}, {2, rival}}, -1e9f), params, context) == 2 ? high : low) = middle;
  }
  return low;
}

TEST(Sampler, PenaltiesCountTheRightTokens) {
  const std::vector<Token> paris3 = {1, 1, 1};
  const std::vector<Token> none;
  SamplingParams presence;
  presence.presence_penalty = 0.5;
  EXPECT_NEAR(penalty_on_token_1(presence, {paris3, none}, 2), 0, 1e-4);
  EXPECT_NEAR(penalty_on_token_1(presence, {none, paris3}, 2), -0.5, 1e-4);
  SamplingParams frequency;
  frequency.frequency_penalty = 0.5;
  EXPECT_NEAR(penalty_on_token_1(frequency, {paris3, none}, 2), 0, 1e-4);
  EXPECT_NEAR(penalty_on_token_1(frequency, {paris3, paris3}, 2), -1.5, 1e-4);
  SamplingParams both = presence;
  both.frequency_penalty = -0.25;
  EXPECT_NEAR(penalty_on_token_1(both, {none, paris3}, 2), 0.25, 1e-4);
  SamplingParams repetition;
  repetition.repetition_penalty = 2;
  EXPECT_NEAR(penalty_on_token_1(repetition, {none, none}, 2), 0, 1e-4);
  EXPECT_NEAR(penalty_on_token_1(repetition, {paris3, none}, 2), -1, 1e-4);  // 2 / 2, once
  EXPECT_NEAR(penalty_on_token_1(repetition, {paris3, paris3}, 2), -1, 1e-4);
  EXPECT_NEAR(penalty_on_token_1(repetition, {none, paris3}, -2), -2, 1e-4);  // -2 * 2
}

TEST(Sampler, PenaltiesForgetGeneratedTokensBeyondTheWindow) {
  std::vector<Token> generated = {1};
  generated.resize(kPenaltyWindow, 7);  // token 1 is the oldest inside
  SamplingParams params;
  params.presence_penalty = 1;
  EXPECT_NEAR(penalty_on_token_1(params, {{}, generated}, 2), -1, 1e-4);
  generated.push_back(7);
  EXPECT_NEAR(penalty_on_token_1(params, {{}, generated}, 2), 0, 1e-4);
  params = {};
  params.repetition_penalty = 2;
  EXPECT_NEAR(penalty_on_token_1(params, {{}, generated}, 2), 0, 1e-4);
  EXPECT_NEAR(penalty_on_token_1(params, {std::vector<Token>{1}, generated}, 2), -1, 1e-4);
}

TEST(Sampler, AnyTemperatureIsFinite) {
  const std::vector<float> logits = row({{1, 2.f}, {2, 1.999f}, {3, -3e38f}}, -50.f);
  SamplingParams params;
  for (const float tiny : {1e-45f, 1e-38f, 1e-12f, 1e-6f}) {
    params.temperature = tiny;
    for (std::uint64_t i = 0; i < 50; ++i) EXPECT_EQ(sample(logits, params, {}, i), 1) << tiny;
  }
  params.temperature = 1e30f;
  params.top_k = 8;
  std::map<Token, double> uniform;
  for (const Token id : {1, 2, 0, 4, 5, 6, 7, 8}) uniform[id] = 1;
  expect_distribution(logits, params, uniform, 2000);
  params.top_k = 0;
  std::set<Token> drawn;
  for (std::uint64_t i = 0; i < 200; ++i) drawn.insert(sample(logits, params, {}, i));
  EXPECT_GT(drawn.size(), 190u);  // spread over the whole vocabulary
}

TEST(Sampler, ExtremePenaltiesAndTemperaturesTogetherStayFinite) {
  const std::vector<float> logits = row({{1, 3e38f}, {2, -3e38f}}, 1.f);
  SamplingParams params;
  params.repetition_penalty = 1e-38f;
  params.temperature = 1e-38f;
  EXPECT_EQ(sample(logits, params, {std::vector<Token>{1, 2}, {}}, 0), 1);
  params.repetition_penalty = 3e38f;
  params.temperature = 1e30f;
  EXPECT_LT(sample(logits, params, {std::vector<Token>{1, 2}, {}}, 0), kNamedTokens);
}

TEST(Sampler, ANumberThatIsNoneIsNeverChosen) {
  SamplingParams params;
  std::vector<float> logits = row({{0, kNan}, {3, 1.f}, {4, 1.f}}, -kInfinity);
  EXPECT_EQ(greedy(logits, params, {}), 3);
  for (std::uint64_t i = 0; i < 40; ++i) EXPECT_GE(sample(logits, params, {}, i), 3);
  logits = row({{9, kInfinity}}, 0.f);
  EXPECT_EQ(sample(logits, params, {}, 0), 9);
  EXPECT_EQ(sample(row({}, kNan), params, {}, 0), 0);
  EXPECT_EQ(greedy(row({}, kNan), params, {}), 0);
  EXPECT_EQ(greedy(row({{7, kNan}}, -kInfinity), params, {}), 0);
}

TEST(Sampler, GreedyTakesTheLowestIdOfTheGreatestWhereverTheyAre) {
  const SamplingParams params;
  for (Token at = kNamedTokens - 1; at > 0; at -= at < 70 ? 1 : 1 + at / 40) {
    const Token later = at + (kNamedTokens - 1 - at) / 3;
    EXPECT_EQ(greedy(row({{at, 2.f}, {later, 2.f}, {kNamedTokens, 3.f}}, -1.f), params, {}), at);
    EXPECT_EQ(greedy(row({{at, 0.f}, {at / 2, -0.f}}, -1.f), params, {}), at / 2);
  }
}

TEST(Sampler, EqualsTheNaiveChain) {
  std::uint64_t counter = 0;
  const auto pick = [&](auto... values) {
    const std::vector<std::common_type_t<decltype(values)...>> options = {values...};
    return options[draw_bits(99, counter++) % options.size()];
  };
  for (int round = 0; round < (test::kSanitized ? 15 : 60); ++round) {
    SamplingParams params;
    params.temperature = pick(0.3f, 1.0f, 1.7f, 5.0f);
    params.top_k = pick(0, 0, 1, 2, 20, 63, 64, 1000, kNamedTokens, 2147483647);
    params.top_p = pick(1.0f, 1.0f, 0.95f, 0.5f, 0.1f, 1e-6f, 0.9999999f);
    params.min_p = pick(0.0f, 0.0f, 0.05f, 0.5f, 1.0f);
    params.seed = static_cast<std::uint64_t>(round);
    std::vector<float> logits = model_like_row(static_cast<std::uint64_t>(round % 3));
    if (round % 5 == 0) {  // ties across every border
      for (float& logit : logits) logit = std::round(logit);
    }
    for (std::uint64_t draw = 0; draw < 2; ++draw) {
      ASSERT_EQ(sample(logits, params, {}, draw), naive_sample(logits, params, draw))
          << "temperature " << params.temperature << " top_k " << params.top_k << " top_p "
          << params.top_p << " min_p " << params.min_p << " round " << round;
    }
  }
}

TEST(Sampler, DrawsFollowTheSoftmax) {
  std::map<Token, float> logits;
  std::map<Token, double> weights;
  std::map<Token, double> cooled;
  for (Token id = 0; id < 12; ++id) {
    const Token token = id * 13007;  // spread over the whole row
    logits[token] = 0.3f * static_cast<float>(id);
    weights[token] = std::exp(0.3 * id);
    cooled[token] = std::exp(0.3 * id / 2.5);
  }
  SamplingParams params;
  params.seed = 1;
  expect_distribution(row(logits, -kInfinity), params, weights, 2000);
  params.temperature = 2.5f;
  params.seed = 2;
  expect_distribution(row(logits, -kInfinity), params, cooled, 2000);
}

TEST(Sampler, FilteredDrawsFollowTheRenormalizedSoftmax) {
  // Probabilities 0.4, 0.3, 0.2, 0.1 in an order that is not that of ids.
  const std::map<Token, double> p = {{40, 0.2}, {30, 0.4}, {20, 0.1}, {10, 0.3}};
  std::map<Token, float> logits;
  for (const auto& [id, weight] : p) logits[id] = static_cast<float>(std::log(weight));
  const std::vector<float> r = row(logits, -kInfinity);
  SamplingParams params;
  params.seed = 3;
  params.top_k = 3;
  expect_distribution(r, params, {{30, 0.4}, {10, 0.3}, {40, 0.2}}, 1500);
  params.top_p = 0.75;  // of 0.9 in all: the first two hold 0.78
  expect_distribution(r, params, {{30, 0.4}, {10, 0.3}}, 1500);
  params = {};
  params.seed = 4;
  params.top_p = 0.71f;
  expect_distribution(r, params, {{30, 0.4}, {10, 0.3}, {40, 0.2}}, 1500);
  params.top_p = 0.39f;
  EXPECT_EQ(sample(r, params, {}, 0), 30);
  params = {};
  params.seed = 5;
  params.min_p = 0.49f;
  expect_distribution(r, params, {{30, 0.4}, {10, 0.3}, {40, 0.2}}, 1500);
}

TEST(Sampler, TopPKeepsNoMoreThanItsShareNeeds) {
  const std::vector<float> logits = row({{8, 2.f}, {4, 2.f}}, -kInfinity);
  SamplingParams params;
  params.top_p = 0.5;  // one of two equals is exactly half: the lower id
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(sample(logits, params, {}, i), 4);
}

TEST(Sampler, ADrawDependsOnSeedAndIndexAlone) {
  const std::vector<float> logits = model_like_row(11);
  SamplingParams params;
  params.seed = 42;
  params.top_k = 40;
  std::vector<Token> in_order;
  for (std::uint64_t i = 0; i < 64; ++i) in_order.push_back(sample(logits, params, {}, i));
  // Backwards, with other requests' draws in between, and on other threads at the same time.
  SamplingParams other;
  other.seed = 7;
  std::vector<std::vector<Token>> runs(3, std::vector<Token>(64));
  std::vector<std::thread> threads;
  for (auto& run : runs) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 64; i-- > 0;) {
        sample(model_like_row(12), other, {}, i);
        run[i] = sample(logits, params, {}, i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& run : runs) EXPECT_EQ(run, in_order);
}

TEST(Sampler, SeedsGiveDifferentStreamsAndStreamsDoNotRepeat) {
  const std::vector<float> flat = row({}, 0.f);
  std::set<std::vector<Token>> streams;
  std::set<Token> first_tokens;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SamplingParams params;
    params.seed = seed;
    params.top_k = 100000;
    std::vector<Token> stream;
    for (std::uint64_t i = 0; i < 8; ++i) stream.push_back(sample(flat, params, {}, i));
    EXPECT_GT(std::set<Token>(stream.begin(), stream.end()).size(), 6u);
    first_tokens.insert(stream[0]);
    streams.insert(stream);
  }
  EXPECT_EQ(streams.size(), 20u);
  EXPECT_GT(first_tokens.size(), 18u);
}

TEST(Sampler, LogprobsAreTheRawLogSoftmax) {
  std::vector<float> logits = model_like_row(5);
  for (std::size_t i = kNamedTokens; i < kVocabRows; ++i) logits[i] = 1000.f;  // must not count
  long double total = 0;
  for (std::size_t i = 0; i < kNamedTokens; ++i)
    total += std::exp(static_cast<long double>(logits[i]));
  const auto exact = [&](Token id) {
    return static_cast<double>(static_cast<long double>(logits[static_cast<std::size_t>(id)]) -
                               std::log(total));
  };
  const std::vector<TokenLogprob> top = top_logprobs(logits, 20);
  ASSERT_EQ(top.size(), 20u);
  std::vector<float> sorted(logits.begin(), logits.begin() + kNamedTokens);
  std::sort(sorted.rbegin(), sorted.rend());
  for (std::size_t i = 0; i < top.size(); ++i) {
    EXPECT_EQ(logits[static_cast<std::size_t>(top[i].token)], sorted[i]);
    EXPECT_NEAR(top[i].logprob, exact(top[i].token), 1e-5);
    EXPECT_FLOAT_EQ(logprob_of(logits, top[i].token).logprob, top[i].logprob);
  }
  EXPECT_TRUE(top_logprobs(logits, 0).empty());
}

TEST(Sampler, RefusesBadValuesByName) {
  struct Case {
    const char* field;
    void (*set)(SamplingParams&);
  };
  const std::vector<Case> bad = {
      {"temperature", [](SamplingParams& p) { p.temperature = kNan; }},
      {"temperature", [](SamplingParams& p) { p.temperature = kInfinity; }},
      {"temperature", [](SamplingParams& p) { p.temperature = -0.1f; }},
      {"top_k", [](SamplingParams& p) { p.top_k = -1; }},
      {"top_p", [](SamplingParams& p) { p.top_p = 0; }},
      {"top_p", [](SamplingParams& p) { p.top_p = 1.01f; }},
      {"top_p", [](SamplingParams& p) { p.top_p = kNan; }},
      {"min_p", [](SamplingParams& p) { p.min_p = -0.1f; }},
      {"min_p", [](SamplingParams& p) { p.min_p = kNan; }},
      {"repetition_penalty", [](SamplingParams& p) { p.repetition_penalty = 0; }},
      {"repetition_penalty", [](SamplingParams& p) { p.repetition_penalty = kInfinity; }},
      {"presence_penalty", [](SamplingParams& p) { p.presence_penalty = 2.1f; }},
      {"presence_penalty", [](SamplingParams& p) { p.presence_penalty = kNan; }},
      {"frequency_penalty", [](SamplingParams& p) { p.frequency_penalty = -2.1f; }},
      {"logit_bias",
       [](SamplingParams& p) {
         p.logit_bias = {{191222, -100.f}};
       }},
      {"logit_bias",
       [](SamplingParams& p) {
         p.logit_bias = {{kNamedTokens, 1.f}};
       }},
      {"logit_bias",
       [](SamplingParams& p) {
         p.logit_bias = {{-1, 5.f}};
       }},
      {"logit_bias",
       [](SamplingParams& p) {
         p.logit_bias = {{1, 1e9f}};
       }},
      {"logit_bias",
       [](SamplingParams& p) {
         p.logit_bias = {{1, kNan}};
       }},
      {"logit_bias",
       [](SamplingParams& p) {
         p.logit_bias = {{1, 1.f}, {2, 1.f}, {1, 2.f}};
       }},
  };
  for (const Case& c : bad) {
    SamplingParams params;
    c.set(params);
    const auto result = validate(params);
    ASSERT_FALSE(result.has_value()) << c.field;
    EXPECT_EQ(result.error().code, ErrorCode::invalid);
    EXPECT_THAT(result.error().message, HasSubstr(std::string(c.field) + ": expected"));
    EXPECT_THAT(result.error().message, HasSubstr("found"));
  }
  SamplingParams most;
  most.temperature = 1e30f;
  most.top_k = std::numeric_limits<int>::max();
  most.min_p = 1;
  for (Token id = 0; id < 1000; ++id) most.logit_bias.push_back({id, -100.f});
  EXPECT_TRUE(validate(most).has_value());
}

}  // namespace
}  // namespace kipp
