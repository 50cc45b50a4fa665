// The cpu backend over bit planes: against the reference, whose codes are the same, and against
// itself, bit for bit. What a token computes depends on its sequence and the policy alone: never on
// how steps are cut, on threads, on a batch, on which planes happen to be held, or on a block
// having been saved.
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/reference/reference_backend.h"
#include "support/logit_rows.h"
#include "support/lone_planes.h"
#include "support/random_floats.h"
#include "support/sanitized.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using cpu::CpuBackend;
using test::Keep;
using test::LonePlanes;
using test::nmse;
using test::same_bits;
using testing::HasSubstr;

// Every band within five blocks, every width, mixed widths, with and without rotation, and layers
// of their own.
constexpr const char* kPolicies[] = {
    "sink=1:int8,recent=1:int8,mid=1:int8/int4,far=int4/int2",
    "sink=1:bf16/int8,recent=2:bf16,mid=1:bf16/int8,far=int8/int4",
    "recent=1:int8,mid=2:int4,far=int2,rotate=off,up=0+-1",
    "recent=0:int4,mid=0:int4,far=int4/int2,exempt=1",
    "int8",
    "tiered",
    "tiered-max",
};
constexpr std::size_t kPoliciesOfTiers = 4;  // the first ones; presets follow

KvPolicy policy_of(std::string_view words) {
  auto policy = KvPolicy::parse(words);
  EXPECT_TRUE(policy) << policy.error().message;
  return *std::move(policy);
}

using Logits = std::map<int, std::vector<float>>;  // by position

void expect_same(const Logits& found, const Logits& expected, const std::string& what) {
  ASSERT_FALSE(found.empty()) << what;
  for (const auto& [pos, logits] : found) {
    if (!expected.contains(pos)) continue;
    ASSERT_TRUE(same_bits(logits, expected.at(pos))) << what << ", position " << pos;
  }
}

class CpuTiered : public testing::TestWithParam<const char*> {
 protected:
  // Past a run of attention (256 positions), with a block begun.
  static constexpr int kTokens = 9 * kBlockPositions + 11;
  static constexpr int kBlocks = 24;

  template <class Of>
  std::unique_ptr<Backend> fresh(const KvConfig& kv, int threads = 1) const {
    auto backend = std::make_unique<Of>();
    const auto loaded = backend->load(artifact_, kv, {.threads = threads});
    EXPECT_TRUE(loaded) << loaded.error().message;
    return backend;
  }
  KvConfig tiers() const { return test::tiered_config(policy_, artifact_.config(), kBlocks); }

  static std::vector<float> row_of(const LogitsView& view, int row) {
    const auto values = view.row(row);
    return {values.begin(), values.end()};
  }

  // Where logits are looked at: they cost more than all else on this model.
  static bool looked_at(int pos) {
    constexpr int kLookedAt[] = {0, 31, 32, 63, 127, 128, 223, 255, 256, 288};
    return pos + 1 >= kTokens || std::ranges::find(kLookedAt, pos) != std::end(kLookedAt);
  }

  // Evaluates tokens from `pos` on in chunks.
  static Logits run(Backend& backend, LonePlanes& planes, std::span<const Token> tokens,
                    std::span<const BlockId> blocks, int chunk, int pos = 0) {
    Logits logits;
    for (int at = pos; at < static_cast<int>(tokens.size()); at += chunk) {
      const int n = std::min(chunk, static_cast<int>(tokens.size()) - at);
      planes.before(at, at + n);
      const auto part = tokens.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n));
      const LogitRows want = looked_at(at + n - 1) ? LogitRows::last : LogitRows::none;
      const auto view = backend.eval(
          std::vector<EvalItem>{{.pos = at, .tokens = part, .blocks = blocks, .want = want}});
      EXPECT_TRUE(view) << view.error().message;
      if (!view) return logits;
      if (want == LogitRows::last) logits[at + n - 1] = row_of(*view, 0);
      planes.after(at + n);
    }
    return logits;
  }
  Logits run(std::span<const BlockId> blocks, int chunk, int threads,
             Keep keep = Keep::needed) const {
    const auto backend = fresh<CpuBackend>(tiers(), threads);
    LonePlanes planes(*backend, policy_, blocks, keep);
    return run(*backend, planes, tokens_, blocks, chunk);
  }

  std::span<const Token> first_tokens(int n) const {
    return std::span(tokens_).first(static_cast<std::size_t>(n));
  }

  // Token by token on one thread.
  const Logits& decoded() const {
    static std::map<std::string, Logits> made;
    Logits& logits = made[policy_.name()];
    if (logits.empty()) logits = run(blocks_, 1, 1);
    return logits;
  }

  const Artifact artifact_ = test::open_twin("tiny-tied", Scheme::bf16);
  const KvPolicy policy_ = policy_of(GetParam());
  const std::vector<Token> tokens_ = test::random_tokens(kTokens, 1);
  const std::vector<BlockId> blocks_ = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<BlockId> scrambled_ = {17, 4, 9, 8, 19, 1, 21, 23, 0, 11};
};

