// The gates that a backend on a device has to pass on the tiny twins: those of the contract against
// the reference, and that a sequence has the same bits however it is evaluated. A suite of a
// backend derives from the fixtures here, names the backend, and adds what only it has.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/registry.h"
#include "base/float16.h"
#include "support/logit_rows.h"
#include "support/tiny_model.h"

namespace kipp::test {

inline constexpr double kGateNmse = 1e-4;  // the contract's, for any backend against the reference
inline constexpr int kGateBlocks = 16;

// Blocks of the sequences of a test, in no order.
inline const std::vector<BlockId> kTable = {9, 2, 14, 5};
inline const std::vector<BlockId> kOther = {1, 7, 3, 11};
inline const std::vector<BlockId> kThird = {0, 4, 6, 8};

// The deterministic way is the only one of most backends.
struct Twin {
  const char* shape;
  Scheme scheme;
  bool deterministic = true;
};

inline std::string key_of(const Twin& twin) {
  return fmt::format("{}_{}_{}", twin.shape, to_string(twin.scheme),
                     twin.deterministic ? "deterministic" : "fast");
}

inline void PrintTo(const Twin& twin, std::ostream* out) { *out << key_of(twin); }

inline std::string name_of(const testing::TestParamInfo<Twin>& test) {
  std::string name = key_of(test.param);
  std::ranges::replace(name, '-', '_');
  return name;
}

// A backend with a twin, loaded once in a program since that is most of the time of these tests.
// Never given back: at the end of a program what belongs to a driver may be gone before it.
inline Backend& backend_of(std::string_view name, const Twin& twin) {
  struct Loaded {
    Artifact artifact;
    std::unique_ptr<Backend> backend;
  };
  static auto& all = *new std::map<std::string, std::unique_ptr<Loaded>>;
  auto& found = all[fmt::format("{} {}", name, key_of(twin))];
  if (found == nullptr) {
    found.reset(new Loaded{open_twin(twin.shape, twin.scheme), make_backend(name).value()});
    const auto loaded = found->backend->load(found->artifact, {.blocks = kGateBlocks},
                                             {.threads = 1, .deterministic = twin.deterministic});
    EXPECT_TRUE(loaded) << loaded.error().message;
  }
  return *found->backend;
}

inline std::span<const Token> part_of(const std::vector<Token>& tokens, int begin, int n) {
  return std::span(tokens).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(n));
}

// A backend beside the reference.
class AgainstReference : public testing::TestWithParam<Twin> {
 protected:
  explicit AgainstReference(std::string_view backend)
      : tested_(backend_of(backend, GetParam())),
        reference_(backend_of("reference", {GetParam().shape, GetParam().scheme})) {}

  Backend& tested() const { return tested_; }
  Backend& reference() const { return reference_; }

  // The same step on both; the rows must agree.
  void step(const std::vector<EvalItem>& items) {
    const auto expected = reference().eval(items);
    const auto found = tested().eval(items);
    ASSERT_TRUE(expected) << expected.error().message;
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_EQ(found->rows, expected->rows);
    for (int r = 0; r < found->rows; ++r) {
      const double error = nmse(found->row(r), expected->row(r));
      ASSERT_LE(error, kGateNmse) << "row " << r;
      ASSERT_EQ(arg_max(found->row(r)), arg_max(expected->row(r))) << "row " << r;
      worst_ = std::max(worst_, error);
    }
  }

  // Keys and values of the first positions, every layer: what a step without logits leaves behind.
  void expect_same_cache(std::span<const BlockId> blocks, int positions) const {
    for (int b = 0; b < positions / kBlockPositions; ++b) {
      std::vector<float> rows[2];
      for (const auto& [backend, row] :
           {std::pair(&tested(), &rows[0]), std::pair(&reference(), &rows[1])}) {
        std::vector<std::uint16_t> stored(backend->block_bytes() / 2);
        ASSERT_TRUE(backend->read_block(blocks[static_cast<std::size_t>(b)],
                                        std::as_writable_bytes(std::span(stored))));
        for (const std::uint16_t bits : stored) row->push_back(bf16_to_f32(bits));
      }
      EXPECT_LE(nmse(rows[0], rows[1]), kGateNmse) << "block " << b;
    }
  }

  // Each goes on with these full blocks of the other.
  void exchange(const std::vector<BlockId>& blocks) const {
    std::vector<std::byte> mine(tested().block_bytes()), its(reference().block_bytes());
    ASSERT_EQ(mine.size(), its.size());
    for (const BlockId block : blocks) {
      ASSERT_TRUE(tested().read_block(block, mine));
      ASSERT_TRUE(reference().read_block(block, its));
      ASSERT_TRUE(tested().write_block(block, its));
      ASSERT_TRUE(reference().write_block(block, mine));
    }
  }

