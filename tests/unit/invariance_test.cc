// What a token computes depends on its sequence's tokens alone, on every backend that promises it
// (cpu_invariance_test.cc goes further for `cpu`). Every comparison here is bit for bit: batch mix,
// chunk size, block table, what other blocks hold, truncation, recomputation, copies and restored
// blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "backend/registry.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

constexpr int kBlocks = 24;
constexpr int kTokens = 67;  // two full blocks and a part of a third

struct Setup {
  const char* name;
  const char* backend;
  int threads;
  const char* shape;
  Scheme scheme;
  KvStore store;
};

// Logits of one sequence by position. Those of all positions cost seconds under sanitizers, so most
// tests look at the ends of chunks: every position before them is in their attention.
using Logits = std::map<int, std::vector<float>>;

std::vector<float> row_of(const LogitsView& view, int row) {
  const auto values = view.row(row);
  return {values.begin(), values.end()};
}

// memcmp, not ==: -0 and 0 are different results, NaN would be equal to itself.
testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return testing::AssertionFailure() << a.size() << " != " << b.size();
  if (std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0) {
    return testing::AssertionSuccess();
  }
  const auto differs = std::mismatch(a.begin(), a.end(), b.begin());
  return testing::AssertionFailure() << "logit " << differs.first - a.begin() << ": "
                                     << *differs.first << " and " << *differs.second;
}

class Invariance : public testing::TestWithParam<Setup> {
 protected:
  Invariance() : artifact_(test::open_twin(GetParam().shape, GetParam().scheme)) {
    backend_ = fresh_backend();
  }

  std::unique_ptr<Backend> fresh_backend() const {
    auto backend = make_backend(GetParam().backend);
    EXPECT_TRUE(backend);
    const auto loaded = (*backend)->load(artifact_, {.blocks = kBlocks, .store = GetParam().store},
                                         {.threads = GetParam().threads});
    EXPECT_TRUE(loaded) << loaded.error().message;
    return *std::move(backend);
  }

  LogitsView eval(const std::vector<EvalItem>& items) {
    const auto view = backend_->eval(items);
    EXPECT_TRUE(view) << view.error().message;
    return *view;
  }

  // Evaluates tokens from `pos` in chunks.
  Logits run(std::span<const Token> tokens, std::span<const BlockId> blocks, int chunk, int pos = 0,
             LogitRows want = LogitRows::last) {
    Logits logits;
    for (int at = 0; at < static_cast<int>(tokens.size()); at += chunk) {
      const int n = std::min(chunk, static_cast<int>(tokens.size()) - at);
      const auto part = tokens.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n));
      const auto view = eval({{.pos = pos + at, .tokens = part, .blocks = blocks, .want = want}});
      for (int r = 0; r < view.rows; ++r) {
        logits[pos + at + n - view.rows + r] = row_of(view, r);
      }
    }
    return logits;
  }
  Logits run_all(std::span<const Token> tokens, std::span<const BlockId> blocks) {
    return run(tokens, blocks, static_cast<int>(tokens.size()), 0, LogitRows::all);
  }

  // Each position found must be expected, with the same bits.
  static void expect_same(const Logits& found, const Logits& expected, const std::string& what) {
    ASSERT_FALSE(found.empty());
    for (const auto& [pos, logits] : found) {
      ASSERT_TRUE(expected.contains(pos)) << what << ", position " << pos;
      ASSERT_TRUE(same_bits(logits, expected.at(pos))) << what << ", position " << pos;
    }
  }

  const Artifact artifact_;
  std::unique_ptr<Backend> backend_;
  const std::vector<Token> tokens_ = test::random_tokens(kTokens, 1);
  const std::vector<BlockId> identity_ = {0, 1, 2, 3};
  const std::vector<BlockId> scrambled_ = {17, 4, 9, 8};
};

