// Loading the cpu backend and what it refuses; that a step allocates nothing.
#include "backend/cpu/cpu_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <list>
#include <new>

#include "backend/cpu/packed_weights.h"
#include "backend/registry.h"
#include "support/tiny_model.h"

namespace {
std::atomic<int> g_allocations = 0;
}  // namespace

// Counts, for the test that watches. Not inlined, or g++ takes the pair of operator new and free
// for a mistake.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++g_allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return ::operator new(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  ++g_allocations;
  const auto to = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(to, (bytes + to - 1) / to * to)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace kipp {
namespace {

using testing::HasSubstr;

TEST(Registry, KnowsCpuFirst) {
  const auto backend = make_backend("cpu");
  ASSERT_TRUE(backend);
  EXPECT_EQ((*backend)->info().name, "cpu");
  EXPECT_EQ((*backend)->info().max_step_tokens, 512);
  EXPECT_EQ((*backend)->info().max_logit_rows, 128);
}

class CpuBackendTest : public testing::Test {
 protected:
  const Artifact artifact_ = test::open_twin("tiny-untied", Scheme::q8_0);
  const std::vector<Token> tokens_ = test::random_tokens(1000, 1);
  std::list<std::vector<BlockId>> tables_;
  cpu::CpuBackend backend_;

  std::span<const Token> tokens(int begin, int n) const {
    return std::span(tokens_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(n));
  }
};

TEST_F(CpuBackendTest, IsLoadedOnceAndBeforeUse) {
  const std::vector<BlockId> blocks = {0};
  const std::vector<EvalItem> items = {{.tokens = tokens(0, 1), .blocks = blocks}};
  EXPECT_FALSE(backend_.eval(items));
  std::vector<std::byte> bytes(8);
  EXPECT_FALSE(backend_.read_block(0, bytes));
  EXPECT_FALSE(backend_.write_block(0, bytes));
  EXPECT_EQ(backend_.block_bytes(), 0u);
  EXPECT_FALSE(backend_.load(artifact_, {.blocks = 0}));
  for (const int threads : {-1, 1025}) {
    const auto refused = backend_.load(artifact_, {.blocks = 1}, {.threads = threads});
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message,
                HasSubstr("threads: expected 1 to 1024, or 0 for one per core"));
  }
  ASSERT_TRUE(backend_.load(artifact_, {.blocks = 1}));
  EXPECT_FALSE(backend_.load(artifact_, {.blocks = 1}));
  EXPECT_TRUE(backend_.eval(items));
}

TEST_F(CpuBackendTest, RefusesWhatNoMachineHolds) {
  const auto refused = backend_.load(artifact_, {.blocks = 2000000000});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("for weights"));
  EXPECT_THAT(refused.error().message,
              HasSubstr("ask for a shorter context or for mapped weights"));
  const auto mapped =
      backend_.load(artifact_, {.blocks = 2000000000}, {.weights = WeightStore::mapped});
  ASSERT_FALSE(mapped);
  EXPECT_THAT(mapped.error().message, testing::Not(HasSubstr("weights")));
}

TEST_F(CpuBackendTest, ReportsProgressOfPacking) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;
  const LoadOptions options = {
      .threads = 2,
      .progress = [&](std::uint64_t done, std::uint64_t total) { seen.emplace_back(done, total); }};
  ASSERT_TRUE(backend_.load(artifact_, {.blocks = 1}, options));
  const std::uint64_t total = cpu::PackedWeights::bytes_needed(artifact_.weights());
  ASSERT_GT(seen.size(), 5u * 4);
  EXPECT_EQ(seen.front(), std::pair(std::uint64_t{0}, total));
  EXPECT_EQ(seen.back(), std::pair(total, total));
  EXPECT_TRUE(std::ranges::is_sorted(seen));

  seen.clear();
  cpu::CpuBackend mapped;
  LoadOptions left = options;
  left.weights = WeightStore::mapped;
  ASSERT_TRUE(mapped.load(artifact_, {.blocks = 1}, left));
  EXPECT_TRUE(seen.empty()) << "nothing is packed";
}

TEST_F(CpuBackendTest, BoundsTheRowsOfLogits) {
  ASSERT_TRUE(backend_.load(artifact_, {.blocks = 10}));
  std::vector<BlockId> blocks = {4, 1, 0, 8, 9};
  EXPECT_TRUE(backend_.eval(
      std::vector<EvalItem>{{.tokens = tokens(0, 128), .blocks = blocks, .want = LogitRows::all}}));
  const auto refused = backend_.eval(
      std::vector<EvalItem>{{.tokens = tokens(0, 129), .blocks = blocks, .want = LogitRows::all}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "items: expected at most 128 rows of logits in one step, found 129");
}

TEST_F(CpuBackendTest, ChecksBlockNumbersAndSizes) {
  ASSERT_TRUE(backend_.load(artifact_, {.blocks = 2}));
  std::vector<std::byte> bytes(backend_.block_bytes());
  EXPECT_TRUE(backend_.read_block(1, bytes));
  EXPECT_THAT(backend_.read_block(2, bytes).error().message,
              HasSubstr("expected one from 0 to 1, found 2"));
  EXPECT_FALSE(backend_.write_block(-1, bytes));
  bytes.pop_back();
  EXPECT_FALSE(backend_.write_block(0, bytes));
}

// Steps of every kind, the first of each included.
TEST_F(CpuBackendTest, AStepAllocatesNothing) {
  ASSERT_TRUE(backend_.load(artifact_, {.blocks = 64}, {.threads = 3}));
  std::vector<BlockId> a, b;
  for (BlockId i = 0; i < 32; ++i) a.push_back(31 - i);
  for (BlockId i = 32; i < 64; ++i) b.push_back(i);
  std::vector<std::vector<EvalItem>> steps;
  steps.push_back({{.tokens = tokens(0, 512), .blocks = a}});
  steps.push_back({{.pos = 512, .tokens = tokens(512, 128), .blocks = a, .want = LogitRows::all}});
  for (int pos = 640; pos < 643; ++pos) {
    steps.push_back({{.pos = pos, .tokens = tokens(pos, 1), .blocks = a}});
  }
  steps.push_back({{.seq = 0, .pos = 643, .tokens = tokens(0, 1), .blocks = a},
                   {.seq = 1, .tokens = tokens(0, 300), .blocks = b, .want = LogitRows::none}});
  // Many sequences over shared blocks.
  std::vector<EvalItem> shared;
  for (SeqId seq = 0; seq < 16; ++seq) {
    auto& own = tables_.emplace_back(a.begin(), a.begin() + 20);
    own.push_back(40 + seq);
    shared.push_back({.seq = seq, .pos = 640, .tokens = tokens(seq, 2), .blocks = own});
  }
  steps.push_back(shared);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const int before = g_allocations;
    const bool done = backend_.eval(steps[i]).has_value();
    const int allocated = g_allocations - before;
    ASSERT_TRUE(done) << i;
    EXPECT_EQ(allocated, 0) << "step " << i;
  }
}

}  // namespace
}  // namespace kipp
