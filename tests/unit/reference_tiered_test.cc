// The reference backend over bit planes. Its ops against naive sums in double over what kvquant's
// own cache of one sequence reads; then whole models, bit for bit: what a token computes depends on
// its sequence and the policy alone, never on how steps are cut, on which planes happen to be held,
// or on a block having been saved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "backend/reference/reference_backend.h"
#include "base/float16.h"
#include "kvquant/cpu_ref.h"
#include "kvquant/tiered_cache.h"
#include "support/lone_planes.h"
#include "support/sanitized.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using kvquant::Side;
using reference::ReferenceBackend;
using reference::ReferenceOps;
using test::Keep;
using test::LonePlanes;
using testing::HasSubstr;

// Every band within five blocks, and every width.
constexpr const char* kBands = "sink=1:int8,recent=1:int8,mid=1:int8/int4,far=int4/int2";
constexpr const char* kPolicies[] = {
    "sink=2:int8,recent=1:int8,mid=1:int4,far=int2,up=0+-1",
    "recent=0:int4,mid=0:int4,far=int4/int2,exempt=1",
    kBands,
    "int8",
    "sink=1:bf16/int8,recent=2:bf16,mid=1:bf16/int8,far=int8/int4",
    "recent=1:int8,mid=2:int4,far=int2,rotate=off",
};
// Under a sanitizer the first ones, whose code is that of all.
std::vector<const char*> some(std::vector<const char*> policies, std::size_t sanitized) {
  if (test::kSanitized) policies.resize(sanitized);
  return policies;
}

constexpr int kTokens = 4 * kBlockPositions + 9;

KvPolicy policy_of(std::string_view words) {
  auto policy = KvPolicy::parse(words);
  EXPECT_TRUE(policy) << policy.error().message;
  return *std::move(policy);
}

// --- the ops

constexpr ModelConfig kConfig = {.hidden = 64,
                                 .layers = 3,
                                 .query_heads = 16,
                                 .intermediate = 96,
                                 .context_length = 256,
                                 .rope_theta = 1000000,
                                 .tied = true};

