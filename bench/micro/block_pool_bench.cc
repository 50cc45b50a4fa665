// What the pool costs the engine: admission of a prompt whose prefix is cached, in proportion to
// the prompt, a block's whole life, which must not depend on the size of the pool, and with tiers
// one sequence's share of a step, which must not depend on its length.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "kv/block_table.h"

namespace kipp {
namespace {

std::vector<Token> prompt_of(int tokens, Token seed) {
  std::vector<Token> prompt(static_cast<std::size_t>(tokens));
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<Token>((i * 2654435761u + static_cast<std::size_t>(seed)) % 151000);
  }
  return prompt;
}

// A request that computes all of its prompt and leaves it in the cache.
void serve(BlockPool& pool, const std::vector<Token>& prompt) {
  const int n = static_cast<int>(prompt.size());
  auto table = BlockTable::admit(pool, prompt, n);
  table->grow(n);
  table->publish(prompt);
}

// Found whole, pinned, unpinned.
void admit_cached_prompt(benchmark::State& state) {
  const auto tokens = static_cast<int>(state.range(0));
  BlockPool pool(2 * blocks_for(tokens) + 1);
  const auto prompt = prompt_of(tokens + 1, 1);
  serve(pool, prompt);
  for (auto _ : state) {
    const auto table = BlockTable::admit(pool, prompt, tokens + 1);
    benchmark::DoNotOptimize(table->published_positions());
  }
  state.SetItemsProcessed(state.iterations() * tokens);
}
BENCHMARK(admit_cached_prompt)->Arg(1 << 10)->Arg(1 << 15);

// Taken (by evicting another), published, left: in a pool that is always full of cached blocks.
void life_of_a_block(benchmark::State& state) {
  const auto blocks = static_cast<int>(state.range(0));
  BlockPool pool(blocks);
  std::vector<std::vector<Token>> prompts;
  for (int i = 0; i < 2 * blocks; ++i) prompts.push_back(prompt_of(kBlockPositions, i));
  std::size_t next = 0;
  for (auto _ : state) {
    serve(pool, prompts[next]);
    next = (next + 1) % prompts.size();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(life_of_a_block)->Arg(1 << 6)->Arg(1 << 10)->Arg(1 << 14);

// Bits as in backend/kv_policy.h, of one layer: int8, then int4; no more memory than one sequence
// is promised.
PlanePlan two_tiers(int blocks) {
  PlanePlan plan;
  plan.units = {1, 1, 2, 8, 1, 1, 2, 8};
  plan.recent_blocks = 8;
  plan.mid_blocks = 8;
  plan.sink_blocks = 1;
  plan.step_blocks = 16;
  plan.open = 0x88;
  plan.sink = plan.recent = 0x77;
  plan.mid = 0x37;
  plan.far = 0x33;
  plan.total_units = plan.step_units() + plan.quota(blocks) + blocks * plan.base_units();
  return plan;
}

// A token more; at the end, and then from the middle on again.
void tiered_decode_step(benchmark::State& state) {
  const auto tokens = static_cast<int>(state.range(0));
  const auto prompt = prompt_of(tokens, 1);
  BlockPool pool(blocks_for(tokens), two_tiers(blocks_for(tokens)));
  auto table = BlockTable::insure(pool, tokens);
  int length = 0;
  std::size_t changes = 0;
  for (auto _ : state) {
    if (length == tokens) {
      length = table->kept(tokens / 2);
      table->truncate(length);
    }
    table->grow(length, length + 1);
    pool.drain([&](std::span<const PlaneChange> some) { changes += some.size(); },
               [](BlockId, BlockId, PlaneBits) {});
    ++length;
    table->publish(std::span(prompt).first(static_cast<std::size_t>(length)));
  }
  benchmark::DoNotOptimize(changes);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(tiered_decode_step)->Arg(1 << 10)->Arg(1 << 15);

}  // namespace
}  // namespace kipp

BENCHMARK_MAIN();
