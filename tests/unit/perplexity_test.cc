// Windows, scores and summaries; that the logits are the right ones is compared with another
// implementation in tests/python/test_perplexity.py.
#include "engine/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/property.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Windows, SideBySide) {
  EXPECT_THAT(plan_windows(10, 4, 4),
              ElementsAre(Window{0, 1, 4}, Window{4, 5, 8}, Window{8, 9, 10}));
  // The ninth token would stand alone in its window, with nothing to predict it from.
  EXPECT_THAT(plan_windows(9, 4, 4), ElementsAre(Window{0, 1, 4}, Window{4, 5, 8}));
}

TEST(Windows, Overlapping) {
  EXPECT_THAT(plan_windows(9, 4, 2),
              ElementsAre(Window{0, 1, 4}, Window{2, 4, 6}, Window{4, 6, 8}, Window{6, 8, 9}));
}

TEST(Windows, OneForAShortText) {
  EXPECT_THAT(plan_windows(2, 4, 1), ElementsAre(Window{0, 1, 2}));
  EXPECT_THAT(plan_windows(4, 4, 1), ElementsAre(Window{0, 1, 4}));
  EXPECT_THAT(plan_windows(1, 4, 1), IsEmpty());
}

TEST(Windows, PredictEveryTokenOnceWithEnoughContext) {
  test::property(500, [] {
    const int n = *test::among(2, 300);
    const int context = *test::among(2, 40);
    const int stride = *test::among(1, context + 1);
    const auto windows = plan_windows(n, context, stride);
    std::vector<bool> scored(static_cast<std::size_t>(n), false);
    int last = 0;
    for (const Window& w : windows) {
      RC_ASSERT(w.begin < w.first_scored && w.first_scored < w.end);
      RC_ASSERT(w.end <= n && w.end - w.begin <= context);
      if (w.begin > 0 && stride < context) RC_ASSERT(w.first_scored - w.begin >= context - stride);
      for (int t = w.first_scored; t < w.end; ++t) {
        RC_ASSERT(t > last);
        last = t;
        scored[static_cast<std::size_t>(t)] = true;
      }
    }
    std::size_t count = 0;
    for (int t = 1; t < n; ++t) {
      // Without an overlap nobody predicts the first token of a window.
      const bool expected = stride < context || t % context != 0;
      RC_ASSERT(scored[static_cast<std::size_t>(t)] == expected);
      count += expected ? 1 : 0;
    }
    RC_ASSERT(scored_tokens(windows) == count);
  });
}

const float kLn2 = std::log(2.0f);
const float kLn3 = std::log(3.0f);

TEST(ScoreRow, IsTheNegativeLogOfASoftmax) {
  // Shifted far, where a sum of plain exponentials overflows.
  const std::vector<float> logits = {1000, 1000 + kLn2, 1000 + kLn3};
  for (const Token target : {0, 1, 2}) {
    const auto score = score_row(logits, target, {});
    ASSERT_TRUE(score);
    EXPECT_NEAR(score->nll, -std::log((target + 1) / 6.0), 1e-4);
    EXPECT_EQ(score->kl, 0);
  }
}

TEST(ScoreRow, DivergenceIsOfTheSavedRunFromThisOne) {
  const std::vector<float> q = {0, kLn2, kLn3};          // 1/6, 2/6, 3/6
  const std::vector<float> p = {kLn3 + 5, kLn2 + 5, 5};  // 3/6, 2/6, 1/6
  const std::vector<float> r = {5, 5, 5 + 2 * kLn2};     // 1/6, 1/6, 4/6
  EXPECT_NEAR(score_row(q, 0, p)->kl, 0.5 * std::log(3.0) - 1.0 / 6 * std::log(3.0), 1e-6);
  EXPECT_FALSE(score_row(q, 0, p)->same_top);
  // The other way round it would be 2/6 log 2 - 3/6 log(4/3).
  EXPECT_NEAR(score_row(q, 0, r)->kl, 1.0 / 6 * std::log(0.5) + 4.0 / 6 * std::log(4.0 / 3), 1e-6);
  EXPECT_TRUE(score_row(q, 0, r)->same_top);
  EXPECT_EQ(score_row(q, 0, q)->kl, 0);
  EXPECT_NEAR(score_row(q, 0, p)->other_nll, std::log(2.0), 1e-6);
}

TEST(ScoreRow, ImpossibleTokensOfTheSavedRunCount0) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  EXPECT_NEAR(score_row(std::vector<float>{0, 0}, 0, std::vector<float>{0, kNever})->kl,
              std::log(2.0), 1e-9);
}

TEST(ScoreRow, RefusesWhatIsNotFinite) {
  const std::vector<float> fine = {0, 1, 2};
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (std::size_t at = 0; at < 3; ++at) {
      std::vector<float> broken = fine;
      broken[at] = bad;
      const auto own = score_row(broken, 0, {});
      ASSERT_FALSE(own);
      EXPECT_EQ(own.error().message, "logits: expected finite numbers, found others");
      const auto saved = score_row(fine, 0, broken);
      ASSERT_FALSE(saved);
      EXPECT_THAT(saved.error().message, HasSubstr("saved logits"));
    }
  }
}

