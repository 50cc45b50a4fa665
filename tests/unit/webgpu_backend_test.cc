// The webgpu backend: the gates of the contract against the reference, the same bits however a
// sequence is evaluated, blocks that move between backends, and that whatever goes wrong is one
// error.
#include "backend/webgpu/webgpu_backend.h"

#include <gmock/gmock.h>

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "engine/generate.h"
#include "engine/session.h"
#include "gpu/adapter.h"
#include "support/backend_gates.h"
#include "support/drafters.h"

namespace kipp::webgpu {
namespace {

using test::copy_of;
using test::kGateBlocks;
using test::kOther;
using test::kTable;
using test::kThird;
using test::same_bits;
using test::Twin;
using testing::AllOf;
using testing::HasSubstr;

class WebgpuAgainstReference : public test::AgainstReference {
 protected:
  WebgpuAgainstReference() : AgainstReference("webgpu") {}
};

// Of a software adapter's time most goes into rows of logits: steps here ask for few.
constexpr Twin kTwins[] = {{"tiny-tied", Scheme::bf16},
                           {"tiny-tied", Scheme::q8_0},
                           {"tiny-tied", Scheme::affine4_gs32},
                           {"tiny-untied", Scheme::scale4_gs32}};
INSTANTIATE_TEST_SUITE_P(Twins, WebgpuAgainstReference, testing::ValuesIn(kTwins), test::name_of);

TEST_P(WebgpuAgainstReference, AroundTheEdgeOfABlockAndOverBlocksOfIt) {
  around_the_edge_of_a_block_and_over_blocks_of_the_reference();
}

TEST_P(WebgpuAgainstReference, TruncatedAndResumed) { truncated_and_resumed(); }

// One of each kind of kernel that multiplies: for a row, for some, for tiles of rows.
TEST_P(WebgpuAgainstReference, StepsOfAnySize) {
  int pos = 0;
  for (const int n : {1, 2, 5, 12, 33, 34}) {
    step({{.pos = pos, .tokens = tokens(pos, n), .blocks = kTable}});
    pos += n;
  }
  expect_same_cache(kTable, pos);
}

class WebgpuLargestSteps : public WebgpuAgainstReference {};
INSTANTIATE_TEST_SUITE_P(Twins, WebgpuLargestSteps, testing::ValuesIn(std::span(kTwins).first(2)),
                         test::name_of);

TEST_P(WebgpuLargestSteps, TheMostTokensOverAllBlocks) {
  const std::vector<Token> many = test::random_tokens(kMaxStepTokens, 11);
  std::vector<BlockId> all(kGateBlocks);
  for (int i = 0; i < kGateBlocks; ++i) {
    all[static_cast<std::size_t>(i)] = (i * 5 + 3) % kGateBlocks;
  }
  step({{.tokens = many, .blocks = all}});
  expect_same_cache(all, kMaxStepTokens);
}

TEST_P(WebgpuLargestSteps, AsManyRowsAsAStepReturnsAndNoMore) {
  const std::vector<Token> many = test::random_tokens(kMaxLogitRows + 1, 12);
  const std::vector<BlockId> blocks = {3, 1, 2, 0, 5};
  step({{.tokens = test::part_of(many, 0, kMaxLogitRows),
         .blocks = blocks,
         .want = LogitRows::all}});
  EXPECT_THAT(
      tested()
          .eval(std::vector<EvalItem>{{.tokens = many, .blocks = blocks, .want = LogitRows::all}})
          .error()
          .message,
      HasSubstr("128"));
}

class WebgpuInvariance : public test::Invariance, public testing::WithParamInterface<Twin> {
 protected:
  WebgpuInvariance() : Invariance("webgpu", GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Twins, WebgpuInvariance, testing::ValuesIn(kTwins), test::name_of);

// What does not depend on how weights are stored.
class WebgpuCacheInvariance : public WebgpuInvariance {};
INSTANTIATE_TEST_SUITE_P(Twins, WebgpuCacheInvariance,
                         testing::ValuesIn(std::span(kTwins).first(2)), test::name_of);

TEST_P(WebgpuCacheInvariance, AnyChunkTableAndNeighbours) { any_chunk_table_and_neighbours(); }

TEST_P(WebgpuCacheInvariance, BlocksCopiedRestoredAndOverwritten) {
  blocks_copied_restored_and_overwritten();
}

// One row takes kernels of its own, which make a norm or a gate in the product that reads it.
TEST_P(WebgpuInvariance, OneRowAfterAnother) {
  fill(kOther, 21, 0, 21);
  fill(kOther, 1, 21, 45);
  fill(kOther, 2, 45, 55);
  fill(kOther, 5, 55);
  const auto last =
      backend().eval(std::vector<EvalItem>{{.pos = 74, .tokens = tokens(74, 1), .blocks = kOther}});
  ASSERT_TRUE(last) << last.error().message;
  const std::vector<float> row = copy_of(last->row(0));
  expect_whole(trace(kOther, row));
}

// Rows of a draft that is checked, and of a prompt whose probabilities are asked for.
TEST_P(WebgpuInvariance, RowsOfLogitsAreThoseOfStepsOfTheirOwn) {
  fill(kThird, 72, 0, 72);
  std::vector<std::vector<float>> one_by_one;
  for (int pos = 72; pos < kTokens; ++pos) {
    const auto found = backend().eval(
        std::vector<EvalItem>{{.pos = pos, .tokens = tokens(pos, 1), .blocks = kThird}});
    ASSERT_TRUE(found) << found.error().message;
    one_by_one.push_back(copy_of(found->row(0)));
  }
  for (const int first : {72, 66}) {
    const auto found =
        backend().eval(std::vector<EvalItem>{{.pos = first,
                                              .tokens = tokens(first, kTokens - first),
                                              .blocks = kThird,
                                              .want = LogitRows::all}});
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_EQ(found->rows, kTokens - first);
    for (int pos = 72; pos < kTokens; ++pos) {
      EXPECT_TRUE(
          same_bits(found->row(pos - first), one_by_one[static_cast<std::size_t>(pos - 72)]))
          << "position " << pos << " of a step from " << first;
    }
  }
}

// A backend that is not loaded yet.
class WebgpuBackendTest : public testing::Test {
 protected:
  std::string refusal(const KvConfig& kv, const LoadOptions& options = {.threads = 1}) {
    const auto loaded = backend_.load(artifact(), kv, options);
    EXPECT_FALSE(loaded);
    return loaded ? "" : loaded.error().message;
  }

