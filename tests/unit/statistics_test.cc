#include "base/statistics.h"

#include <gtest/gtest.h>

#include <numeric>

namespace kipp {
namespace {

TEST(Percentile, IsTheNearestRank) {
  std::vector<double> values(1000);
  std::iota(values.begin(), values.end(), 1.0);
  EXPECT_EQ(percentile(values, 0.999), 999);
  EXPECT_EQ(percentile(values, 0.9991), 1000);
  EXPECT_EQ(percentile(values, 0.5), 500);
  EXPECT_EQ(percentile(values, 1), 1000);
  EXPECT_EQ(percentile(values, 1e-9), 1);
  EXPECT_EQ(percentile(std::vector<double>{7}, 0.999), 7);
}

TEST(Median, OfOddAndEvenCountsInAnyOrder) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({9, 1, 5, 2}), 3.5);
}

TEST(RunningMean, MeanAndItsStandardError) {
  RunningMean mean;
  EXPECT_EQ(mean.standard_error(), 0);
  for (const double value : {2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0}) mean.add(value);
  EXPECT_EQ(mean.count(), 8u);
  EXPECT_DOUBLE_EQ(mean.mean(), 5);
  // Squared deviations sum to 32: sqrt(32 / 7 / 8).
  EXPECT_DOUBLE_EQ(mean.standard_error(), std::sqrt(32.0 / 7 / 8));
}

TEST(RunningMean, KeepsSmallDeviationsFromALargeMean) {
  RunningMean mean;
  for (int i = 0; i < 1000; ++i) mean.add(1e9 + (i % 2));
  EXPECT_NEAR(mean.standard_error(), std::sqrt(0.25 * 1000 / 999 / 1000), 1e-9);
}

}  // namespace
}  // namespace kipp