std::string index_of(const testing::TestParamInfo<const char*>& test) {
  return fmt::format("P{}", test.index);
}
INSTANTIATE_TEST_SUITE_P(
    Policies, CpuTiered,
    testing::ValuesIn(std::span(kPolicies).first(test::kSanitized ? 2 : std::size(kPolicies))),
    index_of);

TEST_P(CpuTiered, ChunksThreadsTablesAndWhatIsHeld) {
  ASSERT_GE(decoded().size(), 10u);
  for (const int chunk : {7, 32, 33, kTokens}) {
    expect_same(run(scrambled_, chunk, chunk == 32 ? 3 : 2), decoded(),
                fmt::format("chunks of {}", chunk));
  }
  expect_same(run(scrambled_, 31, 1, Keep::everything), decoded(), "everything held");
  if (!test::kSanitized) expect_same(run(scrambled_, 1, 3), decoded(), "decoded by three threads");
}

TEST_P(CpuTiered, BatchedWithOthers) {
  struct Share {
    std::vector<Token> tokens;
    std::vector<BlockId> blocks;
    int pace;
    Logits mixed = {};
    int at = 0;
  };
  Share shares[] = {{test::random_tokens(5, 3), {12}, 1},
                    {tokens_, scrambled_, 37},
                    {test::random_tokens(100, 2), {15, 3, 7, 2}, 32}};
  const auto backend = fresh<CpuBackend>(tiers(), 2);
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
           .blocks = share.blocks});
      owners.push_back(s);
      share.at += n;
    }
    if (items.empty()) break;
    const auto view = backend->eval(items);
    ASSERT_TRUE(view) << view.error().message;
    for (std::size_t i = 0; i < owners.size(); ++i) {
      Share& share = shares[owners[i]];
      share.mixed[share.at - 1] = row_of(*view, static_cast<int>(i));
      planes[owners[i]].after(share.at);
    }
  }
  expect_same(shares[1].mixed, decoded(), "in a batch");
  for (const std::size_t s : {std::size_t{0}, std::size_t{2}}) {
    const auto alone = fresh<CpuBackend>(tiers());
    LonePlanes of(*alone, policy_, blocks_);
    const int last = static_cast<int>(shares[s].tokens.size()) - 1;
    of.before(0, last + 1);
    const auto view =
        alone->eval(std::vector<EvalItem>{{.tokens = shares[s].tokens, .blocks = blocks_}});
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_TRUE(same_bits(row_of(*view, 0), shares[s].mixed.at(last))) << "sequence " << s;
  }
}

// The bytes of one backend's blocks are those of any other.
TEST_P(CpuTiered, SavedAndRestored) {
  constexpr int kSaved = 8 * kBlockPositions + 12;
  std::vector<std::vector<std::byte>> saved;
  {
    const auto backend = fresh<CpuBackend>(tiers(), 2);
    LonePlanes planes(*backend, policy_, blocks_);
    run(*backend, planes, first_tokens(kSaved), blocks_, 50);
    for (int b = 0; b < blocks_for(kSaved); ++b) {
      saved.emplace_back(backend->block_bytes(planes.planes_at(kSaved, b)));
      ASSERT_TRUE(backend->read_block(blocks_[static_cast<std::size_t>(b)], saved.back()));
    }
  }
  Logits expected;
  const bool on_both = GetParam() == kPolicies[0];
  for (const bool on_cpu : {true, false}) {
    if (!on_cpu && !on_both) break;
    const auto backend =
        on_cpu ? fresh<CpuBackend>(tiers()) : fresh<reference::ReferenceBackend>(tiers());
    // Memory that was somebody else's.
    LonePlanes before(*backend, policy_, scrambled_, Keep::everything);
    run(*backend, before, first_tokens(150), scrambled_, 150);
    LonePlanes planes(*backend, policy_, scrambled_);
    planes.after(kSaved);
    for (std::size_t b = 0; b < saved.size(); ++b) {
      ASSERT_TRUE(backend->write_block(scrambled_[b], saved[b]));
    }
    const auto found = run(*backend, planes, tokens_, scrambled_, 20, kSaved);
    if (on_cpu) {
      expect_same(found, decoded(), "restored");
    } else {
      EXPECT_LE(nmse(found.at(kTokens - 1), decoded().at(kTokens - 1)), 1e-5);
    }
  }
}