TEST(Summary, MeansErrorsAndTails) {
  std::vector<RowScore> rows;
  for (int i = 1; i <= 2000; ++i) {
    rows.push_back({.context = i,
                    .nll = i % 2 == 0 ? 2.0 : 3.0,
                    .kl = i * 1e-3,
                    .same_top = i % 4 != 0,
                    .other_nll = i % 4 == 0 ? 1.0 : 2.0});
  }
  const PerplexitySummary plain = summarize(rows, false);
  EXPECT_EQ(plain.rows, 2000u);
  EXPECT_DOUBLE_EQ(plain.nll, 2.5);
  EXPECT_NEAR(plain.nll_error, std::sqrt(0.25 / 1999), 1e-12);
  EXPECT_DOUBLE_EQ(plain.perplexity(), std::exp(2.5));
  EXPECT_DOUBLE_EQ(plain.perplexity_error(), std::exp(2.5) * plain.nll_error);
  EXPECT_FALSE(plain.divergence);

  const auto divergence = summarize(rows, true).divergence;
  ASSERT_TRUE(divergence);
  EXPECT_NEAR(divergence->mean, 1.0005, 1e-9);
  EXPECT_DOUBLE_EQ(divergence->p999, 1.998);
  EXPECT_DOUBLE_EQ(divergence->max, 2.0);
  EXPECT_DOUBLE_EQ(divergence->same_top, 0.75);
  EXPECT_DOUBLE_EQ(divergence->nll, 1.75);
}

TEST(Summary, ByPositionInDoublingBuckets) {
  std::vector<RowScore> rows;
  for (const int context : {300, 1, 31, 32, 63, 64, 127, 128}) {
    rows.push_back({.context = context, .nll = 1.0 * context});
  }
  std::vector<std::array<int, 3>> found;
  for (const PositionBucket& bucket : summarize_by_position(rows, false)) {
    found.push_back({bucket.from, bucket.to, static_cast<int>(bucket.summary.nll)});
  }
  EXPECT_THAT(found,
              ElementsAre(std::array{0, 32, 16}, std::array{32, 64, 47}, std::array{64, 128, 95},
                          std::array{128, 256, 128}, std::array{256, 512, 300}));
}

class ScoreWindows : public ::testing::Test {
 protected:
  static constexpr int kContext = 48;
  std::shared_ptr<Model> model_ = test::open_twin_model("tiny-tied", Scheme::bf16, 8, "cpu");
  Session session_ = *Session::create(model_, kContext);
  std::vector<Token> tokens_ = test::random_tokens(150, 11);
};

bool equal(const RowScore& a, const RowScore& b) {
  return a.context == b.context && a.nll == b.nll && a.kl == b.kl && a.same_top == b.same_top;
}

TEST_F(ScoreWindows, ChunksAndSingleTokensGiveTheSameBits) {
  for (const int stride : {kContext, 20}) {
    const auto windows = plan_windows(150, kContext, stride);
    const auto chunks = score_windows(*model_, session_, tokens_, windows, false);
    const auto decoded = score_windows(*model_, session_, tokens_, windows, true);
    ASSERT_TRUE(chunks && decoded);
    EXPECT_EQ(chunks->size(), scored_tokens(windows));
    EXPECT_TRUE(std::ranges::equal(*chunks, *decoded, equal));
  }
}

// Every band of the policy is read, and what a chunk holds is coded in it.
TEST(TieredScores, ChunksAndSingleTokensGiveTheSameBits) {
  constexpr int kTokens = 170;
  const auto tokens = test::random_tokens(kTokens, 12);
  const auto windows = plan_windows(kTokens, kTokens, kTokens);
  const auto policy = KvPolicy::parse("sink=1:int8,recent=1:int8,mid=1:int8/int4,far=int4/int2");
  ASSERT_TRUE(policy);
  const auto model =
      Model::open(test::tiny_artifact_path("tiny-tied", Scheme::bf16), {.backend = "cpu",
                                                                        .allow_synthetic = true,
                                                                        .kv_blocks = 8,
                                                                        .kv = *policy,
                                                                        .allow_unproven_kv = true});
  ASSERT_TRUE(model) << model.error().message;
  const auto full = test::open_twin_model("tiny-tied", Scheme::bf16, 8, "cpu");
  auto session = Session::create(*model, kTokens);
  auto beside = Session::create(full, kTokens);
  ASSERT_TRUE(session && beside);
  const auto chunks =
      score_windows(**model, *session, tokens, windows, false, {.beside = &*beside});
  const auto decoded = score_windows(**model, *session, tokens, windows, true);
  ASSERT_TRUE(chunks && decoded);
  EXPECT_TRUE(std::ranges::equal(*chunks, *decoded, {}, &RowScore::nll, &RowScore::nll));
  for (const RowScore& row : *chunks) {
    // The last token seen has to be in a later block than the first.
    EXPECT_EQ(row.kl > 0, row.context > kBlockPositions) << row.context;
  }
}