  static const Artifact& artifact() {
    static const Artifact opened = test::open_twin("tiny-tied", Scheme::q8_0);
    return opened;
  }

  static std::vector<EvalItem> items(int begin, int n, LogitRows want = LogitRows::none) {
    static const std::vector<Token> tokens = test::random_tokens(100, 1);
    return {
        {.pos = begin, .tokens = test::part_of(tokens, begin, n), .blocks = kTable, .want = want}};
  }

  WebgpuBackend backend_;
};

TEST_F(WebgpuBackendTest, RefusesWhatItDoesNotDo) {
  EXPECT_EQ(refusal({.blocks = 0}), "kv.blocks: expected at least 1, found 0");
  EXPECT_THAT(refusal({.blocks = 1, .store = KvStore::f32}),
              AllOf(HasSubstr("kv.store: expected bf16"), HasSubstr("found f32")));
  EXPECT_EQ(refusal({.blocks = 1}, {.weights = WeightStore::mapped}),
            "weights: expected packed, found mapped; webgpu keeps them on the device");
  EXPECT_EQ(refusal({.blocks = 1}, {.threads = -1}),
            "threads: expected 1 to 1024, or 0 for one per core, found -1");
  EXPECT_EQ(backend_.eval(items(0, 1)).error().message, "eval: no artifact is loaded");
  std::vector<std::byte> bytes(8);
  EXPECT_FALSE(backend_.read_block(0, bytes));
  EXPECT_FALSE(backend_.write_block(0, bytes));
  EXPECT_EQ(backend_.block_bytes(), 0u);
}

TEST_F(WebgpuBackendTest, AnAdapterThatIsNotThereIsNamedBesideThoseThatAre) {
  for (const char* wanted : {"a GPU of nobody", "999"}) {
    EXPECT_THAT(refusal({.blocks = 1}, {.threads = 1, .adapter = wanted}),
                AllOf(HasSubstr("adapter: expected one of 0 \""),
                      HasSubstr(fmt::format("found \"{}\"", wanted))));
  }
  EXPECT_FALSE(backend_.eval(items(0, 1)));
}

// Blocks of a layer lie in one buffer, of which a shader sees so much.
TEST_F(WebgpuBackendTest, MoreBlocksThanADeviceHoldsAreRefusedWithBothNumbers) {
  const auto refused = backend_.load(artifact(), {.blocks = 2000000}, {.threads = 1});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("memory: expected at most "),
                    HasSubstr("for keys and values of 2000000 blocks in a layer")));
  EXPECT_FALSE(backend_.eval(items(0, 1)));
  EXPECT_TRUE(backend_.load(artifact(), {.blocks = kGateBlocks}, {.threads = 1}));
  EXPECT_TRUE(backend_.eval(items(0, 1)));
}

TEST_F(WebgpuBackendTest, ADeviceThatIsLostIsOneErrorFromThenOn) {
  ASSERT_TRUE(backend_.load(artifact(), {.blocks = kGateBlocks}, {.threads = 1}));
  ASSERT_TRUE(backend_.eval(items(0, 40)));
  backend_.lose_device();
  const auto lost = backend_.eval(items(40, 1, LogitRows::last));
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::io);
  const auto adapter = gpu::choose_adapter(gpu::list_adapters().value(), "").value();
  EXPECT_THAT(lost.error().message, AllOf(HasSubstr("device: lost"), HasSubstr(adapter.name)));
  std::vector<std::byte> bytes(backend_.block_bytes());
  backend_.copy_blocks(std::vector<BlockCopy>{{.from = kTable[0], .to = 12}});
  EXPECT_EQ(backend_.eval(items(40, 2)).error().code, ErrorCode::io);
  EXPECT_EQ(backend_.eval(items(0, 40)).error().message, lost.error().message);
  EXPECT_THAT(backend_.read_block(kTable[0], bytes).error().message, HasSubstr("device: lost"));
}