// --- against the reference

class CpuTieredAgainstReference : public CpuTiered {
 protected:
  static constexpr int kEnd = 4 * kBlockPositions + 14;

  // The worst row of a prefill and of what is decoded after it. `alike`: the reference is given the
  // blocks of the cpu after every step, so that codes of past steps are the same.
  double worst_nmse(bool alike) {
    const auto mine = fresh<CpuBackend>(tiers(), 2);
    const auto its = fresh<reference::ReferenceBackend>(tiers());
    LonePlanes my_planes(*mine, policy_, blocks_), its_planes(*its, policy_, blocks_);
    double worst = 0;
    int at = 0;
    for (const int n : {110, 1, 9, 1, 18, 1, 2}) {
      my_planes.before(at, at + n);
      its_planes.before(at, at + n);
      const std::vector<EvalItem> step = {
          {.pos = at,
           .tokens = std::span(tokens_).subspan(static_cast<std::size_t>(at),
                                                static_cast<std::size_t>(n)),
           .blocks = blocks_}};
      const auto found = mine->eval(step), expected = its->eval(step);
      EXPECT_TRUE(found && expected);
      if (!found || !expected) return 1;
      if (!alike || n == 1) worst = std::max(worst, nmse(found->row(0), expected->row(0)));
      at += n;
      my_planes.after(at);
      its_planes.after(at);
      for (int b = 0; alike && b < blocks_for(at); ++b) {
        std::vector<std::byte> bytes(mine->block_bytes(my_planes.planes_at(at, b)));
        EXPECT_TRUE(mine->read_block(blocks_[static_cast<std::size_t>(b)], bytes));
        EXPECT_TRUE(its->write_block(blocks_[static_cast<std::size_t>(b)], bytes));
      }
    }
    EXPECT_EQ(at, kEnd);
    return worst;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Policies, CpuTieredAgainstReference,
    testing::ValuesIn(std::span(kPolicies).first(test::kSanitized ? 1 : kPoliciesOfTiers)),
    index_of);

// Over the same codes it is rounding alone (measured: 4e-10).
TEST_P(CpuTieredAgainstReference, DecodesOverTheSameCodes) {
  const double worst = worst_nmse(true);
  RecordProperty("worst_nmse", fmt::format("{:.1e}", worst));
  EXPECT_LE(worst, 1e-6);
}

// A key or value that rounds to the other of two BF16 neighbours may fall into another code, and at
// int2 a code is a quarter of a row's range (measured: 4e-5). The contract asks for 1e-4.
TEST_P(CpuTieredAgainstReference, CodesByItself) { EXPECT_LE(worst_nmse(false), 1e-4); }

// A tiered cache whose policy asks for nothing but BF16 is the BF16 cache.
TEST(CpuTieredBf16, IsTheBf16Cache) {
  const Artifact artifact = test::open_twin("tiny-tied", Scheme::bf16);
  const KvPolicy policy = policy_of("bf16");
  const auto tokens = test::random_tokens(150, 1);
  const std::vector<BlockId> blocks = {4, 1, 3, 0, 2};
  std::vector<std::vector<float>> logits;
  for (const bool tiered : {false, true}) {
    CpuBackend backend;
    const KvConfig kv = tiered ? test::tiered_config(policy, artifact.config(), 5)
                               : KvConfig{.blocks = 5, .policy = {}};
    ASSERT_TRUE(backend.load(artifact, kv, {.threads = 2}));
    LonePlanes planes(backend, policy, blocks, Keep::everything);
    planes.before(0, 150);
    const auto view = backend.eval(std::vector<EvalItem>{{.tokens = tokens, .blocks = blocks}});
    ASSERT_TRUE(view) << view.error().message;
    logits.emplace_back(view->row(0).begin(), view->row(0).end());
  }
  EXPECT_TRUE(same_bits(logits[0], logits[1]));
}

// --- the ops alone, at the family's numbers of query heads per KV head

constexpr int kRows = 4 * kBlockPositions + 9;
constexpr BlockId kTable[] = {3, 7, 1, 0, 6};

ModelConfig config_of(int heads) {
  return {.hidden = 64,
          .layers = 2,
          .query_heads = heads * kKvHeads,
          .intermediate = 96,
          .context_length = 512,
          .rope_theta = 1000000,
          .tied = true};
}

class CpuTieredOps : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Heads, CpuTieredOps, testing::Values(2, 3, 4, 5, 8),
                         [](const auto& test) { return fmt::format("Of{}", test.param); });

