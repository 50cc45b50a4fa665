// What a token computes depends on its sequence's tokens alone. Every comparison here is bit for
// bit: batch mix, chunk size, block table, what other blocks hold, truncation, recomputation,
// copies and restored blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "backend/registry.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

constexpr int kBlocks = 24;
constexpr int kTokens = 67;  // two full blocks and a part of a third

struct Setup {
  const char* name;
  const char* shape;
  Scheme scheme;
  KvStore store;
};

// Logits of one sequence, one row per position.
using Logits = std::vector<std::vector<float>>;

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
    auto backend = make_backend("reference");
    EXPECT_TRUE(backend);
    const auto loaded = (*backend)->load(artifact_, {.blocks = kBlocks, .store = GetParam().store});
    EXPECT_TRUE(loaded) << loaded.error().message;
    return *std::move(backend);
  }

  LogitsView eval(const std::vector<EvalItem>& items) {
    const auto view = backend_->eval(items);
    EXPECT_TRUE(view) << view.error().message;
    return *view;
  }

  // Evaluates tokens from `pos` in chunks and returns the logits of each.
  Logits run(std::span<const Token> tokens, std::span<const BlockId> blocks, int chunk,
             int pos = 0) {
    Logits logits;
    for (std::size_t at = 0; at < tokens.size(); at += static_cast<std::size_t>(chunk)) {
      const auto n = std::min(static_cast<std::size_t>(chunk), tokens.size() - at);
      const auto view = eval({{.pos = pos + static_cast<int>(at),
                               .tokens = tokens.subspan(at, n),
                               .blocks = blocks,
                               .want = LogitRows::all}});
      for (int r = 0; r < view.rows; ++r) logits.push_back(row_of(view, r));
    }
    return logits;
  }
  Logits run_whole(std::span<const Token> tokens, std::span<const BlockId> blocks) {
    return run(tokens, blocks, static_cast<int>(tokens.size()));
  }

  static void expect_same(const Logits& found, const Logits& expected, const std::string& what) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_TRUE(same_bits(found[i], expected[i])) << what << ", position " << i;
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
    testing::Values(Setup{"TiedBf16ExactKv", "tiny-tied", Scheme::bf16, KvStore::f32},
                    Setup{"UntiedAffine4", "tiny-untied", Scheme::affine4_gs32, KvStore::bf16}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(Invariance, ChunkSize) {
  const Logits whole = run_whole(tokens_, identity_);
  for (const int chunk : {1, 7, 32, 33}) {
    expect_same(run(tokens_, identity_, chunk), whole, fmt::format("chunks of {}", chunk));
  }
}

TEST_P(Invariance, CachedDecodeEqualsRecomputationAtEveryPosition) {
  const Logits cached = run(tokens_, identity_, 1);
  for (int length = 1; length <= kTokens; ++length) {
    const auto prefix = std::span(tokens_).first(static_cast<std::size_t>(length));
    const auto view = eval({{.seq = 1, .tokens = prefix, .blocks = scrambled_}});
    ASSERT_EQ(view.rows, 1);
    ASSERT_TRUE(same_bits(row_of(view, 0), cached[static_cast<std::size_t>(length - 1)]))
        << "position " << length - 1;
  }
}

TEST_P(Invariance, BlockTableAndWhatOtherBlocksHold) {
  const Logits whole = run_whole(tokens_, identity_);
  // 0xff in every byte is NaN in BF16 and in F32: whatever reads it shows.
  const std::vector<std::byte> poison(backend_->block_bytes(), std::byte{0xff});
  for (BlockId block = 0; block < kBlocks; ++block) {
    ASSERT_TRUE(backend_->write_block(block, poison));
  }
  expect_same(run(tokens_, scrambled_, 33), whole, "scrambled");
}

TEST_P(Invariance, BatchedWithOthers) {
  const auto other = test::random_tokens(40, 2), third = test::random_tokens(20, 3);
  const std::vector<BlockId> other_blocks = {20, 3}, third_blocks = {11};
  const Logits alone = run_whole(tokens_, identity_);
  const Logits other_alone = run_whole(other, other_blocks);
  const Logits third_alone = run_whole(third, third_blocks);

  // Prefill chunks and decode tokens of three sequences in the same steps, at different paces.
  Logits mixed, other_mixed, third_mixed;
  struct Share {
    const std::vector<Token>& tokens;
    const std::vector<BlockId>& blocks;
    int pace;
    Logits& logits;
  };
  const Share shares[] = {{third, third_blocks, 1, third_mixed},
                          {tokens_, scrambled_, 9, mixed},
                          {other, other_blocks, 33, other_mixed}};
  for (;;) {
    std::vector<EvalItem> items;
    std::vector<Logits*> owners;
    for (SeqId seq = 0; const Share& share : shares) {
      const std::size_t at = share.logits.size();
      const auto n = std::min(static_cast<std::size_t>(share.pace), share.tokens.size() - at);
      if (n > 0) {
        items.push_back({.seq = seq,
                         .pos = static_cast<int>(at),
                         .tokens = std::span(share.tokens).subspan(at, n),
                         .blocks = share.blocks,
                         .want = LogitRows::all});
        owners.insert(owners.end(), n, &share.logits);
      }
      ++seq;
    }
    if (items.empty()) break;
    const auto view = eval(items);
    ASSERT_EQ(static_cast<std::size_t>(view.rows), owners.size());
    for (int r = 0; r < view.rows; ++r) {
      owners[static_cast<std::size_t>(r)]->push_back(row_of(view, r));
    }
  }
  expect_same(mixed, alone, "in a batch");
  expect_same(other_mixed, other_alone, "in a batch, second");
  expect_same(third_mixed, third_alone, "in a batch, third");
}

TEST_P(Invariance, WhichLogitsAreAskedFor) {
  const Logits whole = run_whole(tokens_, identity_);
  const auto all = std::span(tokens_);
  const auto none =
      eval({{.tokens = all.first(40), .blocks = scrambled_, .want = LogitRows::none}});
  EXPECT_EQ(none.rows, 0);
  const auto last = eval({{.pos = 40, .tokens = all.subspan(40), .blocks = scrambled_}});
  ASSERT_EQ(last.rows, 1);
  EXPECT_TRUE(same_bits(row_of(last, 0), whole.back()));
}

TEST_P(Invariance, TruncateAndResume) {
  const Logits whole = run_whole(tokens_, identity_);
  const auto detour = test::random_tokens(30, 4);
  for (const int keep : {0, 1, 31, 32, 50, 64, kTokens - 1}) {
    // Overwrites positions keep .. keep + 29.
    eval({{.pos = keep, .tokens = detour, .blocks = identity_, .want = LogitRows::none}});
    const auto rest = std::span(tokens_).subspan(static_cast<std::size_t>(keep));
    const Logits resumed = run(rest, identity_, 20, keep);
    const Logits expected(whole.begin() + keep, whole.end());
    expect_same(resumed, expected, fmt::format("resumed at {}", keep));
  }
}

TEST_P(Invariance, BlocksReadAndWrittenElsewhere) {
  const Logits whole = run_whole(tokens_, identity_);
  run(std::span(tokens_).first(50), identity_, 50);
  std::vector<std::vector<std::byte>> saved;
  for (const BlockId block : {0, 1}) {
    saved.emplace_back(backend_->block_bytes());
    ASSERT_TRUE(backend_->read_block(block, saved.back()));
  }
  const auto rest = std::span(tokens_).subspan(50);
  const Logits expected(whole.begin() + 50, whole.end());

  backend_->copy_blocks(std::vector<BlockCopy>{{.from = 0, .to = 12}, {.from = 1, .to = 6}});
  expect_same(run(rest, std::vector<BlockId>{12, 6, 15}, 20, 50), expected, "copied");

  backend_ = fresh_backend();  // as after a restart
  ASSERT_TRUE(backend_->write_block(17, saved[0]));
  ASSERT_TRUE(backend_->write_block(4, saved[1]));
  expect_same(run(rest, scrambled_, 20, 50), expected, "restored");
  std::vector<std::byte> again(backend_->block_bytes());
  ASSERT_TRUE(backend_->read_block(17, again));
  EXPECT_EQ(again, saved[0]);
}

TEST_P(Invariance, ARefusedStepChangesNothing) {
  const Logits whole = run_whole(tokens_, identity_);
  run(std::span(tokens_).first(40), identity_, 40);
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
  const Logits expected(whole.begin() + 40, whole.end());
  expect_same(run(std::span(tokens_).subspan(40), identity_, 30, 40), expected, "afterwards");
}

}  // namespace
}  // namespace kipp