TEST_F(ScoreWindows, ARowSeesItsWindowAndNothingElse) {
  const auto windows = plan_windows(150, kContext, 20);
  const auto rows = score_windows(*model_, session_, tokens_, windows, false);
  ASSERT_TRUE(rows);
  // The first prediction of the second window, from its tokens alone.
  const Window& second = windows[1];
  const auto at = static_cast<std::size_t>(windows[0].end - windows[0].first_scored);
  auto alone = Session::create(model_, kContext);
  ASSERT_TRUE(alone);
  const int seen = second.first_scored - second.begin;
  ASSERT_TRUE(alone->sync(std::span(tokens_).subspan(static_cast<std::size_t>(second.begin),
                                                     static_cast<std::size_t>(seen))));
  const auto expected =
      score_row(alone->logits(), tokens_[static_cast<std::size_t>(second.first_scored)], {});
  ASSERT_TRUE(expected);
  EXPECT_EQ((*rows)[at].nll, expected->nll);
  EXPECT_EQ((*rows)[at].context, seen);
}

TEST_F(ScoreWindows, CancelKeepsWhatWasScored) {
  const auto windows = plan_windows(150, kContext, kContext);
  std::atomic<bool> cancel = false;
  PerplexityHooks hooks;
  hooks.cancel = &cancel;
  hooks.progress = [&](std::size_t done, std::size_t total) {
    EXPECT_EQ(total, scored_tokens(windows));
    if (done >= 60) cancel = true;
  };
  const auto some = score_windows(*model_, session_, tokens_, windows, true, hooks);
  const auto all = score_windows(*model_, session_, tokens_, windows, true);
  ASSERT_TRUE(some && all);
  ASSERT_EQ(some->size(), 60u);
  EXPECT_TRUE(std::ranges::equal(*some, std::span(*all).first(60), equal));
}

TEST_F(ScoreWindows, SavedRowsAreComparedWithTheirOwn) {
  const auto windows = plan_windows(150, kContext, 20);
  const std::string path = (test::scratch_dir() / "rows.logits").string();
  const auto identity =
      LogitsIdentity::of(model_->artifact(), tokens_, kContext, 20, scored_tokens(windows));
  auto writer = LogitsWriter::create(path, identity);
  ASSERT_TRUE(writer);
  PerplexityHooks hooks;
  hooks.save = &*writer;
  ASSERT_TRUE(score_windows(*model_, session_, tokens_, windows, false, hooks));
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(writer->commit());

  const auto saved = SavedLogits::open(path, identity);
  ASSERT_TRUE(saved) << saved.error().message;
  const auto against_itself =
      score_windows(*model_, session_, tokens_, windows, true, {.against = &*saved});
  ASSERT_TRUE(against_itself);
  for (const RowScore& row : *against_itself) {
    EXPECT_EQ(row.kl, 0);
    EXPECT_TRUE(row.same_top);
  }
  const auto other = test::open_twin_model("tiny-tied", Scheme::scale4_gs32, 8, "cpu");
  auto session = Session::create(other, kContext);
  ASSERT_TRUE(session);
  const auto quantized =
      score_windows(*other, *session, tokens_, windows, false, {.against = &*saved});
  ASSERT_TRUE(quantized);
  // Two runs of the same rows are near each other; shifted by one they would be worlds apart.
  const auto divergence = summarize(*quantized, true).divergence;
  EXPECT_GT(divergence->mean, 1e-6);
  EXPECT_LT(divergence->mean, 1);
}

TEST_F(ScoreWindows, BesideAnotherModelIsAsAgainstItsFile) {
  const std::span tokens = std::span(tokens_).first(70);
  const auto windows = plan_windows(70, kContext, 20);
  const std::string path = (test::scratch_dir() / "beside.logits").string();
  const auto identity =
      LogitsIdentity::of(model_->artifact(), tokens, kContext, 20, scored_tokens(windows));
  auto writer = LogitsWriter::create(path, identity);
  ASSERT_TRUE(writer);
  const auto own = score_windows(*model_, session_, tokens, windows, false, {.save = &*writer});
  ASSERT_TRUE(own && writer->commit());
  const auto saved = SavedLogits::open(path, identity);
  ASSERT_TRUE(saved) << saved.error().message;

  const auto other = test::open_twin_model("tiny-tied", Scheme::scale4_gs32, 8, "cpu");
  auto session = Session::create(other, kContext);
  ASSERT_TRUE(session);
  const auto against = score_windows(*other, *session, tokens, windows, true, {.against = &*saved});
  const auto beside =
      score_windows(*other, *session, tokens, windows, false, {.beside = &session_});
  ASSERT_TRUE(against && beside);
  EXPECT_TRUE(std::ranges::equal(*beside, *against, equal));
  EXPECT_GT(summarize(*beside, true).divergence->mean, 1e-6);
  for (std::size_t i = 0; i < beside->size(); ++i) EXPECT_EQ((*beside)[i].other_nll, (*own)[i].nll);
}

}  // namespace
}  // namespace kipp
