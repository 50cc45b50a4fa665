// The cpu backend's promise at full width: for every scheme, any batch, any chunk size, any number
// of threads, any block table, cache hit or recomputation, packed or mapped weights give the same
// bits. What is compared are the logits and the whole cache, which holds the keys and values of
// every layer at every position.
#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "backend/registry.h"
#include "support/sanitized.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

// Longer than two steps (512) and than four runs of attention (256 positions each); with a
// sanitizer than one step and two runs.
constexpr int kLong = test::kSanitized ? 600 : 1100;
constexpr int kDeep = (kLong - 44) / kBlockPositions * kBlockPositions;
constexpr int kShort = 200;
constexpr int kBlocks = 110;  // three times the long one, and a few
constexpr int kManyThreads[] = {1, 2, 3, 16};
// A sanitizer sees the same addresses with any of them.
constexpr std::span<const int> kThreads =
    std::span(kManyThreads).subspan(test::kSanitized ? 2 : 0, test::kSanitized ? 1 : 4);
constexpr int kChunks[] = {1, 32, 64, 512};

using Blocks = std::vector<BlockId>;

// A sequence as a backend left it: the bytes of its blocks up to the last full one, and the logits
// of some positions.
struct Trace {
  std::vector<std::vector<std::byte>> blocks;
  std::map<int, std::vector<float>> logits;
};

struct Sequence {
  std::vector<Token> tokens;
  Blocks blocks;
  int chunk = 0;
  int pos = 0;  // evaluated so far
  Trace trace;

  bool done() const { return pos == static_cast<int>(tokens.size()); }
};

class CpuInvariance : public testing::TestWithParam<Scheme> {
 protected:
  std::unique_ptr<Backend> backend(int threads, WeightStore weights = WeightStore::packed) const {
    auto made = make_backend("cpu").value();
    const auto loaded =
        made->load(artifact_, {.blocks = kBlocks}, {.threads = threads, .weights = weights});
    EXPECT_TRUE(loaded) << loaded.error().message;
    return made;
  }

  // Steps in which each sequence takes a chunk, until all are done.
  static void run(Backend& backend, std::vector<Sequence*> sequences) {
    for (;;) {
      std::vector<EvalItem> items;
      std::vector<Sequence*> owners;
      for (SeqId seq = 0; Sequence * s : sequences) {
        const int n = std::min(s->chunk, static_cast<int>(s->tokens.size()) - s->pos);
        if (n > 0) {
          items.push_back({.seq = seq,
                           .pos = s->pos,
                           .tokens = std::span(s->tokens).subspan(static_cast<std::size_t>(s->pos),
                                                                  static_cast<std::size_t>(n)),
                           .blocks = s->blocks});
          owners.push_back(s);
          s->pos += n;
        }
        ++seq;
      }
      if (items.empty()) break;
      const auto view = backend.eval(items);
      ASSERT_TRUE(view) << view.error().message;
      for (int r = 0; r < view->rows; ++r) {
        Sequence& owner = *owners[static_cast<std::size_t>(r)];
        const auto row = view->row(r);
        owner.trace.logits[owner.pos - 1] = {row.begin(), row.end()};
      }
    }
    for (Sequence* s : sequences) {
      s->trace.blocks.clear();
      for (int b = 0; b < s->pos / kBlockPositions; ++b) {
        s->trace.blocks.emplace_back(backend.block_bytes());
        const auto read =
            backend.read_block(s->blocks[static_cast<std::size_t>(b)], s->trace.blocks.back());
        ASSERT_TRUE(read) << read.error().message;
      }
    }
  }

  // Every block found, and the logits of positions where both have them.
  static void expect_same(const Trace& found, const Trace& expected) {
    int compared = 0;
    for (const auto& [pos, logits] : found.logits) {
      if (!expected.logits.contains(pos)) continue;
      ++compared;
      ASSERT_EQ(
          std::memcmp(logits.data(), expected.logits.at(pos).data(), logits.size() * sizeof(float)),
          0)
          << "logits of position " << pos;
    }
    ASSERT_GT(compared, 0);
    ASSERT_LE(found.blocks.size(), expected.blocks.size());
    for (std::size_t b = 0; b < found.blocks.size(); ++b) {
      ASSERT_EQ(found.blocks[b], expected.blocks[b]) << "block " << b;
    }
  }

