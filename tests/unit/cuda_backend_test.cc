// The cuda backend on the emulated device: the same host side and the same kernels as on a GPU,
// every thread run on the CPU (src/backend/cuda/emulation.h). Held here: the gates of the contract
// against the reference, bit-equality in deterministic mode, blocks that move between backends, and
// that a failure is one error which leaves everything else as it was.
#include "backend/cuda/cuda_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/emulated/emulated_runtime.h"
#include "backend/registry.h"
#include "base/float16.h"
#include "support/sanitized.h"
#include "support/tiny_model.h"

namespace kipp::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kBound = 1e-4;  // the contract's, for any backend against the reference
constexpr int kBlocks = 16;

double nmse(std::span<const float> found, std::span<const float> expected) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double truth = static_cast<double>(expected[i]);
    error += (static_cast<double>(found[i]) - truth) * (static_cast<double>(found[i]) - truth);
    size += truth * truth;
  }
  return error / size;
}

std::ptrdiff_t arg_max(std::span<const float> row) {
  return std::ranges::max_element(row) - row.begin();
}

std::vector<float> copy_of(std::span<const float> row) { return {row.begin(), row.end()}; }

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::unique_ptr<Backend> load(std::string_view name, const Artifact& artifact, bool deterministic) {
  auto backend = make_backend(name).value();
  const auto loaded =
      backend->load(artifact, {.blocks = kBlocks}, {.threads = 1, .deterministic = deterministic});
  EXPECT_TRUE(loaded) << loaded.error().message;
  return backend;
}

// Blocks of both sequences of a test, in no order.
const std::vector<BlockId> kTable = {9, 2, 14, 5};
const std::vector<BlockId> kOther = {1, 7, 3, 11};
const std::vector<BlockId> kThird = {0, 4, 6, 8};

struct Twin {
  const char* shape;
  Scheme scheme;
  bool deterministic;
};

std::string name_of(const testing::TestParamInfo<Twin>& test) {
  std::string name = fmt::format("{}_{}_{}", test.param.shape, to_string(test.param.scheme),
                                 test.param.deterministic ? "deterministic" : "fast");
  std::ranges::replace(name, '-', '_');
  return name;
}

// Loading is most of the time of these tests, so that a suite does it once for each twin.
class CudaAgainstReference : public testing::TestWithParam<Twin> {
 protected:
  struct Pair {
    Artifact artifact;
    std::unique_ptr<Backend> cuda, reference;
  };

  static Pair& pair() {
    static std::map<std::string, std::unique_ptr<Pair>> pairs;
    const Twin& twin = GetParam();
    auto& found =
        pairs[fmt::format("{} {} {}", twin.shape, to_string(twin.scheme), twin.deterministic)];
    if (found == nullptr) {
      found.reset(new Pair{
          .artifact = test::open_twin(twin.shape, twin.scheme), .cuda = {}, .reference = {}});
      found->cuda = load("cuda", found->artifact, twin.deterministic);
      found->reference = load("reference", found->artifact, true);
    }
    return *found;
  }

  // The same step on both; the rows must agree.
  void step(const std::vector<EvalItem>& items) {
    const auto expected = pair().reference->eval(items);
    const auto found = pair().cuda->eval(items);
    ASSERT_TRUE(expected) << expected.error().message;
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_EQ(found->rows, expected->rows);
    for (int r = 0; r < found->rows; ++r) {
      const double error = nmse(found->row(r), expected->row(r));
      ASSERT_LE(error, kBound) << "row " << r;
      ASSERT_EQ(arg_max(found->row(r)), arg_max(expected->row(r))) << "row " << r;
      worst_ = std::max(worst_, error);
    }
  }

  // Keys and values of the first positions, every layer: what a step without logits leaves behind.
  void expect_same_cache(std::span<const BlockId> blocks, int positions) {
    for (int b = 0; b < positions / kBlockPositions; ++b) {
      std::vector<float> rows[2];
      for (const auto& [backend, row] :
           {std::pair(pair().cuda.get(), &rows[0]), std::pair(pair().reference.get(), &rows[1])}) {
        std::vector<std::uint16_t> stored(backend->block_bytes() / 2);
        ASSERT_TRUE(backend->read_block(blocks[static_cast<std::size_t>(b)],
                                        std::as_writable_bytes(std::span(stored))));
        for (const std::uint16_t bits : stored) row->push_back(bf16_to_f32(bits));
      }
      EXPECT_LE(nmse(rows[0], rows[1]), kBound) << "block " << b;
    }
  }

  void TearDown() override { RecordProperty("worst_nmse", fmt::format("{:.1e}", worst_)); }

  std::span<const Token> tokens(int begin, int n) const {
    return std::span(tokens_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(n));
  }

  const std::vector<Token> tokens_ = test::random_tokens(110, 5);
  double worst_ = 0;
};

constexpr Twin kTwins[] = {{"tiny-tied", Scheme::bf16, true},
                           {"tiny-tied", Scheme::q8_0, false},
                           {"tiny-tied", Scheme::affine4_gs32, false},
                           {"tiny-untied", Scheme::scale4_gs32, true}};