// Keys, values and queries of one distribution in both: no weights between, so that the bound is
// that of the integers alone.
TEST_P(CpuTieredOps, AttendAsTheReferenceDoes) {
  const ModelConfig config = config_of(GetParam());
  const std::vector<Token> tokens(kRows, 1);
  for (const char* words : std::span(kPolicies).first(GetParam() == 2 ? 3 : 1)) {
    const KvPolicy policy = policy_of(words);
    const KvConfig kv = test::tiered_config(policy, config, 8);
    StepPlanner planner(
        {.max_step_tokens = 256, .max_logit_rows = 1, .kv_blocks = 8, .context_length = 512});
    const auto plan = planner.plan(std::vector<EvalItem>{{.tokens = tokens, .blocks = kTable}});
    ASSERT_TRUE(plan);
    std::vector<std::vector<float>> ctx;
    const auto attend = [&](auto& ops, TieredKv& cache) {
      ASSERT_TRUE(cache.begin_step(**plan));
      auto& buffers = ops.begin_step(**plan);
      const auto n = static_cast<std::size_t>(buffers.qkv.rows * buffers.qkv.cols);
      std::ranges::copy(test::normal_floats(3, n), buffers.qkv.data);
      ops.kv_append(1, buffers.qkv);
      ASSERT_TRUE(ops.stored());
      ops.attend(1, buffers.ctx, buffers.qkv);
      ctx.emplace_back(buffers.ctx.data, buffers.ctx.data + buffers.ctx.rows * buffers.ctx.cols);
    };
    std::vector<PlaneChange> all;
    for (const BlockId block : kTable) all.push_back({block, 0xffff});
    auto pool = ThreadPool::create(2).value();
    auto mine = TieredKv::create(config, kv, 256).value();
    auto its = TieredKv::create(config, kv, 256).value();
    mine.hold(all);
    its.hold(all);
    auto ops =
        cpu::CpuOps::create(config, {.max_step_tokens = 256, .max_logit_rows = 1}, mine, *pool)
            .value();
    attend(*ops, mine);
    reference::ReferenceOps reference_ops(config, its, 256);
    attend(reference_ops, its);
    ASSERT_EQ(ctx.size(), 2u);
    EXPECT_LE(nmse(ctx[0], ctx[1]), 1e-8) << words;
  }
}

TEST(CpuTieredOpsOfTwo, SayWhenAStepCannotBeStored) {
  const ModelConfig config = config_of(2);
  const std::vector<Token> tokens(kRows, 1);
  const KvPolicy policy = policy_of("int8");
  StepPlanner planner(
      {.max_step_tokens = 256, .max_logit_rows = 1, .kv_blocks = 8, .context_length = 512});
  const auto plan = planner.plan(std::vector<EvalItem>{{.tokens = tokens, .blocks = kTable}});
  ASSERT_TRUE(plan);
  auto pool = ThreadPool::create(2).value();
  auto cache = TieredKv::create(config, test::tiered_config(policy, config, 8), 256).value();
  std::vector<PlaneChange> all;
  for (const BlockId block : kTable) all.push_back({block, 0xffff});
  cache.hold(all);
  auto ops =
      cpu::CpuOps::create(config, {.max_step_tokens = 256, .max_logit_rows = 1}, cache, *pool)
          .value();
  for (const bool spoilt : {true, false}) {
    ASSERT_TRUE(cache.begin_step(**plan));
    auto& buffers = ops->begin_step(**plan);
    const auto n = static_cast<std::size_t>(buffers.qkv.rows * buffers.qkv.cols);
    std::ranges::copy(test::normal_floats(3, n), buffers.qkv.data);
    const int value = config.attention_width() + kKvWidth + 3 * kHeadDim + 5;
    if (spoilt) {
      buffers.qkv.row(40)[static_cast<std::size_t>(value)] = std::numeric_limits<float>::infinity();
    }
    ops->kv_append(1, buffers.qkv);
    ASSERT_EQ(ops->stored().has_value(), !spoilt);
    if (spoilt) {
      EXPECT_THAT(ops->stored().error().message,
                  HasSubstr("kv: value in layer 1, head 3, position 8 of block 7"));
    }
  }
}

}  // namespace
}  // namespace kipp