  // Three sequences around the edge of a block; before the last steps each backend goes on with
  // full blocks of the other. Few rows of logits, which are most of an emulated device's time.
  void around_the_edge_of_a_block_and_over_blocks_of_the_reference() {
    step({{.seq = 0, .tokens = tokens(0, 61), .blocks = kTable, .want = LogitRows::none},
          {.seq = 1, .tokens = tokens(7, 63), .blocks = kOther, .want = LogitRows::none},
          {.seq = 2, .tokens = tokens(20, 33), .blocks = kThird, .want = LogitRows::none}});
    exchange({kTable[0], kOther[0]});
    step({{.seq = 0,
           .pos = 61,
           .tokens = tokens(61, 1),
           .blocks = kTable,
           .want = LogitRows::none}});
    step(
        {{.seq = 0, .pos = 62, .tokens = tokens(62, 1), .blocks = kTable},
         {.seq = 1, .pos = 63, .tokens = tokens(70, 1), .blocks = kOther},
         {.seq = 2, .pos = 33, .tokens = tokens(53, 2), .blocks = kThird, .want = LogitRows::all}});
    step({{.seq = 1,
           .pos = 64,
           .tokens = tokens(71, 1),
           .blocks = kOther,
           .want = LogitRows::none}});
    expect_same_cache(kTable, 63);
    expect_same_cache(kOther, 65);
  }

  // 70 rows are a step that multiplies tiles.
  void truncated_and_resumed() {
    step({{.tokens = tokens(0, 70), .blocks = kTable}});
    const auto detour = random_tokens(20, 6);
    step({{.pos = 45, .tokens = detour, .blocks = kTable, .want = LogitRows::none}});
    step({{.pos = 45, .tokens = tokens(45, 3), .blocks = kTable, .want = LogitRows::all}});
  }

  void TearDown() override { RecordProperty("worst_nmse", fmt::format("{:.1e}", worst_)); }

  std::span<const Token> tokens(int begin, int n) const { return part_of(tokens_, begin, n); }

  Backend& tested_;
  Backend& reference_;
  const std::vector<Token> tokens_ = random_tokens(110, 5);
  double worst_ = 0;
};

// That a sequence has the same bits however it is evaluated. The whole cache is compared, which
// holds the keys and values of every layer, and the logits of the last position.
class Invariance : public testing::Test {
 protected:
  static constexpr int kTokens = 75;
  struct Trace {
    std::vector<std::vector<std::byte>> blocks;
    std::vector<float> logits;
  };

  Invariance(std::string_view backend, const Twin& twin)
      : backend_(backend_of(backend, twin)), key_(fmt::format("{} {}", backend, key_of(twin))) {}

  Backend& backend() const { return backend_; }

  Trace trace(std::span<const BlockId> blocks, std::span<const float> row) const {
    Trace trace{.blocks = {}, .logits = copy_of(row)};
    for (const BlockId block : blocks.first(std::size_t{kTokens / kBlockPositions})) {
      trace.blocks.emplace_back(backend().block_bytes());
      EXPECT_TRUE(backend().read_block(block, trace.blocks.back()));
    }
    return trace;
  }

  // Positions [pos, end) in chunks, without logits.
  void fill(std::span<const BlockId> blocks, int chunk, int pos = 0, int end = kTokens - 1) const {
    for (; pos < end; pos += chunk) {
      const int n = std::min(chunk, end - pos);
      const auto done = backend().eval(std::vector<EvalItem>{
          {.pos = pos, .tokens = tokens(pos, n), .blocks = blocks, .want = LogitRows::none}});
      EXPECT_TRUE(done) << done.error().message;
    }
  }

  // The sequence in one step of its own.
  const Trace& whole() const {
    static std::map<std::string, Trace> all;
    Trace& found = all[key_];
    if (found.logits.empty()) {
      const auto done =
          backend().eval(std::vector<EvalItem>{{.tokens = tokens(0, kTokens), .blocks = kTable}});
      EXPECT_TRUE(done) << done.error().message;
      found = trace(kTable, done->row(0));
    }
    return found;
  }

  void expect_whole(const Trace& found) const {
    EXPECT_TRUE(same_bits(found.logits, whole().logits));
    EXPECT_EQ(found.blocks, whole().blocks);
  }

  static std::span<const Token> tokens(int begin, int n) {
    static const std::vector<Token> all = random_tokens(kTokens, 8);
    return part_of(all, begin, n);
  }
  static std::span<const Token> others(int begin, int n) {
    static const std::vector<Token> all = random_tokens(kTokens, 9);
    return part_of(all, begin, n);
  }

  void any_chunk_table_and_neighbours() const {
    whole();
    fill(kOther, 32);
    fill(kThird, 34, 0, 68);
    fill(kThird, 1, 68);
    // The last sequence has neighbours at every step: a prompt, a chunk, one that decodes.
    const std::vector<BlockId> table = {15, 10, 13}, beside = {12, 9, 2};
    for (const auto& [pos, n] : std::vector<std::pair<int, int>>{{0, 50}, {50, 7}, {57, 17}}) {
      ASSERT_TRUE(backend().eval(std::vector<EvalItem>{{.seq = 0,
                                                        .pos = pos,
                                                        .tokens = others(pos, n),
                                                        .blocks = beside,
                                                        .want = LogitRows::none},
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

  // As an adopted prefix, a copy on write, a session restored in another process and a draft that
  // was rejected do.
  void blocks_copied_restored_and_overwritten() const {
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

 private:
  Backend& backend_;
  const std::string key_;
};

}  // namespace kipp::test