INSTANTIATE_TEST_SUITE_P(Twins, CudaAgainstReference,
                         testing::ValuesIn(std::span(kTwins).first(test::kSanitized ? 1 : 4)),
                         name_of);

// What does not depend on how weights are stored.
class CudaDecodes : public CudaAgainstReference {};
INSTANTIATE_TEST_SUITE_P(Twins, CudaDecodes,
                         testing::ValuesIn(std::span(kTwins).first(test::kSanitized ? 1 : 2)),
                         name_of);

// Of the emulation's time nearly all goes into rows of logits, a step with some of them costing as
// much as one with one: steps of these tests have a few, and as few steps as can be have any.
// Three sequences around the edge of a block; before the last steps each backend goes on with full
// blocks of the other.
TEST_P(CudaDecodes, AroundTheEdgeOfABlockAndOverBlocksOfTheReference) {
  step({{.seq = 0, .tokens = tokens(0, 61), .blocks = kTable, .want = LogitRows::none},
        {.seq = 1, .tokens = tokens(7, 63), .blocks = kOther, .want = LogitRows::none},
        {.seq = 2, .tokens = tokens(20, 33), .blocks = kThird, .want = LogitRows::none}});
  Backend& cuda = *pair().cuda;
  Backend& reference = *pair().reference;
  std::vector<std::byte> mine(cuda.block_bytes()), its(reference.block_bytes());
  ASSERT_EQ(mine.size(), its.size());
  for (const BlockId block : {kTable[0], kOther[0]}) {
    ASSERT_TRUE(cuda.read_block(block, mine));
    ASSERT_TRUE(reference.read_block(block, its));
    ASSERT_TRUE(cuda.write_block(block, its));
    ASSERT_TRUE(reference.write_block(block, mine));
  }
  step({{.seq = 0, .pos = 61, .tokens = tokens(61, 1), .blocks = kTable, .want = LogitRows::none}});
  step({{.seq = 0, .pos = 62, .tokens = tokens(62, 1), .blocks = kTable},
        {.seq = 1, .pos = 63, .tokens = tokens(70, 1), .blocks = kOther},
        {.seq = 2, .pos = 33, .tokens = tokens(53, 2), .blocks = kThird, .want = LogitRows::all}});
  step({{.seq = 1, .pos = 64, .tokens = tokens(71, 1), .blocks = kOther, .want = LogitRows::none}});
  expect_same_cache(kTable, 63);
  expect_same_cache(kOther, 65);
}

// 70 rows are a step that multiplies tiles and, in fast mode, one term of its inputs.
TEST_P(CudaAgainstReference, TruncatedAndResumed) {
  step({{.tokens = tokens(0, 70), .blocks = kTable}});
  const auto detour = test::random_tokens(20, 6);
  step({{.pos = 45, .tokens = detour, .blocks = kTable, .want = LogitRows::none}});
  step({{.pos = 45, .tokens = tokens(45, 3), .blocks = kTable, .want = LogitRows::all}});
}

// What deterministic mode promises. The whole cache is compared, which holds the keys and values of
// every layer, and the logits of the last position.
class CudaInvariance : public testing::Test {
 protected:
  static constexpr int kTokens = 75;
  struct Trace {
    std::vector<std::vector<std::byte>> blocks;
    std::vector<float> logits;
  };

  static Backend& backend() {
    static const Artifact artifact = test::open_twin("tiny-tied", Scheme::scale4_gs32);
    static const std::unique_ptr<Backend> made = load("cuda", artifact, true);
    return *made;
  }

  static Trace trace(std::span<const BlockId> blocks, std::span<const float> row) {
    Trace trace{.blocks = {}, .logits = copy_of(row)};
    for (const BlockId block : blocks.first(std::size_t{kTokens / kBlockPositions})) {
      trace.blocks.emplace_back(backend().block_bytes());
      EXPECT_TRUE(backend().read_block(block, trace.blocks.back()));
    }
    return trace;
  }

  // Positions [pos, end) in chunks, without logits.
  static void fill(std::span<const BlockId> blocks, int chunk, int pos = 0, int end = kTokens - 1) {
    for (; pos < end; pos += chunk) {
      const int n = std::min(chunk, end - pos);
      const auto done = backend().eval(std::vector<EvalItem>{
          {.pos = pos, .tokens = tokens(pos, n), .blocks = blocks, .want = LogitRows::none}});
      EXPECT_TRUE(done) << done.error().message;
    }
  }

  // The sequence in one step of its own.
  static const Trace& whole() {
    static const Trace found = [] {
      const auto done =
          backend().eval(std::vector<EvalItem>{{.tokens = tokens(0, kTokens), .blocks = kTable}});
      EXPECT_TRUE(done) << done.error().message;
      return trace(kTable, done->row(0));
    }();
    return found;
  }

  static void expect_whole(const Trace& found) {
    EXPECT_TRUE(same_bits(found.logits, whole().logits));
    EXPECT_EQ(found.blocks, whole().blocks);
  }

