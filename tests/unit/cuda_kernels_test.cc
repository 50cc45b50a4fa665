// Every op that the CUDA backend enqueues, on the emulated build of its kernels, against plain
// loops in double; and the promise that a row's bits do not depend on the other rows of a step.
#include "backend/cuda/kernels.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "model/config.h"
#include "support/cuda_rows.h"

namespace kipp::cuda {
namespace {

using test::DescendingThreads;
using test::index_of;
using test::normal_floats;
using test::PackedWeights;
using test::SplitMatrix;

constexpr Scheme kSchemes[] = {Scheme::bf16, Scheme::q8_0, Scheme::affine4_gs32,
                               Scheme::scale4_gs32};
constexpr Stream kStream = nullptr;
const float kUnwritten = std::numeric_limits<float>::quiet_NaN();

std::vector<float> multiply(SplitMatrix in, const DeviceMatrix& w, int terms,
                            Write write = Write::set, std::vector<float> out = {}) {
  out.resize(index_of(in.rows, w.rows, 0), kUnwritten);
  std::vector<float> scratch(matmul_scratch_bytes(in.rows, w.rows) / sizeof(float), kUnwritten);
  const Scratch memory{scratch.data(), scratch.size() * sizeof(float)};
  EXPECT_EQ(matmul(kStream, {out.data(), in.rows, w.rows}, in.view(), w, write, terms, memory), 0);
  return out;
}

SplitMatrix inputs(int rows, int cols, std::uint64_t seed = 9) {
  std::vector<float> values = normal_floats(seed, index_of(rows, cols, 0));
  for (std::size_t i = 50; i < values.size(); i += 97) values[i] *= 40;  // as transformers have
  return {std::move(values), rows, cols};
}

// What rounding an input to its terms may cost of a product's magnitude: half a unit of the last of
// 8 or 16 bits, and the sum's own roundings.
constexpr double kOneTerm = 0x1p-8;
constexpr double kTwoTerms = 0x1p-17 + 1e-6;

// Every output within `relative` of the sum of its products' magnitudes.
void expect_product(const std::vector<float>& out, const SplitMatrix& in, const PackedWeights& w,
                    double relative, const std::vector<float>& before = {}) {
  for (int r = 0; r < in.rows; ++r) {
    for (int o = 0; o < w.matrix.rows; ++o) {
      double sum = 0;
      double magnitude = 0;
      for (int c = 0; c < in.cols; ++c) {
        const double product = static_cast<double>(in.values[index_of(r, in.cols, c)]) *
                               static_cast<double>(w.decoded[index_of(o, in.cols, c)]);
        sum += product;
        magnitude += std::abs(product);
      }
      const std::size_t at = index_of(r, w.matrix.rows, o);
      if (!before.empty()) sum += static_cast<double>(before[at]);
      ASSERT_NEAR(out[at], sum, relative * magnitude) << "row " << r << ", output " << o;
    }
  }
}

// Tokens on both sides of every kernel's and every tile's end; 3, 17 and 21 tiles of columns leave
// slices of one, of three with a short last, and empty ones; 73 more per slice than are in flight.
TEST(CudaMatmul, IsTheProductInDoubles) {
  for (const Scheme scheme : kSchemes) {
    for (const int cols : {96, 544, 672, 2336}) {
      const PackedWeights w(scheme, 41, cols);
      ASSERT_EQ(w.packed, 0);
      for (const int rows : {1, 3, 8, 9, 33, 70}) {
        if (cols != 96 && (rows == 3 || rows == 70)) continue;
        if (cols > 1000 && rows != 1 && rows != 9) continue;
        SCOPED_TRACE(testing::Message() << "scheme " << static_cast<int>(scheme) << ", " << rows
                                        << " rows of " << cols);
        const SplitMatrix in = inputs(rows, cols);
        expect_product(multiply(in, w.matrix, 2), in, w, kTwoTerms);
        expect_product(multiply(in, w.matrix, 1), in, w, kOneTerm);
      }
    }
  }
}

// A token alone, among 8, and in tiles of 32, 64 and 128, whole or with slices in several blocks.
TEST(CudaMatmul, ARowHasTheSameBitsAloneAndInAnyStep) {
  for (const Scheme scheme : kSchemes) {
    for (const int terms : {1, 2}) {
      const PackedWeights w(scheme, 150, 288);
      const SplitMatrix in = inputs(131, 288);
      const auto all = multiply(in, w.matrix, terms);
      for (const auto& [first, rows] :
           {std::pair{0, 1}, {77, 1}, {130, 1}, {70, 8}, {5, 9}, {60, 64}}) {
        const auto some = multiply(in.part(first, rows), w.matrix, terms);
        ASSERT_TRUE(
            std::ranges::equal(some, std::span(all).subspan(index_of(first, 150, 0), some.size())))
            << "scheme " << static_cast<int>(scheme) << ", terms " << terms << ", rows " << first
            << " + " << rows;
      }
    }
  }
}

// Enough outputs that blocks keep all slices, or some: the other ways to the same sum.
TEST(CudaMatmul, TheSumIsTheSameHoweverSlicesAreShared) {
  for (const auto& [scheme, outputs, cols] : {std::tuple{Scheme::bf16, 17000, 96},
                                              {Scheme::affine4_gs32, 17000, 64},
                                              {Scheme::affine4_gs32, 5000, 288}}) {
    const PackedWeights w(scheme, outputs, cols);
    const SplitMatrix in = inputs(9, cols);
    const auto all = multiply(in, w.matrix, 2);
    for (const int row : {0, 8}) {
      const auto alone = multiply(in.part(row, 1), w.matrix, 2);
      ASSERT_TRUE(std::ranges::equal(
          alone, std::span(all).subspan(index_of(row, outputs, 0), alone.size())))
          << outputs << " outputs, row " << row;
    }
  }
}

TEST(CudaMatmul, AddsToWhatIsThere) {
  const PackedWeights w(Scheme::q8_0, 40, 96);
  for (const int rows : {2, 20}) {
    const SplitMatrix in = inputs(rows, 96);
    const auto before = normal_floats(4, index_of(rows, 40, 0));
    expect_product(multiply(in, w.matrix, 2, Write::add, before), in, w, kTwoTerms, before);
  }
}

TEST(CudaMatmul, TheOrderOfThreadsDoesNotMatter) {
  const PackedWeights w(Scheme::scale4_gs32, 150, 288);
  for (const int rows : {5, 40}) {
    const SplitMatrix in = inputs(rows, 288);
    const auto ascending = multiply(in, w.matrix, 2);
    const DescendingThreads descending;
    EXPECT_EQ(multiply(in, w.matrix, 2), ascending) << rows << " rows";
  }
}

TEST(CudaMatmul, RefusesWhatDoesNotFit) {
  const PackedWeights w(Scheme::bf16, 32, 64);
  SplitMatrix in = inputs(20, 64);
  std::vector<float> out(index_of(20, 32, 0), kUnwritten);
  std::vector<float> memory(matmul_scratch_bytes(20, 32) / sizeof(float));
  const Scratch scratch{memory.data(), memory.size() * sizeof(float)};
  const auto code = [&](F32Rows to, SplitRows from, int terms, Scratch s) {
    return matmul(kStream, to, from, w.matrix, Write::set, terms, s);
  };
  EXPECT_NE(code({out.data(), 20, 31}, in.view(), 2, scratch), 0);
  EXPECT_NE(code({out.data(), 19, 32}, in.view(), 2, scratch), 0);
  EXPECT_NE(code({out.data(), 20, 32}, {in.data.data(), 20, 32}, 2, scratch), 0);
  EXPECT_NE(code({out.data(), 20, 32}, in.view(), 3, scratch), 0);
  EXPECT_NE(code({out.data(), 20, 32}, in.view(), 2, {memory.data(), scratch.bytes - 4}), 0);
  EXPECT_TRUE(std::ranges::all_of(out, [](float v) { return std::isnan(v); }));
  EXPECT_EQ(code({out.data(), 0, 32}, {in.data.data(), 0, 64}, 2, {}), 0);
}

TEST(CudaLayers, EmbedReadsRowsOfThePackedTable) {
  const PackedWeights table(Scheme::bf16, 50, 96);
  const std::vector<Token> tokens{0, 49, 7, 8, 17, 7};
  std::vector<float> out(index_of(6, 96, 0), kUnwritten);
  ASSERT_EQ(embed(kStream, {out.data(), 6, 96}, table.matrix, tokens.data()), 0);
  for (int r = 0; r < 6; ++r) {
    for (int c = 0; c < 96; ++c) {
      ASSERT_EQ(out[index_of(r, 96, c)],
                table.decoded[index_of(tokens[static_cast<std::size_t>(r)], 96, c)])
          << r << ", " << c;
    }
  }
}

TEST(CudaLayers, RmsNormIsThatOfDoublesAlsoInPlace) {
  for (const int cols : {4, 96, 1028, 5120}) {
    const int rows = 3;
    std::vector<float> in = normal_floats(1, index_of(rows, cols, 0), 3);
    for (int c = 0; c < cols; ++c) in[index_of(2, cols, c)] *= 1e-3f;  // where epsilon counts
    const std::vector<float> weight = normal_floats(2, static_cast<std::size_t>(cols));
    SplitMatrix out(rows, cols);
    ASSERT_EQ(rms_norm(kStream, out.view(), {in.data(), rows, cols}, weight.data()), 0);
    for (int r = 0; r < rows; ++r) {
      double squares = 0;
      for (int c = 0; c < cols; ++c)
        squares += std::pow(static_cast<double>(in[index_of(r, cols, c)]), 2);
      const double scale = 1 / std::sqrt(squares / cols + 1e-6);
      for (int c = 0; c < cols; ++c) {
        const double expected = static_cast<double>(in[index_of(r, cols, c)]) * scale *
                                static_cast<double>(weight[static_cast<std::size_t>(c)]);
        ASSERT_NEAR(out.joined(r, c), expected, 1e-5 * std::abs(expected)) << r << ", " << c;
      }
    }
    const DescendingThreads descending;
    const SplitRows same{reinterpret_cast<std::uint16_t*>(in.data()), rows, cols};
    ASSERT_EQ(rms_norm(kStream, same, {in.data(), rows, cols}, weight.data()), 0);
    EXPECT_EQ(std::memcmp(in.data(), out.data.data(), in.size() * sizeof(float)), 0) << cols;
  }
  std::vector<float> wide(8196);
  EXPECT_NE(rms_norm(kStream, {nullptr, 1, 8196}, {wide.data(), 1, 8196}, wide.data()), 0);
}

TEST(CudaLayers, SiluMulAndTakeRows) {
  const int rows = 3;
  const int cols = 1100;
  std::vector<float> in = normal_floats(5, index_of(rows, 2 * cols, 0), 4);
  in[0] = -200;  // exp overflows: silu is 0
  in[1] = 200;
  SplitMatrix out(rows, cols);
  ASSERT_EQ(silu_mul(kStream, out.view(), {in.data(), rows, 2 * cols}), 0);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      const auto gate = static_cast<double>(in[index_of(r, 2 * cols, c)]);
      const auto up = static_cast<double>(in[index_of(r, 2 * cols, cols + c)]);
      const double expected = gate / (1 + std::exp(-gate)) * up;
      ASSERT_NEAR(out.joined(r, c), expected, 1e-5 * std::abs(expected) + 1e-30) << r << ", " << c;
    }
  }
  const std::vector<int> chosen{2, 0};
  std::vector<float> taken(index_of(2, cols, 0), kUnwritten);
  ASSERT_EQ(take_rows(kStream, {taken.data(), 2, cols}, {in.data(), 6, cols}, chosen.data()), 0);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(std::ranges::equal(
        std::span(taken).subspan(i * 1100, 1100),
        std::span(in).subspan(static_cast<std::size_t>(chosen[i]) * 1100, 1100)));
  }
}

