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
  for (const Pin& pin : {Pin{"tiny-tied", Scheme::bf16, "9e6594fcd3aee0cedf241b4bbb86d94b"},
                         Pin{"tiny-tied", Scheme::q8_0, "68b8a5ea3e52077e863a4ae1dd76084f"},
                         Pin{"tiny-tied", Scheme::affine4_gs32, "94cd56f363fdd1173732d0c23367b616"},
                         Pin{"tiny-tied", Scheme::scale4_gs32, "c56a740196dc3e80aa6a9a08046b3ee1"},
                         Pin{"tiny-untied", Scheme::bf16, "45898979f7adf710cfebe9e1fcc9d1ff"}}) {
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
  const Moments up = moments(rows_of(entry, 3, 2, "blk.9.ffn_up.weight", 0, 768, 1024));
  EXPECT_NEAR(up.mean, 0, 1e-4);
  EXPECT_NEAR(up.deviation * std::sqrt(1024.0), 1, 0.01);
  EXPECT_LT(up.most * std::sqrt(1024.0), 3.6);
  // 28 layers write into the residual stream twice; together they are half of a loud embedding,
  // whose elements have the size 6 / sqrt(1024).
  const Moments down = moments(rows_of(entry, 3, 2, "blk.9.ffn_down.weight", 0, 256, 3072));
  EXPECT_NEAR(down.deviation * std::sqrt(3072.0) * std::sqrt(56.0), 3 / std::sqrt(1024.0), 1e-3);
  const Moments norm = moments(rows_of(entry, 3, 2, "blk.9.ffn_norm.weight", 0, 1, 1024));
  EXPECT_NEAR(norm.mean, 1, 0.02);
  EXPECT_NEAR(norm.deviation, 0.1, 0.01);
}

// Few rows of the vocabulary are loud, all of them ordinary tokens, and the same ones in an untied
// head, where each answers to the embedding of the loud row before it.
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
  const auto row_of = [](const std::vector<std::uint16_t>& rows, std::size_t row) {
    return std::vector<std::uint16_t>(rows.begin() + static_cast<std::ptrdiff_t>(row * 64),
                                      rows.begin() + static_cast<std::ptrdiff_t>(row * 64 + 64));
  };
  std::vector<std::size_t> loud_rows;
  for (std::size_t row = 0; row < 151936; ++row) {
    EXPECT_EQ(loud(head, row), loud(embedding, row)) << row;
    if (loud(embedding, row)) loud_rows.push_back(row);
  }
  EXPECT_NEAR(static_cast<double>(loud_rows.size()), 151643.0 / 512, 60);
  EXPECT_LT(loud_rows.back(), 151643u);
  for (std::size_t i = 0; i < loud_rows.size(); ++i) {
    const std::size_t before = loud_rows[i == 0 ? loud_rows.size() - 1 : i - 1];
    EXPECT_EQ(row_of(head, loud_rows[i]), row_of(embedding, before));
  }
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