// One that is loaded, for tests that leave it as good as it was.
class WebgpuLoadedTest : public WebgpuBackendTest {
 protected:
  static WebgpuBackend& loaded() {
    static auto& made = *[] {
      auto backend = new WebgpuBackend();
      const auto done = backend->load(artifact(), {.blocks = kGateBlocks}, {.threads = 1});
      EXPECT_TRUE(done) << done.error().message;
      return backend;
    }();
    return made;
  }
};

// First, before anything was written.
TEST_F(WebgpuLoadedTest, ABlockNobodyWroteReadsAsZero) {
  std::vector<std::byte> bytes(loaded().block_bytes());
  for (const BlockId block : {0, 15}) {
    std::ranges::fill(bytes, std::byte{1});
    ASSERT_TRUE(loaded().read_block(block, bytes));
    EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST_F(WebgpuLoadedTest, ChecksBlocksPositionsAndOrder) {
  EXPECT_EQ(loaded().load(artifact(), {.blocks = 1}).error().message,
            "load: this backend is loaded already");
  std::vector<std::byte> bytes(loaded().block_bytes());
  EXPECT_EQ(loaded().read_block(16, bytes).error().message,
            "block: expected one from 0 to 15, found 16");
  EXPECT_FALSE(loaded().write_block(-1, bytes));
  bytes.pop_back();
  EXPECT_FALSE(loaded().write_block(0, bytes));
  const std::vector<BlockId> repeated(20, 3);
  const auto beyond = loaded().eval(
      std::vector<EvalItem>{{.pos = 512, .tokens = items(0, 1)[0].tokens, .blocks = repeated}});
  ASSERT_FALSE(beyond);
  EXPECT_THAT(beyond.error().message, HasSubstr("expected positions within the context of 512"))
      << "what the pool cannot hold was never prepared for";
}

TEST_F(WebgpuLoadedTest, AStepThatIsRefusedChangesNothing) {
  ASSERT_TRUE(loaded().eval(items(0, 40)));
  std::vector<std::byte> before(loaded().block_bytes()), after(before.size());
  ASSERT_TRUE(loaded().read_block(kTable[0], before));
  const std::vector<Token> wrong = {3, kVocabRows};
  ASSERT_FALSE(loaded().eval(std::vector<EvalItem>{{.pos = 5, .tokens = wrong, .blocks = kTable}}));
  ASSERT_TRUE(loaded().read_block(kTable[0], after));
  EXPECT_EQ(after, before);
  EXPECT_TRUE(loaded().eval(items(40, 1, LogitRows::last)));
}

std::shared_ptr<Model> open_model() {
  return test::open_twin_model("tiny-tied", Scheme::bf16, kGateBlocks, "webgpu");
}

TEST(WebgpuSessions, SpeculationDrawsTheTokensOfPlainDecoding) {
  const auto model = open_model();
  const std::vector<Token> prompt = test::random_tokens(21, 4);
  GenerateParams params;
  params.max_tokens = 9;
  params.ignore_eos = true;
  params.sampling.temperature = 0;
  auto session = Session::create(model, 64, 1).value();
  const auto plain = generate(*model, session, prompt, params, {});
  ASSERT_TRUE(plain) << plain.error().message;
  params.speculation = test::eager(test::drafters<test::ReplayDrafter>(plain->tokens, 5u));
  auto other = Session::create(model, 64, 2).value();
  const auto speculative = generate(*model, other, prompt, params, {});
  ASSERT_TRUE(speculative) << speculative.error().message;
  EXPECT_GT(speculative->speculation.accepted, 2u);
  EXPECT_EQ(speculative->tokens, plain->tokens);
  EXPECT_EQ(speculative->logits_hash, plain->logits_hash);
}

// Sessions of another salt share nothing, so that all its blocks are written from the file.
TEST(WebgpuSessions, ASavedSessionGoesOnWithTheSameBits) {
  const auto path = (test::scratch_dir() / "webgpu.session").string();
  const auto model = open_model();
  auto session = Session::create(model, 64, 1).value();
  ASSERT_TRUE(session.sync(test::random_tokens(40, 3)));
  ASSERT_TRUE(session.save(path));
  ASSERT_TRUE(session.append(17));
  const std::vector<float> expected = copy_of(session.logits());
  auto other = Session::create(model, 64, 2).value();
  const auto restored = other.restore(path);
  ASSERT_TRUE(restored) << restored.error().message;
  ASSERT_TRUE(other.append(17));
  EXPECT_TRUE(same_bits(other.logits(), expected));
}

}  // namespace
}  // namespace kipp::webgpu