class TieredOps : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto kv = TieredKv::create(kConfig, test::tiered_config(policy_, kConfig, 8), 256);
    ASSERT_TRUE(kv) << kv.error().message;
    kv_ = std::make_unique<TieredKv>(*std::move(kv));
    std::vector<PlaneChange> all;
    for (const BlockId block : blocks_) all.push_back({block, 0xffff});
    kv_->hold(all);
    ops_ = std::make_unique<ReferenceOps>(kConfig, *kv_, 256);
    const auto plan = planner_.plan(std::vector<EvalItem>{{.tokens = tokens_, .blocks = blocks_}});
    ASSERT_TRUE(plan);
    ASSERT_TRUE(kv_->begin_step(**plan));
    buffers_ = &ops_->begin_step(**plan);
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const auto n = static_cast<std::size_t>(buffers_->qkv.rows * buffers_->qkv.cols);
    for (float& x : std::span(buffers_->qkv.data, n)) x = normal(random);
  }

  float* head(int row, int head) { return buffers_->qkv.row(row).data() + head * kHeadDim; }

  // Keys and values of all positions as the query at `pos` reads them, by kvquant alone.
  struct Seen {
    std::vector<float> k, v;  // [position][head][channel]
  };
  using Cache = kvquant::TieredKvCache<kvquant::CpuRefBackend>;
  Cache cache_of(int layer) {
    auto made = Cache::create({}, {.shape = {kKvHeads, kHeadDim},
                                   .scheme = policy_.scheme(),
                                   .policy = policy_.tiers(policy_.group_of(layer, kConfig.layers)),
                                   .max_positions = 256});
    EXPECT_TRUE(made.ok()) << made.status().message();
    for (int at = 0; at < kTokens; ++at) {
      const std::span<const float> k(head(at, 16), kKvWidth), v(head(at, 16 + 8), kKvWidth);
      EXPECT_TRUE(made.value().append(k, v).ok());
    }
    return std::move(made.value());
  }
  static Seen seen_by(Cache& cache, int pos) {
    Seen seen;
    seen.k.resize(static_cast<std::size_t>(pos + 1) * kKvWidth);
    seen.v.resize(seen.k.size());
    EXPECT_TRUE(cache.dequantize(pos, 0, pos + 1, {seen.k, seen.v}).ok());
    return seen;
  }

  std::vector<double> naive_attention(const Seen& seen, int pos, int query_head) {
    const std::size_t kv_head = static_cast<std::size_t>(query_head / 2) * kHeadDim;
    const float* q = head(pos, query_head);
    std::vector<double> weights;
    for (int at = 0; at <= pos; ++at) {
      const float* k = seen.k.data() + static_cast<std::size_t>(at) * kKvWidth + kv_head;
      double score = 0;
      for (int i = 0; i < kHeadDim; ++i)
        score += static_cast<double>(q[i]) * static_cast<double>(k[i]);
      weights.push_back(std::exp(score / std::sqrt(128.0)));
    }
    double sum = 0;
    for (const double w : weights) sum += w;
    std::vector<double> out(kHeadDim, 0.0);
    for (std::size_t at = 0; at < weights.size(); ++at) {
      const float* v = seen.v.data() + at * kKvWidth + kv_head;
      for (std::size_t i = 0; i < kHeadDim; ++i)
        out[i] += weights[at] / sum * static_cast<double>(v[i]);
    }
    return out;
  }

  const KvPolicy policy_ = policy_of(GetParam());
  const std::vector<Token> tokens_ = std::vector<Token>(kTokens, 1);
  const std::vector<BlockId> blocks_ = {3, 7, 1, 0, 6};
  StepPlanner planner_{
      {.max_step_tokens = 256, .max_logit_rows = 256, .kv_blocks = 8, .context_length = 256}};
  std::unique_ptr<TieredKv> kv_;
  std::unique_ptr<ReferenceOps> ops_;
  ReferenceOps::Buffers* buffers_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Policies, TieredOps,
                         testing::ValuesIn(some({std::begin(kPolicies), std::end(kPolicies)}, 2)),
                         [](const auto& tested) { return fmt::format("P{}", tested.index); });

TEST_P(TieredOps, AttendToWhatKvquantReads) {
  for (const int layer : {1, 2}) {  // of either group, where there are two
    ops_->kv_append(layer, buffers_->qkv);
    ASSERT_TRUE(ops_->stored());
    ops_->attend(layer, buffers_->ctx, buffers_->qkv);
    Cache cache = cache_of(layer);
    // The first and last positions of blocks, near and far from the start.
    for (const int pos : {0, 31, 32, 95, kTokens - 1}) {
      const Seen seen = seen_by(cache, pos);
      for (const int query_head : {0, 5, 15}) {
        const auto expected = naive_attention(seen, pos, query_head);
        const float* found = buffers_->ctx.row(pos).data() + query_head * kHeadDim;
        for (std::size_t i = 0; i < kHeadDim; ++i) {
          ASSERT_NEAR(static_cast<double>(found[i]), expected[i], 2e-5)
              << "layer " << layer << ", position " << pos << ", head " << query_head;
        }
      }
    }
  }
}

TEST_P(TieredOps, SayWhenAStepCannotBeStored) {
  head(40, 16 + 8 + 3)[5] = std::numeric_limits<float>::infinity();  // a value, in block 1
  ops_->kv_append(1, buffers_->qkv);
  const bool coded = (kv_->held(7) & ~test::kBf16Planes) != 0 &&
                     policy_.group_of(1, kConfig.layers) == LayerGroup::common;
  ASSERT_TRUE(coded || GetParam() == kPolicies[1]);
  if (!coded) return;
  ASSERT_FALSE(ops_->stored());
  EXPECT_THAT(ops_->stored().error().message,
              HasSubstr("kv: value in layer 1, head 3, position 8 of block 7"));
}