INSTANTIATE_TEST_SUITE_P(
    Twins, Invariance,
    testing::Values(
        Setup{"TiedBf16ExactKv", "reference", 1, "tiny-tied", Scheme::bf16, KvStore::f32},
        Setup{"UntiedAffine4", "reference", 1, "tiny-untied", Scheme::affine4_gs32, KvStore::bf16},
        Setup{"CpuTiedBf16ExactKv", "cpu", 1, "tiny-tied", Scheme::bf16, KvStore::f32},
        Setup{"CpuTiedQ8", "cpu", 2, "tiny-tied", Scheme::q8_0, KvStore::bf16},
        Setup{"CpuUntiedAffine4", "cpu", 3, "tiny-untied", Scheme::affine4_gs32, KvStore::bf16},
        Setup{"CpuTiedScale4", "cpu", 16, "tiny-tied", Scheme::scale4_gs32, KvStore::bf16}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(Invariance, ChunkSize) {
  const Logits whole = run_all(tokens_, identity_);
  ASSERT_EQ(whole.size(), static_cast<std::size_t>(kTokens));
  for (const int chunk : {7, 32, 33}) {  // chunks of 1: below
    expect_same(run(tokens_, identity_, chunk), whole, fmt::format("chunks of {}", chunk));
  }
}

TEST_P(Invariance, CachedDecodeEqualsRecomputationAtEveryPosition) {
  const Logits decoded = run(tokens_, identity_, 1);
  ASSERT_EQ(decoded.size(), static_cast<std::size_t>(kTokens));
  expect_same(run_all(tokens_, scrambled_), decoded, "whole");
  // Every prefix from nothing, several to a step, each as a sequence with blocks of its own.
  constexpr int kAtOnce = 6;
  const auto blocks_of = [](int i) {
    const BlockId first = static_cast<BlockId>(kBlocks - 3 * (i + 1));
    return std::vector<BlockId>{first + 1, first, first + 2};
  };
  for (int shortest = 1; shortest <= kTokens; shortest += kAtOnce) {
    const int n = std::min(kAtOnce, kTokens + 1 - shortest);
    std::vector<std::vector<BlockId>> blocks;
    for (int i = 0; i < n; ++i) blocks.push_back(blocks_of(i));
    std::vector<EvalItem> items;
    for (int i = 0; i < n; ++i) {
      items.push_back({.seq = i,
                       .tokens = std::span(tokens_).first(static_cast<std::size_t>(shortest + i)),
                       .blocks = blocks[static_cast<std::size_t>(i)]});
    }
    const auto view = eval(items);
    ASSERT_EQ(view.rows, n);
    for (int i = 0; i < n; ++i) {
      const int pos = shortest + i - 1;
      ASSERT_TRUE(same_bits(row_of(view, i), decoded.at(pos))) << "position " << pos;
    }
  }
}

TEST_P(Invariance, BlockTableAndWhatOtherBlocksHold) {
  const Logits expected = run(tokens_, identity_, 33);
  // 0xff in every byte is NaN in BF16 and in F32: whatever reads it shows.
  const std::vector<std::byte> poison(backend_->block_bytes(), std::byte{0xff});
  for (BlockId block = 0; block < kBlocks; ++block) {
    ASSERT_TRUE(backend_->write_block(block, poison));
  }
  expect_same(run(tokens_, scrambled_, 33), expected, "scrambled");
}

TEST_P(Invariance, BatchedWithOthers) {
  struct Share {
    std::vector<Token> tokens;
    std::vector<BlockId> blocks;
    int pace;  // tokens in each step
    Logits alone, mixed;
    int at = 0;
  };
  // Prefill chunks and decode tokens of three sequences in the same steps, at different paces.
  Share shares[] = {{test::random_tokens(10, 3), {11}, 1, {}, {}},
                    {tokens_, scrambled_, 9, {}, {}},
                    {test::random_tokens(40, 2), {20, 3}, 33, {}, {}}};
  for (Share& share : shares) share.alone = run(share.tokens, share.blocks, share.pace);
  for (;;) {
    std::vector<EvalItem> items;
    std::vector<Share*> owners;
    for (SeqId seq = 0; Share & share : shares) {
      const int n = std::min(share.pace, static_cast<int>(share.tokens.size()) - share.at);
      if (n > 0) {
        items.push_back({.seq = seq,
                         .pos = share.at,
                         .tokens = std::span(share.tokens)
                                       .subspan(static_cast<std::size_t>(share.at),
                                                static_cast<std::size_t>(n)),
                         .blocks = share.blocks});
        owners.push_back(&share);
        share.at += n;
      }
      ++seq;
    }
    if (items.empty()) break;
    const auto view = eval(items);
    ASSERT_EQ(static_cast<std::size_t>(view.rows), owners.size());
    for (int r = 0; r < view.rows; ++r) {
      Share& share = *owners[static_cast<std::size_t>(r)];
      share.mixed[share.at - 1] = row_of(view, r);
    }
  }
  for (const Share& share : shares) {
    ASSERT_EQ(share.mixed.size(), share.alone.size());
    expect_same(share.mixed, share.alone, fmt::format("in a batch at a pace of {}", share.pace));
  }
}

TEST_P(Invariance, WhichLogitsAreAskedFor) {
  const auto all = std::span(tokens_);
  run(all.first(40), identity_, 40, 0, LogitRows::none);
  const Logits every = run(all.subspan(40), identity_, 27, 40, LogitRows::all);
  EXPECT_EQ(every.size(), 27u);
  const auto none =
      eval({{.tokens = all.first(40), .blocks = scrambled_, .want = LogitRows::none}});
  EXPECT_EQ(none.rows, 0);
  expect_same(run(all.subspan(40), scrambled_, 9, 40), every, "the last of each chunk");
}

TEST_P(Invariance, TruncateAndResume) {
  const Logits expected = run(tokens_, identity_, kTokens);
  const auto detour = test::random_tokens(30, 4);
  for (const int keep : {0, 1, 31, 32, 50, 64, kTokens - 1}) {
    // Overwrites positions keep .. keep + 29.
    eval({{.pos = keep, .tokens = detour, .blocks = identity_, .want = LogitRows::none}});
    const auto rest = std::span(tokens_).subspan(static_cast<std::size_t>(keep));
    expect_same(run(rest, identity_, kTokens, keep), expected, fmt::format("resumed at {}", keep));
  }
}

TEST_P(Invariance, BlocksReadAndWrittenElsewhere) {
  const Logits expected = run(tokens_, identity_, 50);
  const auto rest = std::span(tokens_).subspan(50);
  std::vector<std::vector<std::byte>> saved;
  for (const BlockId block : {0, 1}) {
    saved.emplace_back(backend_->block_bytes());
    ASSERT_TRUE(backend_->read_block(block, saved.back()));
  }

  backend_->copy_blocks(std::vector<BlockCopy>{{.from = 0, .to = 12}, {.from = 1, .to = 6}});
  expect_same(run(rest, std::vector<BlockId>{12, 6, 15}, 50, 50), expected, "copied");

  backend_ = fresh_backend();  // as after a restart
  ASSERT_TRUE(backend_->write_block(17, saved[0]));
  ASSERT_TRUE(backend_->write_block(4, saved[1]));
  std::vector<std::byte> again(backend_->block_bytes());
  ASSERT_TRUE(backend_->read_block(17, again));
  EXPECT_EQ(again, saved[0]);
  expect_same(run(rest, scrambled_, 50, 50), expected, "restored");
}

TEST_P(Invariance, ARefusedStepChangesNothing) {
  const Logits expected = run(tokens_, identity_, 40);
  std::vector<std::byte> before(backend_->block_bytes()), after(before.size());
  ASSERT_TRUE(backend_->read_block(1, before));
  const std::vector<Token> good = {5, 6}, bad = {5, kVocabRows};
  const auto refused = backend_->eval(
      std::vector<EvalItem>{{.seq = 0, .pos = 40, .tokens = good, .blocks = identity_},
                            {.seq = 1, .pos = 0, .tokens = bad, .blocks = scrambled_}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid);
  ASSERT_TRUE(backend_->read_block(1, after));
  EXPECT_EQ(before, after);
  expect_same(run(std::span(tokens_).subspan(40), identity_, 40, 40), expected, "afterwards");
}

}  // namespace
}  // namespace kipp
