// The cuda backend on the emulated device: the same host side and the same kernels as on a GPU,
// every thread run on the CPU (src/backend/cuda/emulation.h). Held here: the gates of the contract
// against the reference, bit-equality in deterministic mode, blocks that move between backends, and
// that a failure is one error which leaves everything else as it was.
#include "backend/cuda/cuda_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/emulated/emulated_runtime.h"
#include "support/backend_gates.h"
#include "support/sanitized.h"

namespace kipp::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using test::copy_of;
using test::kGateBlocks;
using test::kTable;
using test::same_bits;
using test::Twin;

class CudaAgainstReference : public test::AgainstReference {
 protected:
  CudaAgainstReference() : AgainstReference("cuda") {}
};

constexpr Twin kTwins[] = {{"tiny-tied", Scheme::bf16, true},
                           {"tiny-tied", Scheme::q8_0, false},
                           {"tiny-tied", Scheme::affine4_gs32, false},
                           {"tiny-untied", Scheme::scale4_gs32, true}};
INSTANTIATE_TEST_SUITE_P(Twins, CudaAgainstReference,
                         testing::ValuesIn(std::span(kTwins).first(test::kSanitized ? 1 : 4)),
                         test::name_of);

// What does not depend on how weights are stored.
class CudaDecodes : public CudaAgainstReference {};
INSTANTIATE_TEST_SUITE_P(Twins, CudaDecodes,
                         testing::ValuesIn(std::span(kTwins).first(test::kSanitized ? 1 : 2)),
                         test::name_of);

// Of the emulation's time nearly all goes into rows of logits, a step with some of them costing as
// much as one with one: steps of these tests have a few, and as few steps as can be have any.
TEST_P(CudaDecodes, AroundTheEdgeOfABlockAndOverBlocksOfTheReference) {
  around_the_edge_of_a_block_and_over_blocks_of_the_reference();
}

// In fast mode a step with tiles multiplies one term of its inputs.
TEST_P(CudaAgainstReference, TruncatedAndResumed) { truncated_and_resumed(); }

// What deterministic mode promises.
class CudaInvariance : public test::Invariance {
 protected:
  CudaInvariance() : Invariance("cuda", {"tiny-tied", Scheme::scale4_gs32}) {}
};

TEST_F(CudaInvariance, AnyChunkTableAndNeighbours) { any_chunk_table_and_neighbours(); }

TEST_F(CudaInvariance, BlocksCopiedRestoredAndOverwritten) {
  blocks_copied_restored_and_overwritten();
}

// A backend that is not loaded yet, on a machine that is as it was.
class CudaBackendTest : public testing::Test {
 protected:
  CudaBackendTest() { heal(); }
  ~CudaBackendTest() override {
    backend_.reset();
    EXPECT_EQ(machine_.live_objects, live_before_) << "something was not given back";
    heal();
  }

  void heal() {
    const runtime::EmulatedMachine whole;
    machine_.properties = whole.properties;
    machine_.open_status = 0;
    machine_.allocation = machine_.launch = machine_.copy = machine_.wait = {};
  }

  std::string refusal(const KvConfig& kv, const LoadOptions& options = {.threads = 1}) {
    const auto loaded = backend_->load(artifact(), kv, options);
    EXPECT_FALSE(loaded);
    return loaded ? "" : loaded.error().message;
  }

  static const Artifact& artifact() {
    static const Artifact opened = test::open_twin("tiny-tied", Scheme::q8_0);
    return opened;
  }

  static std::vector<EvalItem> items(int begin, int n, LogitRows want = LogitRows::none) {
    static const std::vector<Token> tokens = test::random_tokens(100, 1);
    return {{.pos = begin,
             .tokens = std::span(tokens).subspan(static_cast<std::size_t>(begin),
                                                 static_cast<std::size_t>(n)),
             .blocks = kTable,
             .want = want}};
  }

  runtime::EmulatedMachine& machine_ = runtime::emulated_machine();
  const int live_before_ = machine_.live_objects;
  std::unique_ptr<CudaBackend> backend_ = std::make_unique<CudaBackend>();
};

TEST_F(CudaBackendTest, RefusesWhatItDoesNotDo) {
  EXPECT_EQ(refusal({.blocks = 0}), "kv.blocks: expected at least 1, found 0");
  EXPECT_EQ(refusal({.blocks = 1, .store = KvStore::f32}),
            "kv.store: expected bf16, the only one cuda keeps, found f32");
  EXPECT_EQ(refusal({.blocks = 1}, {.weights = WeightStore::mapped}),
            "weights: expected packed, found mapped; cuda keeps them on the device");
  EXPECT_EQ(refusal({.blocks = 1}, {.threads = -1}),
            "threads: expected 1 to 1024, or 0 for one per core, found -1");
  EXPECT_FALSE(backend_->eval(items(0, 1)));
  std::vector<std::byte> bytes(8);
  EXPECT_FALSE(backend_->read_block(0, bytes));
  EXPECT_FALSE(backend_->write_block(0, bytes));
  EXPECT_EQ(backend_->block_bytes(), 0u);
}

