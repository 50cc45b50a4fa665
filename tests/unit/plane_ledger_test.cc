#include "kv/plane_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace kipp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Planes 0 and 1 are what the far band reads, 2 what the recent one adds, 3 the rows of an open
// block; 4 is of no layer.
constexpr PlaneBits kBase = 0b00011, kExtra = 0b00100, kRows = 0b01000, kNothing = 0b10000;
constexpr PlaneBits kRecent = 0b10111;

PlanePlan plan_of(int total_units) {
  PlanePlan plan;
  plan.units = {1, 1, 2, 8, 0};
  plan.total_units = total_units;
  plan.recent_blocks = 2;
  plan.open = kRows;
  plan.sink = plan.mid = plan.far = kBase;
  plan.recent = kRecent;
  return plan;
}

std::vector<std::string> drain(PlaneLedger& ledger) {
  std::vector<std::string> seen;
  ledger.drain(
      [&](std::span<const PlaneChange> changes) {
        EXPECT_FALSE(changes.empty());
        for (const auto& c : changes) seen.push_back(fmt::format("{}:{:b}", c.block, c.planes));
      },
      [&](BlockId from, BlockId to, PlaneBits planes) {
        seen.push_back(fmt::format("{}->{}:{:b}", from, to, planes));
      });
  return seen;
}

void expect_sound(const PlaneLedger& ledger) {
  const auto sound = ledger.check();
  EXPECT_TRUE(sound) << sound.error().message;
}

TEST(PlaneLedger, TellsOfChangesInOrder) {
  PlaneLedger ledger(plan_of(40), 3, true);
  for (BlockId id = 0; id < 3; ++id) ledger.set_base(id, kBase);
  EXPECT_THAT(drain(ledger), IsEmpty());
  ledger.add(0, kBase);
  ledger.add(1, kRows);
  ledger.pin(1, kRows);
  ledger.add(1, kRecent);
  ledger.unpin(1, kRows);
  EXPECT_THAT(drain(ledger), ElementsAre("0:11", "1:10111"))
      << "of changes in a row the last one says it all";
  EXPECT_THAT(drain(ledger), IsEmpty());
  ledger.move(1, 0, kExtra);
  ledger.release(1);
  ledger.move(0, 1, kExtra);
  ledger.drop(1, kExtra);
  ledger.add(1, kRows);
  EXPECT_THAT(drain(ledger), ElementsAre("1->0:100", "1:0", "0->1:100", "1:1000"));
  EXPECT_EQ(ledger.free_units(), 40 - 2 - 8);
}

TEST(PlaneLedger, DropsTheIdleInTheOrderInWhichTheyBecameIdle) {
  PlaneLedger ledger(plan_of(40), 3, true);
  for (BlockId id = 0; id < 3; ++id) {
    ledger.set_base(id, kBase);
    ledger.add(id, kRecent);
    ledger.pin(id, kRecent);
    ledger.pin(id, kRecent);
  }
  for (const BlockId id : {0, 1, 2}) ledger.unpin(id, kRecent);
  EXPECT_EQ(ledger.oldest_idle(), kNever) << "each has a reader yet";
  EXPECT_EQ(ledger.idle_units(), 0);
  for (const BlockId id : {2, 0, 1}) ledger.unpin(id, kRecent);
  EXPECT_EQ(ledger.idle_units(), 6);
  ledger.pin(2, kRecent);
  ledger.unpin(2, kRecent);
  EXPECT_EQ(ledger.readers(2, 2), 0);
  expect_sound(ledger);

  std::vector<BlockId> order;
  for (int i = 0; i < 3; ++i) {
    ASSERT_NE(ledger.oldest_idle(), kNever);
    ledger.drop_oldest();
    for (BlockId id = 0; id < 3; ++id) {
      const bool dropped = (ledger.held(id) & kExtra) == 0;
      if (dropped && std::ranges::find(order, id) == order.end()) order.push_back(id);
    }
    expect_sound(ledger);
  }
  EXPECT_EQ(ledger.oldest_idle(), kNever);
  EXPECT_THAT(order, ElementsAre(0, 1, 2)) << "the last one was read again since";
  EXPECT_EQ(ledger.demotions(), 3u);
  EXPECT_EQ(ledger.held(0), kBase | kNothing) << "what takes no memory is not worth dropping";
  EXPECT_EQ(ledger.holders(), (std::array<int, kMaxPlanes>{3, 3, 0, 0, 3}));
}

TEST(PlaneLedger, KeepsNothingThatNobodyCouldRead) {
  PlaneLedger ledger(plan_of(40), 1, true);
  ledger.set_base(0, kBase);
  ledger.add(0, kBase | kExtra | kRows);
  ledger.pin(0, kRows | kExtra);
  ledger.unpin(0, kRows);
  EXPECT_EQ(ledger.held(0), kBase | kExtra) << "rows of a complete block are in no band";
  ledger.unpin(0, kExtra);
  EXPECT_EQ(ledger.held(0), kBase | kExtra);
  EXPECT_EQ(ledger.idle_units(), 2);
  expect_sound(ledger);
}

TEST(PlaneLedger, RecordsNothingWhereBlocksAreWhole) {
  PlaneLedger ledger(plan_of(40), 2, false);
  ledger.add(0, kBase);
  ledger.add(1, kExtra);
  ledger.move(1, 0, kExtra);
  ledger.release(0);
  EXPECT_THAT(drain(ledger), IsEmpty());
}

}  // namespace
}  // namespace kipp
