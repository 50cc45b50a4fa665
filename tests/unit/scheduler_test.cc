// What a step is made of: rules as properties of plan_step(), and scenarios from
// tests/cases/scheduler/*.sched, which run on the engine's core with its pool.
#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "support/engine_harness.h"
#include "support/property.h"
#include "support/scenario.h"

namespace kipp {
namespace {

// Sequences somewhere on their way, and a budget that serves them.
struct Situation {
  std::vector<SequenceProgress> sequences;
  StepBudget budget;
};

Situation any_situation() {
  Situation situation;
  const int n = *test::among(1, 12);
  for (int i = 0; i < n; ++i) {
    const int evaluated = *test::among(0, 100);
    const bool generates = *rc::gen::arbitrary<bool>();
    situation.sequences.push_back({.evaluated = evaluated,
                                   .total = evaluated + *test::among(1, generates ? 6 : 80),
                                   .phase = generates ? Phase::generate : Phase::prompt,
                                   .scored = *test::among(0, 3) == 0});
  }
  situation.budget = {.tokens = *test::among(n, 100),
                      .logit_rows = *test::among(n, 30),
                      .prompt_tokens_beside_generation = *test::among(1, 50)};
  return situation;
}

struct Totals {
  int tokens = 0, rows = 0, prompt_tokens = 0;
  int prompt_cost = 0;  // scored tokens count double
  bool generates = false;
};

Totals totals(const Situation& situation, const std::vector<PlannedItem>& items) {
  Totals sum;
  for (const PlannedItem& item : items) {
    sum.tokens += item.tokens;
    sum.rows += item.rows();
    const auto& s = situation.sequences[static_cast<std::size_t>(item.sequence)];
    if (s.phase == Phase::prompt) {
      sum.prompt_tokens += item.tokens;
      sum.prompt_cost += s.scored ? 2 * item.tokens : item.tokens;
    }
    sum.generates = sum.generates || s.phase == Phase::generate;
  }
  return sum;
}

TEST(PlanStep, KeepsToTheBudgetAndToEachSequence) {
  test::property(5000, [] {
    const Situation situation = any_situation();
    std::vector<PlannedItem> items;
    plan_step(situation.sequences, situation.budget, items);
    const Totals sum = totals(situation, items);
    RC_ASSERT(sum.tokens <= situation.budget.tokens);
    RC_ASSERT(sum.rows <= situation.budget.logit_rows);
    if (sum.generates) {
      // Half a scored token is rounded up.
      RC_ASSERT(sum.prompt_cost <= situation.budget.prompt_tokens_beside_generation + 1);
      RC_ASSERT(sum.prompt_tokens <= situation.budget.prompt_tokens_beside_generation);
    }
    std::vector<bool> seen(situation.sequences.size(), false);
    for (const PlannedItem& item : items) {
      const auto at = static_cast<std::size_t>(item.sequence);
      const SequenceProgress& s = situation.sequences[at];
      RC_ASSERT(!seen[at]);
      seen[at] = true;
      RC_ASSERT(item.pos == s.evaluated);
      RC_ASSERT(item.tokens >= 1 && item.pos + item.tokens <= s.total);
      // Logits exactly where something will be drawn or verified.
      const bool ends = item.pos + item.tokens == s.total;
      if (s.phase == Phase::prompt && s.scored) {
        RC_ASSERT(item.want == LogitRows::all);
      } else if (s.phase == Phase::prompt) {
        RC_ASSERT(item.want == (ends ? LogitRows::last : LogitRows::none));
      } else {
        RC_ASSERT(item.want == (s.total - s.evaluated > 1 ? LogitRows::all : LogitRows::last));
      }
    }
  });
}

TEST(PlanStep, WhoGeneratesNeverWaits) {
  test::property(5000, [] {
    const Situation situation = any_situation();
    std::vector<PlannedItem> items;
    plan_step(situation.sequences, situation.budget, items);
    for (std::size_t i = 0; i < situation.sequences.size(); ++i) {
      if (situation.sequences[i].phase != Phase::generate) continue;
      RC_ASSERT(std::ranges::count(items, static_cast<int>(i), &PlannedItem::sequence) == 1);
    }
  });
}

TEST(PlanStep, PromptsAreReadInTheOrderOfArrival) {
  test::property(5000, [] {
    const Situation situation = any_situation();
    std::vector<PlannedItem> items;
    plan_step(situation.sequences, situation.budget, items);
    // Whoever gets anything stands behind prompts that are read to their end, or as far as the
    // rows go that are not kept for those behind.
    int rows = situation.budget.logit_rows - totals(situation, items).rows;
    for (const PlannedItem& item : items) {
      if (situation.sequences[static_cast<std::size_t>(item.sequence)].phase == Phase::prompt) {
        rows += item.rows();
      }
    }
    const auto kept_behind = [&](int sequence) {
      const auto behind =
          std::span(situation.sequences).subspan(static_cast<std::size_t>(sequence) + 1);
      return static_cast<int>(std::ranges::count(behind, Phase::prompt, &SequenceProgress::phase));
    };
    int read_to = 0;
    for (const PlannedItem& item : items) {
      const auto at = static_cast<std::size_t>(item.sequence);
      if (situation.sequences[at].phase != Phase::prompt) continue;
      for (; read_to < item.sequence; ++read_to) {
        const SequenceProgress& older = situation.sequences[static_cast<std::size_t>(read_to)];
        if (older.phase != Phase::prompt) continue;
        const auto share = std::ranges::find(items, read_to, &PlannedItem::sequence);
        RC_ASSERT(share != items.end());
        rows -= share->rows();
        const int left = older.total - older.evaluated - share->tokens;
        RC_ASSERT(left == 0 || (older.scored && rows == kept_behind(read_to)));
      }
    }
  });
}

TEST(PlanStep, SpendsWhatThereIs) {
  test::property(5000, [] {
    const Situation situation = any_situation();
    std::vector<PlannedItem> items;
    plan_step(situation.sequences, situation.budget, items);
    const Totals sum = totals(situation, items);
    RC_ASSERT(!items.empty());
    const int for_prompts = std::min(situation.budget.prompt_tokens_beside_generation,
                                     situation.budget.tokens - (sum.tokens - sum.prompt_tokens));
    const bool full =
        sum.tokens == situation.budget.tokens || (sum.generates && sum.prompt_cost >= for_prompts);
    // A row is kept for every prompt, and one that does not end does not use it.
    const auto kept =
        static_cast<int>(std::ranges::count_if(situation.sequences, [&](const SequenceProgress& s) {
          const auto at = &s - situation.sequences.data();
          const auto item = std::ranges::find(items, static_cast<int>(at), &PlannedItem::sequence);
          return s.phase == Phase::prompt && (item == items.end() || item->rows() == 0);
        }));
    const bool rows_full = sum.rows + kept == situation.budget.logit_rows;
    std::vector<int> left(situation.sequences.size());
    for (std::size_t i = 0; i < left.size(); ++i) {
      left[i] = situation.sequences[i].total - situation.sequences[i].evaluated;
    }
    for (const PlannedItem& item : items) {
      left[static_cast<std::size_t>(item.sequence)] -= item.tokens;
    }
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (situation.sequences[i].phase == Phase::prompt) {
        RC_ASSERT(left[i] == 0 || full || (rows_full && situation.sequences[i].scored));
      } else {
        RC_ASSERT(left[i] == 0 || sum.tokens == situation.budget.tokens || rows_full ||
                  sum.prompt_tokens > 0);
      }
    }
  });
}

TEST(PlanStep, AllocatesOnlyOnce) {
  const std::vector<SequenceProgress> sequences(8, {.evaluated = 3, .total = 9});
  std::vector<PlannedItem> items;
  items.reserve(sequences.size());
  const PlannedItem* const memory = items.data();
  for (int i = 0; i < 3; ++i) {
    plan_step(sequences, {.tokens = 64, .logit_rows = 64, .prompt_tokens_beside_generation = 8},
              items);
    EXPECT_EQ(items.size(), 8u);
    EXPECT_EQ(items.data(), memory);
  }
}

// Step after step: whatever arrives, everybody is served in the end.
TEST(PlanStep, EveryRequestFinishes) {
  test::property(1000, [] {
    struct Job {
      SequenceProgress at;
      int prompt, to_draw;
    };
    std::vector<Job> jobs;
    const int n = *test::among(1, 10);
    int work = 0;
    for (int i = 0; i < n; ++i) {
      const int prompt = *test::among(1, 60);
      const int to_draw = *test::among(1, 20);
      const bool scored = *rc::gen::arbitrary<bool>();
      jobs.push_back({{.evaluated = 0, .total = prompt, .scored = scored}, prompt, to_draw});
      work += prompt + to_draw;
    }
    const StepBudget budget{.tokens = *test::among(n, 40),
                            .logit_rows = n,
                            .prompt_tokens_beside_generation = *test::among(1, 20)};
    std::vector<SequenceProgress> progress;
    std::vector<PlannedItem> items;
    for (int step = 0; !jobs.empty(); ++step) {
      RC_ASSERT(step < work);  // each step evaluates something
      progress.clear();
      for (const Job& job : jobs) progress.push_back(job.at);
      plan_step(progress, budget, items);
      for (const PlannedItem& item : items) {
        Job& job = jobs[static_cast<std::size_t>(item.sequence)];
        job.at.evaluated += item.tokens;
        if (job.at.evaluated < job.at.total) continue;
        ++job.at.total;
        --job.to_draw;
        job.at.phase = Phase::generate;
      }
      std::erase_if(jobs, [](const Job& job) { return job.to_draw == 0; });
    }
  });
}

class Scenario : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Scenario, Holds) { test::run_scenario(GetParam()); }

std::vector<std::filesystem::path> scenario_files() {
  std::vector<std::filesystem::path> files;
  const std::filesystem::path folder = std::filesystem::path(KIPP_TEST_CASES) / "scheduler";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".sched") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

INSTANTIATE_TEST_SUITE_P(Files, Scenario, testing::ValuesIn(scenario_files()),
                         [](const auto& tested) { return tested.param.stem().string(); });

}  // namespace
}  // namespace kipp