// --- the backend

using Logits = std::map<int, std::vector<float>>;  // by position

// Logits cost more than all else on this model, so they are looked at here and at the end.
constexpr int kLookedAt[] = {31, 32, 62, 63, 64, 96, 127, 128, 132};
LogitRows rows_wanted(int end, std::size_t tokens) {
  const bool looked_at = std::ranges::find(kLookedAt, end - 1) != std::end(kLookedAt);
  return looked_at || end == static_cast<int>(tokens) ? LogitRows::last : LogitRows::none;
}

testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "logits differ";
}

void expect_same(const Logits& found, const Logits& expected, const std::string& what) {
  ASSERT_FALSE(found.empty());
  for (const auto& [pos, logits] : found) {
    ASSERT_TRUE(expected.contains(pos)) << what << ", position " << pos;
    ASSERT_TRUE(same_bits(logits, expected.at(pos))) << what << ", position " << pos;
  }
}

class TieredReference : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int kBlocks = 20;

  std::unique_ptr<ReferenceBackend> fresh(const KvConfig& kv) const {
    auto backend = std::make_unique<ReferenceBackend>();
    const auto loaded = backend->load(artifact_, kv);
    EXPECT_TRUE(loaded) << loaded.error().message;
    return backend;
  }
  std::unique_ptr<ReferenceBackend> fresh() const {
    return fresh(test::tiered_config(policy_, artifact_.config(), kBlocks));
  }

  static std::vector<float> row_of(const LogitsView& view, int row) {
    const auto values = view.row(row);
    return {values.begin(), values.end()};
  }

  // Evaluates tokens from `pos` on in chunks; logits where a chunk ends and is looked at.
  static Logits run(Backend& backend, LonePlanes& planes, std::span<const Token> tokens,
                    std::span<const BlockId> blocks, int chunk, int pos = 0) {
    Logits logits;
    for (int at = pos; at < static_cast<int>(tokens.size()); at += chunk) {
      const int n = std::min(chunk, static_cast<int>(tokens.size()) - at);
      planes.before(at, at + n);
      const auto part = tokens.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n));
      const LogitRows want = rows_wanted(at + n, tokens.size());
      const auto view = backend.eval(
          std::vector<EvalItem>{{.pos = at, .tokens = part, .blocks = blocks, .want = want}});
      EXPECT_TRUE(view) << view.error().message;
      if (!view) return logits;
      if (want == LogitRows::last) logits[at + n - 1] = row_of(*view, 0);
      planes.after(at + n);
    }
    return logits;
  }
  Logits run(std::span<const Token> tokens, std::span<const BlockId> blocks, int chunk,
             Keep keep = Keep::needed) {
    const auto backend = fresh();
    LonePlanes planes(*backend, policy_, blocks, keep);
    return run(*backend, planes, tokens, blocks, chunk);
  }

  // Token by token.
  const Logits& decoded() {
    static std::map<std::string, Logits> made;
    Logits& logits = made[policy_.name()];
    if (logits.empty()) logits = run(tokens_, blocks_, 1);
    return logits;
  }

  const Artifact artifact_ = test::open_twin("tiny-tied", Scheme::bf16);
  const KvPolicy policy_ = policy_of(GetParam());
  const std::vector<Token> tokens_ = test::random_tokens(kTokens, 1);
  const std::vector<BlockId> blocks_ = {0, 1, 2, 3, 4};
  const std::vector<BlockId> scrambled_ = {17, 4, 9, 8, 19};
};

INSTANTIATE_TEST_SUITE_P(Policies, TieredReference,
                         testing::ValuesIn(some({kBands, kPolicies[4]}, 1)),
                         [](const auto& tested) { return fmt::format("P{}", tested.index); });