TEST_F(CudaBackendTest, NoDeviceIsAnErrorAndNotTheEnd) {
  machine_.open_status = runtime::kNoDevice;
  EXPECT_THAT(refusal({.blocks = 1}), HasSubstr("expected an NVIDIA GPU with its driver"));
}

TEST_F(CudaBackendTest, MemoryIsRefusedWithNumbersBeforeAnyIsTaken) {
  machine_.properties.memory_bytes = machine_.device_bytes + (std::size_t{4} << 30);
  machine_.allocation = {.status = runtime::kOutOfMemory};  // would be the error if it was asked
  const std::string refused = refusal({.blocks = 1000000});
  EXPECT_THAT(refused, AllOf(HasSubstr("memory: "), HasSubstr("GiB of the device needed"),
                             HasSubstr("for weights"), HasSubstr("for 32000000 cached positions"),
                             HasSubstr("4.0 GiB available of"), HasSubstr("(an emulated device)"),
                             HasSubstr("ask for a shorter context")));
  EXPECT_EQ(machine_.allocation.status, runtime::kOutOfMemory) << "not used up";
}

TEST_F(CudaBackendTest, EveryAllocationThatFailsIsOneError) {
  int failures = 0;
  for (;; ++failures) {
    machine_.allocation = {.status = runtime::kOutOfMemory, .calls_before = failures};
    const auto loaded = backend_->load(artifact(), {.blocks = kGateBlocks}, {.threads = 1});
    if (loaded) break;
    ASSERT_EQ(loaded.error().code, ErrorCode::exhausted);
    ASSERT_THAT(loaded.error().message, HasSubstr("memory: "));
    ASSERT_EQ(machine_.live_objects, live_before_) << "after allocation " << failures;
    ASSERT_FALSE(backend_->eval(items(0, 1)));
  }
  EXPECT_GE(failures, 8);
  machine_.allocation = {};
  EXPECT_TRUE(backend_->eval(items(0, 1)));
}

TEST_F(CudaBackendTest, TakesWhatItPlannedReportsItAndMayBeLost) {
  const std::size_t others = machine_.device_bytes;
  machine_.properties.memory_bytes = std::size_t{16} << 30;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;
  ASSERT_TRUE(
      backend_->load(artifact(), {.blocks = kGateBlocks},
                     {.threads = 2, .progress = [&](std::uint64_t done, std::uint64_t total) {
                        seen.emplace_back(done, total);
                      }}));
  ASSERT_GT(seen.size(), 10u);
  const std::uint64_t total = seen.front().second;
  EXPECT_EQ(seen.front().first, 0u);
  EXPECT_EQ(seen.back(), std::pair(total, total));
  EXPECT_TRUE(std::ranges::is_sorted(seen));
  EXPECT_LT(total, artifact().file_bytes());
  EXPECT_GT(total, artifact().file_bytes() / 2) << "all weights, the tied table once";

  machine_.wait = {.status = runtime::kIllegalAddress};
  const auto lost = backend_->eval(items(0, 1));
  ASSERT_FALSE(lost);
  EXPECT_THAT(lost.error().message, HasSubstr("device: lost while computing a step"));
  machine_.launch = {.status = runtime::kIllegalAddress};
  EXPECT_EQ(backend_->eval(items(0, 1)).error().message, lost.error().message);

  // Neither more than planned, nor so much less that a context is refused for nothing.
  const std::size_t taken = machine_.device_bytes - others;
  backend_ = std::make_unique<CudaBackend>();
  constexpr std::size_t kBesides = std::size_t{320} << 20;  // the driver's, and the upload's
  machine_.properties.memory_bytes = others + taken + kBesides - 1;
  EXPECT_THAT(refusal({.blocks = kGateBlocks}), HasSubstr("GiB of the device needed"));
  machine_.properties.memory_bytes = others + taken + kBesides + (std::size_t{1} << 16);
  machine_.allocation = {.status = runtime::kOutOfMemory};
  EXPECT_THAT(refusal({.blocks = kGateBlocks}), HasSubstr("no room for"));
}

// One that is loaded, for tests that leave it as good as it was.
class CudaLoadedTest : public CudaBackendTest {
 protected:
  static void SetUpTestSuite() {
    loaded_ = std::make_unique<CudaBackend>();
    const auto loaded = loaded_->load(artifact(), {.blocks = kGateBlocks}, {.threads = 1});
    ASSERT_TRUE(loaded) << loaded.error().message;
  }
  static void TearDownTestSuite() { loaded_.reset(); }

  static std::unique_ptr<CudaBackend> loaded_;
};
std::unique_ptr<CudaBackend> CudaLoadedTest::loaded_;