TEST(CudaSelect, ArgmaxIsTheFirstOfTheGreatest) {
  const int cols = 5000;
  std::vector<float> in = normal_floats(3, index_of(4, cols, 0));
  in[17] = in[4000] = 9;                   // row 0: the first of two
  in[index_of(1, cols, 4990)] = 50;        // row 1: past the limit
  in[index_of(1, cols, 33)] = kUnwritten;  // and one that is no number
  in[index_of(1, cols, 34)] = 8;
  for (int c = 0; c < cols; ++c)
    in[index_of(2, cols, c)] = -1e30f * static_cast<float>(5000 - c % 2500);
  for (int c = 0; c < cols; ++c) in[index_of(3, cols, c)] = -std::numeric_limits<float>::infinity();
  std::vector<int> best(4, -1);
  ASSERT_EQ(argmax(kStream, best.data(), {in.data(), 4, cols}, 4980), 0);
  EXPECT_THAT(best, testing::ElementsAre(17, 34, 2499, 0));
  EXPECT_NE(argmax(kStream, best.data(), {in.data(), 4, cols}, cols + 1), 0);
}

TEST(CudaSelect, TopKIsASortedPrefix) {
  const int cols = 3001;
  const int limit = 2950;
  std::vector<float> in = normal_floats(8, index_of(3, cols, 0));
  for (int c = 0; c < cols; ++c) {
    in[index_of(1, cols, c)] = static_cast<float>(c * 37 % 50);  // ties across every k
    in[index_of(2, cols, c)] = c % 90 == 3 ? 0.5f : -0.0f;
  }
  for (int c = 100; c < 130; ++c) in[index_of(0, cols, c)] = kUnwritten;
  for (const int k : {1, 5, 40, 64}) {
    std::vector<int> ids(index_of(3, k, 0), -1);
    std::vector<float> values(ids.size(), kUnwritten);
    ASSERT_EQ(top_k(kStream, ids.data(), values.data(), k, {in.data(), 3, cols}, limit), 0);
    for (int r = 0; r < 3; ++r) {
      std::vector<int> order(static_cast<std::size_t>(limit));
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, [&](int a, int b) {
        const float x = in[index_of(r, cols, a)];
        const float y = in[index_of(r, cols, b)];
        return std::isnan(y) ? !std::isnan(x) : x > y;
      });
      for (int i = 0; i < k; ++i) {
        ASSERT_EQ(ids[index_of(r, k, i)], order[static_cast<std::size_t>(i)])
            << "row " << r << ", place " << i << " of " << k;
        ASSERT_EQ(values[index_of(r, k, i)],
                  in[index_of(r, cols, order[static_cast<std::size_t>(i)])]);
      }
    }
  }
}

}  // namespace
}  // namespace kipp::cuda