// Blocks filled token by token, in one step from nothing (their rows then never have planes), and
// in steps that end one short of and one past a block.
TEST_P(TieredReference, ChunkSizesBlocksAndWhatIsHeld) {
  ASSERT_EQ(decoded().size(), std::size(kLookedAt) + 1);
  for (const int chunk : {7, 32, kTokens}) {
    if (test::kSanitized && chunk == 7) continue;
    expect_same(run(tokens_, scrambled_, chunk), decoded(), fmt::format("chunks of {}", chunk));
  }
  expect_same(run(tokens_, scrambled_, 33, Keep::everything), decoded(), "everything held");
}

TEST_P(TieredReference, BatchedWithOthers) {
  struct Share {
    std::vector<Token> tokens;
    std::vector<BlockId> blocks;
    int pace;
    Logits mixed = {};
    int at = 0;
  };
  Share shares[] = {{test::random_tokens(5, 3), {11}, 1},
                    {tokens_, scrambled_, 37},
                    {test::random_tokens(100, 2), {15, 3, 7, 1}, 32}};
  const auto backend = fresh();
  std::vector<LonePlanes> planes;
  for (const Share& share : shares) planes.emplace_back(*backend, policy_, share.blocks);
  for (;;) {
    std::vector<EvalItem> items;
    std::vector<std::size_t> owners;
    for (std::size_t s = 0; s < std::size(shares); ++s) {
      Share& share = shares[s];
      const int n = std::min(share.pace, static_cast<int>(share.tokens.size()) - share.at);
      if (n == 0) continue;
      planes[s].before(share.at, share.at + n);
      items.push_back(
          {.seq = static_cast<SeqId>(s),
           .pos = share.at,
           .tokens = std::span(share.tokens)
                         .subspan(static_cast<std::size_t>(share.at), static_cast<std::size_t>(n)),
           .blocks = share.blocks,
           .want = rows_wanted(share.at + n, share.tokens.size())});
      owners.push_back(s);
      share.at += n;
    }
    if (items.empty()) break;
    const auto view = backend->eval(items);
    ASSERT_TRUE(view) << view.error().message;
    int row = 0;
    for (std::size_t i = 0; i < owners.size(); ++i) {
      Share& share = shares[owners[i]];
      if (items[i].want == LogitRows::last) share.mixed[share.at - 1] = row_of(*view, row++);
      planes[owners[i]].after(share.at);
    }
  }
  for (const Share& share : shares) {
    const bool known = share.tokens == tokens_;
    expect_same(share.mixed, known ? decoded() : run(share.tokens, share.blocks, share.pace),
                fmt::format("in a batch at a pace of {}", share.pace));
  }
}

TEST_P(TieredReference, CutBackAndLedElsewhere) {
  const auto detour = test::random_tokens(kTokens, 4);
  // Of a sequence that kept what its end needed, blocks can go, but none can be entered again; one
  // that kept everything may be cut anywhere.
  for (const auto& [keep, cuts] : {std::pair{Keep::needed, std::vector<int>{128}},
                                   std::pair{Keep::everything, std::vector<int>{50}}}) {
    const auto backend = fresh();
    LonePlanes planes(*backend, policy_, blocks_, keep);
    run(*backend, planes, tokens_, blocks_, 50);
    for (const int cut : cuts) {
      planes.after(cut);
      auto other = tokens_;
      std::copy(detour.begin() + cut, detour.end(), other.begin() + cut);
      run(*backend, planes, std::span(other).first(static_cast<std::size_t>(cut) + 7), blocks_, 50,
          cut);
      planes.after(cut);
      expect_same(run(*backend, planes, tokens_, blocks_, 60, cut), decoded(),
                  fmt::format("cut at {}", cut));
    }
  }
}