// First, before anything was written.
TEST_F(CudaLoadedTest, ABlockNobodyWroteReadsAsZero) {
  std::vector<std::byte> bytes(loaded_->block_bytes());
  for (const BlockId block : {0, 15}) {
    std::ranges::fill(bytes, std::byte{1});
    ASSERT_TRUE(loaded_->read_block(block, bytes));
    EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST_F(CudaLoadedTest, ChecksBlocksPositionsAndOrder) {
  EXPECT_EQ(loaded_->load(artifact(), {.blocks = 1}).error().message,
            "load: this backend is loaded already");
  std::vector<std::byte> bytes(loaded_->block_bytes());
  EXPECT_EQ(loaded_->read_block(16, bytes).error().message,
            "block: expected one from 0 to 15, found 16");
  EXPECT_FALSE(loaded_->write_block(-1, bytes));
  bytes.pop_back();
  EXPECT_FALSE(loaded_->write_block(0, bytes));
  const std::vector<BlockId> repeated(20, 3);
  const auto beyond = loaded_->eval(
      std::vector<EvalItem>{{.pos = 512, .tokens = items(0, 1)[0].tokens, .blocks = repeated}});
  ASSERT_FALSE(beyond);
  EXPECT_THAT(beyond.error().message, HasSubstr("expected positions within the context of 512"))
      << "what the pool cannot hold was never prepared for";
}

TEST_F(CudaLoadedTest, AStepAllocatesNothingAndUploadsOnce) {
  const int copies = machine_.copies;
  ASSERT_TRUE(loaded_->eval(items(0, 40)));
  ASSERT_TRUE(loaded_->eval(items(40, 1)));
  EXPECT_EQ(machine_.live_objects, live_before_);
  EXPECT_EQ(machine_.copies - copies, 2);
}

TEST_F(CudaLoadedTest, AStepThatFailsChangesNothing) {
  ASSERT_TRUE(loaded_->eval(items(0, 40)));
  const auto expected = loaded_->eval(items(40, 2, LogitRows::last));
  ASSERT_TRUE(expected);
  const std::vector<float> row = copy_of(expected->row(0));
  std::vector<std::byte> before(loaded_->block_bytes()), after(before.size());
  ASSERT_TRUE(loaded_->read_block(kTable[0], before));

  const int first = machine_.launches;
  ASSERT_TRUE(loaded_->eval(items(40, 2)));
  const int launches = machine_.launches - first;
  ASSERT_GT(launches, 20);
  for (int n = 0; n < launches; n += 3) {
    machine_.launch = {.status = runtime::kLaunchOutOfResources, .calls_before = n};
    const auto failed = loaded_->eval(items(40, 2));
    ASSERT_FALSE(failed) << n;
    ASSERT_EQ(failed.error().code, ErrorCode::io);
    ASSERT_THAT(failed.error().message, HasSubstr("device: failed while "));
  }
  machine_.copy = {.status = runtime::kLaunchOutOfResources};
  EXPECT_EQ(loaded_->eval(items(40, 2)).error().message,
            "device: failed while uploading a step's tables (cudaErrorLaunchOutOfResources: "
            "emulated)");
  machine_.copy = {.status = runtime::kLaunchOutOfResources, .calls_before = 1};
  EXPECT_THAT(loaded_->eval(items(40, 2)).error().message, HasSubstr("while copying logits"));

  ASSERT_TRUE(loaded_->read_block(kTable[0], after));
  EXPECT_EQ(after, before);
  const auto again = loaded_->eval(items(40, 2, LogitRows::last));
  ASSERT_TRUE(again);
  EXPECT_TRUE(same_bits(again->row(0), row));
}

TEST_F(CudaLoadedTest, ACopyThatFailsStopsTheStepThatNeedsIt) {
  ASSERT_TRUE(loaded_->eval(items(0, 33)));
  machine_.copy = {.status = runtime::kLaunchOutOfResources};
  const std::vector<BlockCopy> copies = {{.from = kTable[0], .to = 12}};
  loaded_->copy_blocks(copies);
  const auto stopped = loaded_->eval(items(33, 1));
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().message,
            "device: failed while copying a block of keys and values "
            "(cudaErrorLaunchOutOfResources: emulated)");
  loaded_->copy_blocks(copies);
  EXPECT_TRUE(loaded_->eval(items(33, 1)));
}

// Sessions of another salt share nothing, so that all its blocks are written from the file.
TEST(CudaSessions, ASavedSessionGoesOnWithTheSameBits) {
  const auto path = (test::scratch_dir() / "cuda.session").string();
  const auto model = test::open_twin_model("tiny-tied", Scheme::bf16, kGateBlocks, "cuda");
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

  // It is not what fast mode would have computed.
  const auto fast = Model::open(test::tiny_artifact_path("tiny-tied", Scheme::bf16),
                                {.backend = "cuda",
                                 .allow_synthetic = true,
                                 .kv_blocks = kGateBlocks,
                                 .load = {.threads = 1, .deterministic = false}});
  ASSERT_TRUE(fast) << fast.error().message;
  auto third = Session::create(*fast, 64).value();
  const auto refused = third.restore(path);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("cuda, fast"), HasSubstr("cuda.session")));
}

}  // namespace
}  // namespace kipp::cuda
