// Random weights that are the same everywhere, and fit to be computed with.
#include "convert/synthesize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/float16.h"
#include "model/artifact_layout.h"
#include "support/tiny_artifact.h"

namespace kipp {
namespace {

using ::testing::HasSubstr;

std::vector<std::uint16_t> rows_of(const Checkpoint& entry, std::uint64_t seed, int threads,
                                   std::string_view name, int first, int count, int cols) {
  std::vector<std::uint16_t> out(static_cast<std::size_t>(count) * static_cast<std::size_t>(cols));
  EXPECT_TRUE(synthetic_rows(entry, seed, threads)(name, first, count, cols, out));
  return out;
}

TEST(Synthesize, WritesThePinnedBytes) {
  // Equal on every machine and compiler; new values mean a new kConverterVersion.
  struct Pin {
    const char* shape;
    Scheme scheme;
    const char* xxh128;
  };
  for (const Pin& pin : {Pin{"tiny-tied", Scheme::bf16, "2830076c2af5e54686811ebc5184419c"},
                         Pin{"tiny-tied", Scheme::q8_0, "a8a16527aec0798c22abdc40001b37c1"},
                         Pin{"tiny-tied", Scheme::affine4_gs32, "b893eeb1d7111525139fd87a6777aaea"},
                         Pin{"tiny-tied", Scheme::scale4_gs32, "9f15e6efa62a896fa53f56b85de3128e"},
                         Pin{"tiny-untied", Scheme::bf16, "5edc739e1240cffc59d7d10ea219ad23"}}) {
    EXPECT_EQ(xxh128_hex(test::tiny_artifact(pin.shape, pin.scheme)), pin.xxh128)
        << pin.shape << " " << to_string(pin.scheme);
  }
}

TEST(Synthesize, DoesNotDependOnThreadsOrChunks) {
  const Checkpoint& entry = **find_synthetic("qwen3-0.6b");
  const auto alone = rows_of(entry, 3, 1, "blk.5.ffn_up.weight", 100, 37, 1024);
  for (const int threads : {2, 3, 64}) {
    EXPECT_EQ(rows_of(entry, 3, threads, "blk.5.ffn_up.weight", 100, 37, 1024), alone) << threads;
  }
  const auto row = rows_of(entry, 3, 1, "blk.5.ffn_up.weight", 111, 1, 1024);
  EXPECT_TRUE(std::equal(row.begin(), row.end(), alone.begin() + 11 * 1024));
}

TEST(Synthesize, DiffersBySeedTensorAndRow) {
  const Checkpoint& entry = **find_synthetic("tiny-tied");
  const auto first = rows_of(entry, 1, 1, "blk.0.attn_q.weight", 0, 1, 32);
  EXPECT_NE(rows_of(entry, 2, 1, "blk.0.attn_q.weight", 0, 1, 32), first);
  EXPECT_NE(rows_of(entry, 1, 1, "blk.1.attn_q.weight", 0, 1, 32), first);
  EXPECT_NE(rows_of(entry, 1, 1, "blk.0.attn_q.weight", 1, 1, 32), first);
  EXPECT_NE(rows_of(entry, 1ull << 63, 1, "blk.0.attn_q.weight", 0, 1, 32), first);
}

struct Moments {
  double mean = 0, deviation = 0, most = 0;
};

Moments moments(const std::vector<std::uint16_t>& values) {
  double sum = 0, square = 0;
  Moments m;
  for (const std::uint16_t bits : values) {
    const double v = bf16_to_f32(bits);
    sum += v;
    square += v * v;
    m.most = std::max(m.most, std::abs(v));
  }
  const auto n = static_cast<double>(values.size());
  m.mean = sum / n;
  m.deviation = std::sqrt(square / n - m.mean * m.mean);
  return m;
}

TEST(Synthesize, KeepsActivationsOfUnitSize) {
  const Checkpoint& entry = **find_synthetic("qwen3-0.6b");
  const Moments down = moments(rows_of(entry, 3, 2, "blk.9.ffn_down.weight", 0, 256, 3072));
  EXPECT_NEAR(down.mean, 0, 1e-4);
  EXPECT_NEAR(down.deviation * std::sqrt(3072.0), 1, 0.01);
  EXPECT_LT(down.most * std::sqrt(3072.0), 3.6);
  const Moments norm = moments(rows_of(entry, 3, 2, "blk.9.ffn_norm.weight", 0, 1, 1024));
  EXPECT_NEAR(norm.mean, 1, 0.02);
  EXPECT_NEAR(norm.deviation, 0.1, 0.01);
}

// Few rows of the vocabulary are loud, all of them ordinary tokens, and the same ones in an untied
// head.
TEST(Synthesize, MakesTheArgMaxStandOut) {
  const Checkpoint& entry = **find_synthetic("tiny-untied");
  const auto embedding = rows_of(entry, 7, 2, "token_embd.weight", 0, 151936, 64);
  const auto head = rows_of(entry, 7, 2, "output.weight", 0, 151936, 64);
  EXPECT_NE(embedding, head);
  const auto loud = [](const std::vector<std::uint16_t>& rows, std::size_t row) {
    double square = 0;
    for (std::size_t i = 0; i < 64; ++i) square += std::pow(bf16_to_f32(rows[row * 64 + i]), 2);
    return square > 9;  // 1 for an ordinary row, 36 for a loud one
  };
  int n_loud = 0;
  for (std::size_t row = 0; row < 151936; ++row) {
    if (!loud(embedding, row)) continue;
    ++n_loud;
    EXPECT_LT(row, 151643u);
    EXPECT_TRUE(loud(head, row)) << row;
  }
  EXPECT_NEAR(n_loud, 151643 / 512, 60);
}

TEST(Synthesize, ListsTheShapesThereAre) {
  EXPECT_EQ((*find_synthetic("qwen3-32b"))->id, "synthetic-qwen3-32b");
  EXPECT_EQ((*find_synthetic("tiny-tied"))->repository, "synthetic/tiny-tied");
  const auto unknown = find_synthetic("qwen3-0.5b");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::invalid);
  EXPECT_THAT(unknown.error().message, HasSubstr("tiny-tied, tiny-untied; found \"qwen3-0.5b\""));
}

TEST(Synthesize, NeverWritesUnderARealName) {
  const auto path = test::scratch_dir() / "fake.gguf";
  const auto done = synthesize(path.string(), **find_checkpoint("qwen3-0.6b"), 7, Scheme::bf16, {});
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("expected a synthetic shape, found qwen3-0.6b"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace kipp