  static std::span<const Token> part(const std::vector<Token>& tokens, int begin, int n) {
    return std::span(tokens).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(n));
  }
  static std::span<const Token> tokens(int begin, int n) {
    static const std::vector<Token> all = test::random_tokens(kTokens, 8);
    return part(all, begin, n);
  }
  static std::span<const Token> others(int begin, int n) {
    static const std::vector<Token> all = test::random_tokens(kTokens, 9);
    return part(all, begin, n);
  }
};

TEST_F(CudaInvariance, AnyChunkTableAndNeighbours) {
  whole();
  fill(kOther, 32);
  fill(kThird, 34, 0, 68);
  fill(kThird, 1, 68);
  // The last sequence has neighbours at every step: a prompt, a chunk, one that decodes.
  const std::vector<BlockId> table = {15, 10, 13}, beside = {12, 9, 2};
  for (const auto& [pos, n] : std::vector<std::pair<int, int>>{{0, 50}, {50, 7}, {57, 17}}) {
    ASSERT_TRUE(backend().eval(std::vector<EvalItem>{
        {.seq = 0, .pos = pos, .tokens = others(pos, n), .blocks = beside, .want = LogitRows::none},
        {.seq = 1,
         .pos = pos,
         .tokens = tokens(pos, n),
         .blocks = table,
         .want = LogitRows::none}}));
  }
  const auto last = backend().eval(std::vector<EvalItem>{
      {.seq = 0, .pos = 74, .tokens = tokens(74, 1), .blocks = kOther},
      {.seq = 1, .pos = 74, .tokens = others(0, 1), .blocks = beside, .want = LogitRows::none},
      {.seq = 2, .pos = 74, .tokens = tokens(74, 1), .blocks = kThird},
      {.seq = 3, .pos = 74, .tokens = tokens(74, 1), .blocks = table}});
  ASSERT_TRUE(last) << last.error().message;
  const std::vector<float> rows[] = {copy_of(last->row(0)), copy_of(last->row(1)),
                                     copy_of(last->row(2))};
  expect_whole(trace(kOther, rows[0]));
  expect_whole(trace(kThird, rows[1]));
  expect_whole(trace(table, rows[2]));
}

// As an adopted prefix, a copy on write, a session restored in another process and a draft that was
// rejected do.
TEST_F(CudaInvariance, BlocksCopiedRestoredAndOverwritten) {
  whole();
  fill(kThird, 80);
  const std::vector<BlockId> copies = {12, 13, 14};
  backend().copy_blocks(std::vector<BlockCopy>{{.from = kThird[0], .to = copies[0]}});
  std::vector<std::byte> bytes(backend().block_bytes());
  ASSERT_TRUE(backend().read_block(kThird[1], bytes));
  ASSERT_TRUE(backend().write_block(copies[1], bytes));
  fill(copies, 4, 64);
  ASSERT_TRUE(backend().eval(std::vector<EvalItem>{
      {.pos = 70, .tokens = others(0, 5), .blocks = kThird, .want = LogitRows::none}}));
  fill(kThird, 3, 70);
  const auto last = backend().eval(
      std::vector<EvalItem>{{.seq = 0, .pos = 74, .tokens = tokens(74, 1), .blocks = copies},
                            {.seq = 1, .pos = 74, .tokens = tokens(74, 1), .blocks = kThird}});
  ASSERT_TRUE(last) << last.error().message;
  const std::vector<float> rows[] = {copy_of(last->row(0)), copy_of(last->row(1))};
  expect_whole(trace(copies, rows[0]));
  expect_whole(trace(kThird, rows[1]));
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
    const auto loaded = backend_->load(artifact(), {.blocks = kBlocks}, {.threads = 1});
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
      backend_->load(artifact(), {.blocks = kBlocks},
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
  EXPECT_THAT(refusal({.blocks = kBlocks}), HasSubstr("GiB of the device needed"));
  machine_.properties.memory_bytes = others + taken + kBesides + (std::size_t{1} << 16);
  machine_.allocation = {.status = runtime::kOutOfMemory};
  EXPECT_THAT(refusal({.blocks = kBlocks}), HasSubstr("no room for"));
}

// One that is loaded, for tests that leave it as good as it was.
class CudaLoadedTest : public CudaBackendTest {
 protected:
  static void SetUpTestSuite() {
    loaded_ = std::make_unique<CudaBackend>();
    const auto loaded = loaded_->load(artifact(), {.blocks = kBlocks}, {.threads = 1});
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
  const auto model = test::open_twin_model("tiny-tied", Scheme::bf16, kBlocks, "cuda");
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
                                 .kv_blocks = kBlocks,
                                 .load = {.threads = 1, .deterministic = false}});
  ASSERT_TRUE(fast) << fast.error().message;
  auto third = Session::create(*fast, 64).value();
  const auto refused = third.restore(path);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("cuda, fast"), HasSubstr("cuda.session")));
}

}  // namespace
}  // namespace kipp::cuda