TEST_P(TieredReference, SavedAndRestored) {
  constexpr int kSaved = 3 * kBlockPositions + 12;
  std::vector<std::vector<std::byte>> saved;
  {
    const auto backend = fresh();
    LonePlanes planes(*backend, policy_, blocks_);
    run(*backend, planes, std::span(tokens_).first(kSaved), blocks_, 50);
    for (int b = 0; b < blocks_for(kSaved); ++b) {
      saved.emplace_back(backend->block_bytes(planes.planes_at(kSaved, b)));
      ASSERT_TRUE(backend->read_block(blocks_[static_cast<std::size_t>(b)], saved.back()));
    }
  }
  const auto backend = fresh();
  // Memory that was somebody else's.
  LonePlanes before(*backend, policy_, scrambled_, Keep::everything);
  run(*backend, before, test::random_tokens(kTokens, 5), scrambled_, kTokens);
  LonePlanes planes(*backend, policy_, scrambled_);
  planes.after(kSaved);
  for (std::size_t b = 0; b < saved.size(); ++b) {
    ASSERT_TRUE(backend->write_block(scrambled_[b], saved[b]));
  }
  expect_same(run(*backend, planes, tokens_, scrambled_, 20, kSaved), decoded(), "restored");
}

// A step that misses a plane is refused before it writes anything.
TEST_P(TieredReference, ARefusedStepChangesNothing) {
  const auto backend = fresh();
  LonePlanes planes(*backend, policy_, blocks_);
  run(*backend, planes, std::span(tokens_).first(kTokens - 1), blocks_, kTokens - 1);
  const PlaneBits kept = planes.planes_at(kTokens - 1, 4);
  const auto last = std::span(tokens_).last(1);
  const std::vector<EvalItem> step = {{.pos = kTokens - 1, .tokens = last, .blocks = blocks_}};
  std::vector<std::byte> rows(backend->block_bytes(kept));
  ASSERT_TRUE(backend->read_block(4, rows));
  backend->hold_planes(std::vector<PlaneChange>{{4, 0}});
  const auto refused = backend->eval(step);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid);
  EXPECT_THAT(refused.error().message, HasSubstr("expected block 4 to hold its key plane bf16"));
  backend->hold_planes(std::vector<PlaneChange>{{4, kept}});
  ASSERT_TRUE(backend->write_block(4, rows));
  const auto view = backend->eval(step);
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_TRUE(same_bits(row_of(*view, 0), decoded().at(kTokens - 1)));
}

// --- against BF16

double nmse(const std::vector<float>& values, const std::vector<float>& truth) {
  double error = 0, power = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const double a = static_cast<double>(values[i]), b = static_cast<double>(truth[i]);
    error += (a - b) * (a - b);
    power += b * b;
  }
  return error / power;
}

class TieredAgainstBf16 : public TieredReference {
 protected:
  const Logits& bf16() {
    static const Logits logits = make_bf16();
    return logits;
  }

 private:
  Logits make_bf16() {
    const auto backend = fresh(KvConfig{.blocks = kBlocks});
    LonePlanes planes(*backend, policy_, blocks_);
    return run(*backend, planes, tokens_, blocks_, 67);
  }
};

INSTANTIATE_TEST_SUITE_P(
    Policies, TieredAgainstBf16,
    testing::ValuesIn(some({"bf16", "int8", kBands, "recent=0:int8,mid=0:int8,far=int2"}, 2)),
    [](const auto& tested) { return fmt::format("P{}", tested.index); });

TEST_P(TieredAgainstBf16, EqualWithoutCodesAndFurtherOffWithFewerBits) {
  const Logits& exact = bf16();
  const Logits tiered = run(tokens_, blocks_, 67);
  ASSERT_EQ(exact.size(), tiered.size());
  const int last = kTokens - 1;
  const double off = nmse(tiered.at(last), exact.at(last));
  if (policy_.all_bf16()) {
    expect_same(tiered, exact, "bf16");
  } else if (policy_.name() == "int8") {
    EXPECT_GT(off, 0.0);
    EXPECT_LT(off, 1e-4);
  } else {
    EXPECT_GT(off, 1e-5);
    EXPECT_LT(off, 0.5);
  }
}

}  // namespace
}  // namespace kipp
