// Trained weights on webgpu: the contract's gate against the reference, over a prompt and while
// decoding.
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "support/demo_model.h"
#include "support/logit_rows.h"
#include "tokenizer/tokenizer.h"

namespace kipp {
namespace {

constexpr double kBound = 1e-4;  // the contract's, for any backend against the reference
constexpr int kDecoded = 20;
constexpr std::string_view kStory =
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park "
    "with her friends. One day, she saw a big red ball under a tree and wanted to";

TEST(WebgpuDemo, EveryPositionAgreesWithTheReference) {
  const std::vector<Token> prompt = Tokenizer().encode(kStory, AddedTokens::as_text);
  ASSERT_GE(prompt.size(), 40u);
  const int capacity = static_cast<int>(prompt.size()) + kDecoded;
  auto found = Session::create(test::open_demo("webgpu", 8), capacity);
  auto expected = Session::create(test::open_demo("reference", 8), capacity);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_TRUE(expected) << expected.error().message;

  double worst = 0;
  const auto compare = [&](std::span<const float> mine, std::span<const float> its, int position) {
    const double error = test::nmse(mine, its);
    EXPECT_LE(error, kBound) << "position " << position;
    EXPECT_EQ(test::arg_max(mine), test::arg_max(its)) << "position " << position;
    worst = std::max(worst, error);
  };

  const auto rows = found->append_scored(prompt);
  const auto true_rows = expected->append_scored(prompt);
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_TRUE(true_rows) << true_rows.error().message;
  for (int i = 0; i < rows->rows; ++i) compare(rows->row(i), true_rows->row(i), i);
  auto next = static_cast<Token>(test::arg_max(true_rows->row(true_rows->rows - 1)));
  for (int i = 0; i < kDecoded; ++i) {
    ASSERT_TRUE(found->append(next));
    ASSERT_TRUE(expected->append(next));
    compare(found->logits(), expected->logits(), static_cast<int>(prompt.size()) + i);
    next = static_cast<Token>(test::arg_max(expected->logits()));
  }
  RecordProperty("worst_nmse", fmt::format("{:.1e}", worst));
}

}  // namespace
}  // namespace kipp