  static Blocks from(BlockId first, int positions) {
    Blocks blocks(static_cast<std::size_t>(blocks_for(positions)));
    std::iota(blocks.begin(), blocks.end(), first);
    return blocks;
  }
  static Blocks scrambled(BlockId first, int positions) {
    Blocks blocks = from(first, positions);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      std::swap(blocks[i], blocks[(i * 7 + 3) % blocks.size()]);
    }
    return blocks;
  }
  static std::span<const Token> head(const std::vector<Token>& tokens, int n) {
    return std::span(tokens).first(static_cast<std::size_t>(n));
  }

  Sequence whole(const std::vector<Token>& tokens, int chunk) const {
    return {.tokens = tokens,
            .blocks = from(0, static_cast<int>(tokens.size())),
            .chunk = chunk,
            .pos = 0,
            .trace = {}};
  }

  // What one thread computes of each sequence alone: once per scheme.
  void SetUp() override {
    static std::map<Scheme, std::pair<Trace, Trace>> of_scheme;
    auto& [long_trace, short_trace] = of_scheme[GetParam()];
    if (long_trace.blocks.empty()) {
      const auto one = backend(1);
      expect(*one, long_tokens_, long_trace);
      expect(*one, short_tokens_, short_trace);
    }
    long_ = long_trace;
    short_ = short_trace;
  }
  void expect(Backend& one, const std::vector<Token>& tokens, Trace& expected) const {
    Sequence s = whole(tokens, 8);
    run(one, {&s});
    expected = std::move(s.trace);
    // The last positions one by one.
    s.pos -= kTail;
    s.chunk = 1;
    run(one, {&s});
    expected.logits.merge(s.trace.logits);
    expect_same(s.trace, expected);
  }

  static constexpr int kTail = 20;
  const Artifact artifact_ = test::open_twin(
      GetParam() == Scheme::q8_0 || GetParam() == Scheme::bf16 ? "tiny-tied" : "tiny-untied",
      GetParam());
  const std::vector<Token> long_tokens_ = test::random_tokens(kLong, 1);
  const std::vector<Token> short_tokens_ = test::random_tokens(kShort, 2);
  Trace long_, short_;
};

// With a sanitizer the first two: one of each way to store weights.
constexpr Scheme kSchemes[] = {Scheme::affine4_gs32, Scheme::bf16, Scheme::q8_0,
                               Scheme::scale4_gs32};
INSTANTIATE_TEST_SUITE_P(Schemes, CpuInvariance,
                         testing::ValuesIn(std::span(kSchemes).first(test::kSanitized ? 2 : 4)),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST_P(CpuInvariance, ChunksThreadsAndTables) {
  for (const int threads : kThreads) {
    const auto other = backend(threads);
    bool scramble = false;
    for (const int chunk : kChunks) {
      SCOPED_TRACE(fmt::format("{} threads, chunks of {}", threads, chunk));
      Sequence s = whole(long_tokens_, chunk);
      if (scramble) s.blocks = scrambled(40, kLong);
      scramble = !scramble;
      if (chunk == 1) {  // one by one only at the end, for time
        s.tokens.resize(kLong - kTail);
        s.chunk = 64;
        run(*other, {&s});
        s.tokens = long_tokens_;
        s.trace = {};
        s.chunk = 1;
      }
      run(*other, {&s});
      expect_same(s.trace, long_);
      Sequence in_one = whole(short_tokens_, kShort);
      run(*other, {&in_one});
      expect_same(in_one.trace, short_);
    }
  }
}

TEST_P(CpuInvariance, Batches) {
  for (const int threads : kThreads) {
    SCOPED_TRACE(threads);
    const auto other = backend(threads);
    // A prompt in chunks beside a decoding sequence and others of the same tokens at other paces.
    Sequence a = whole(long_tokens_, 96);
    Sequence b = whole(short_tokens_, 1);
    b.tokens.resize(40);
    b.blocks = from(36, 40);
    Sequence c = whole(short_tokens_, 32);
    c.blocks = scrambled(40, kShort);
    Sequence d = whole(short_tokens_, 200);
    d.blocks = from(60, kShort);
    run(*other, {&b, &a, &d, &c});
    expect_same(a.trace, long_);
    expect_same(b.trace, short_);
    expect_same(c.trace, short_);
    expect_same(d.trace, short_);
  }
}

TEST_P(CpuInvariance, AdoptedPrefixesAndRecomputation) {
  for (const int threads : kThreads) {
    SCOPED_TRACE(threads);
    const auto other = backend(threads);
    Sequence first = whole(long_tokens_, 512);
    run(*other, {&first});
    // Two sequences adopt full blocks of the first and go on in their own, in one step.
    for (const int adopted : {32, 512, kDeep}) {
      // Prompts, at last decoding: few rows far into the context, which attention cuts into runs.
      Sequence hit = whole(long_tokens_, adopted == kDeep ? 1 : 400);
      Sequence again = whole(long_tokens_, adopted == kDeep ? 3 : 112);
      hit.pos = again.pos = adopted;
      const auto own = static_cast<std::size_t>(adopted / kBlockPositions);
      for (std::size_t i = own; i < hit.blocks.size(); ++i) {
        hit.blocks[i] = static_cast<BlockId>(36 + i);
        again.blocks[i] = static_cast<BlockId>(kBlocks - 1 - static_cast<int>(i));
      }
      run(*other, {&hit, &again});
      expect_same(hit.trace, long_);
      expect_same(again.trace, long_);
    }
    // Truncated, overwritten and resumed.
    for (const int keep : {255, kLong - 70, kLong - 1}) {
      const auto detour = test::random_tokens(40, 9);
      const int n = std::min(40, kLong - keep);
      const auto overwritten = other->eval(
          std::vector<EvalItem>{{.pos = keep, .tokens = head(detour, n), .blocks = first.blocks}});
      ASSERT_TRUE(overwritten);
      first.pos = keep;
      first.trace = {};
      run(*other, {&first});
      expect_same(first.trace, long_);
    }
  }
}

TEST_P(CpuInvariance, WeightsLeftInTheMapping) {
  for (const int threads : {1, 3}) {
    const auto other = backend(threads, WeightStore::mapped);
    Sequence s = whole(long_tokens_, 64);
    run(*other, {&s});
    expect_same(s.trace, long_);
  }
}

}  // namespace
}  // namespace kipp
