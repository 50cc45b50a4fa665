#include "backend/cpu/matmul.h"

#include <gmock/gmock.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "backend/reference/reference_math.h"
#include "base/float16.h"
#include "base/rng.h"
#include "convert/quantize.h"

namespace kipp::cpu {
namespace {

constexpr Scheme kSchemes[] = {Scheme::bf16, Scheme::q8_0, Scheme::affine4_gs32,
                               Scheme::scale4_gs32};

// Roughly normal values; every 97th is large, as activations of a transformer are.
std::vector<float> random_values(std::uint64_t seed, int n, float scale) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) {
    double sum = -2.0;
    for (std::uint64_t k = 0; k < 4; ++k) sum += draw_uniform(seed, 4 * i + k);
    values[i] = static_cast<float>(sum) * scale * (i % 97 == 96 ? 50.0f : 1.0f);
  }
  return values;
}

// Matrices of one stack as an artifact holds them.
class Stack {
 public:
  Stack(Scheme scheme, std::vector<int> part_rows, int cols) {
    bytes_.resize(part_rows.size());
    stack_.n_parts = static_cast<int>(part_rows.size());
    for (std::size_t p = 0; p < part_rows.size(); ++p) {
      const std::size_t row_size = row_bytes(scheme, cols);
      bytes_[p].resize(row_size * static_cast<std::size_t>(part_rows[p]));
      for (int r = 0; r < part_rows[p]; ++r) {
        std::vector<std::uint16_t> row;
        for (const float v : random_values(1000 * p + static_cast<std::uint64_t>(r), cols, 0.05f)) {
          row.push_back(f32_to_bf16(v));
        }
        const auto out =
            std::span(bytes_[p]).subspan(row_size * static_cast<std::size_t>(r), row_size);
        if (scheme == Scheme::bf16) {
          std::memcpy(out.data(), row.data(), row_size);
        } else if (!encode_row(scheme, row, out)) {
          ADD_FAILURE() << "row " << r << " was not encoded";
        }
      }
      stack_.parts[p] = {bytes_[p].data(), scheme, part_rows[p], cols};
    }
  }

  const StackedMatrix& view() const { return stack_; }

  // [rows * cols], as the artifact defines them.
  std::vector<float> decoded() const {
    std::vector<float> values;
    std::vector<float> row(static_cast<std::size_t>(stack_.cols()));
    for (const MatrixView& part : stack_.views()) {
      for (int r = 0; r < part.rows; ++r) {
        reference::decode_row(part, r, row);
        values.insert(values.end(), row.begin(), row.end());
      }
    }
    return values;
  }

 private:
  std::vector<std::vector<std::byte>> bytes_;
  StackedMatrix stack_;
};

// A stack ready for matmul, packed or mapped.
class Weights {
 public:
  Weights(const Stack& stack, bool packed) {
    const StackedMatrix& view = stack.view();
    matrix_ = {.scheme = view.parts[0].scheme, .rows = view.rows(), .cols = view.cols()};
    if (packed) {
      memory_ = HugeBuffer::create(packed_bytes(view)).value();
      std::memset(memory_.bytes().data(), 0xee, memory_.bytes().size());
      const int panels = panels_of(view.rows());
      pack_panels(view, 0, panels / 2, memory_.bytes());
      pack_panels(view, panels / 2, panels, memory_.bytes());
      matrix_.panels = memory_.bytes().data();
    } else {
      matrix_.mapped = view;
    }
  }
  const PackedMatrix& get() const { return matrix_; }

 private:
  HugeBuffer memory_;
  PackedMatrix matrix_;
};

class Multiplier {
 public:
  explicit Multiplier(int threads, int max_tokens = 513, int max_cols = 3072)
      : pool_(ThreadPool::create(threads).value()),
        scratch_(MatmulScratch::create(threads, max_tokens, max_cols).value()) {}

  // y is [tokens * rows]; x is [tokens * cols]. What lies behind y must stay untouched.
  void run(const Weights& w, std::vector<float>& x, int tokens, std::vector<float>& y,
           Write write) const {
    const auto used = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(w.get().rows);
    constexpr std::size_t kGuard = 64;
    constexpr float kMark = 12345.0f;
    y.resize(used + kGuard);
    std::fill(y.begin() + static_cast<std::ptrdiff_t>(used), y.end(), kMark);
    matmul(*pool_, scratch_, {y.data(), tokens, w.get().rows}, {x.data(), tokens, w.get().cols},
           w.get(), write);
    for (std::size_t i = used; i < y.size(); ++i) EXPECT_EQ(y[i], kMark) << "behind the result";
    y.resize(used);
  }
  std::vector<float> product(const Weights& w, std::vector<float>& x, int tokens) const {
    std::vector<float> y(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(w.get().rows),
                         std::numeric_limits<float>::quiet_NaN());
    run(w, x, tokens, y, Write::set);
    return y;
  }

 private:
  std::unique_ptr<ThreadPool> pool_;
  MatmulScratch scratch_;
};

// The largest magnitude of every kQuantBlock values.
std::vector<double> block_maxima(std::span<const float> values) {
  std::vector<double> maxima(values.size() / kQuantBlock);
  for (std::size_t i = 0; i < values.size(); ++i) {
    double& largest = maxima[i / kQuantBlock];
    largest = std::max(largest, std::abs(static_cast<double>(values[i])));
  }
  return maxima;
}

// The largest error a sum may have, for products of `tokens` rows of x. bf16: one rounding of at
// most half an epsilon per column. Quantized: inputs are off by half a step, which is at most the
// block's largest magnitude times 2^-15; then two or three roundings per block of 32 columns. Where
// a target has no fused multiply-add, every product is rounded too.
void expect_close(const Stack& stack, const std::vector<float>& x, int tokens,
                  const std::vector<float>& y, bool fused = true) {
  const StackedMatrix& view = stack.view();
  const Scheme scheme = view.parts[0].scheme;
  const auto rows = static_cast<std::size_t>(view.rows());
  const auto cols = static_cast<std::size_t>(view.cols());
  const std::vector<float> w = stack.decoded();
  const std::vector<double> largest_weights = block_maxima(w);
  const double steps = scheme == Scheme::bf16 ? view.cols() : 3.0 * view.cols() / kQuantBlock;
  const double roundings = (fused ? 1 : 2) * (steps + 2) * 0x1p-24;
  const double input_error = scheme == Scheme::bf16 ? 0 : 0x1.001p-15;
  double error_energy = 0;
  double energy = 0;
  for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) {
    const std::vector<double> largest = block_maxima(std::span(x).subspan(t * cols, cols));
    for (std::size_t r = 0; r < rows; ++r) {
      double sum = 0;
      double bound = 0;
      for (std::size_t c = 0; c < cols; ++c) {
        const double weight = static_cast<double>(w[r * cols + c]);
        const double block = largest[c / kQuantBlock];
        sum += weight * static_cast<double>(x[t * cols + c]);
        // An offset or a bias is added with the magnitude of the block's largest weight; four
        // times that covers what is added before it cancels.
        bound += std::abs(weight) * block * input_error;
        bound += 4 * largest_weights[(r * cols + c) / kQuantBlock] * block * roundings;
      }
      const double error = static_cast<double>(y[t * rows + r]) - sum;
      ASSERT_LE(std::abs(error), bound) << to_string(scheme) << " token " << t << " row " << r
                                        << ": " << y[t * rows + r] << " instead of " << sum;
      error_energy += error * error;
      energy += sum * sum;
    }
  }
  // A mean needs outputs to be taken over.
  if (rows * static_cast<std::size_t>(tokens) >= 256) {
    EXPECT_LE(error_energy / energy, scheme == Scheme::bf16 ? 1e-12 : 1e-8) << to_string(scheme);
  }
}

std::string bits_differ(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return "sizes differ";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) {
      return fmt::format("element {}: {:a} and {:a}", i, a[i], b[i]);
    }
  }
  return "";
}

class CpuMatmul : public testing::TestWithParam<Scheme> {};
INSTANTIATE_TEST_SUITE_P(Schemes, CpuMatmul, testing::ValuesIn(kSchemes),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST_P(CpuMatmul, ProductsAreCloseToDoublePrecision) {
  const Multiplier multiplier(2);
  for (const int cols : {32, 320, 1024, 3072}) {
    const Stack stack(GetParam(), {64, 128}, cols);
    const Weights weights(stack, true);
    for (const int tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 64}) {
      auto x = random_values(7, tokens * cols, 1.0f);
      expect_close(stack, x, tokens, multiplier.product(weights, x, tokens));
    }
  }
  const Stack stack(GetParam(), {64}, 1024);
  auto x = random_values(8, 513 * 1024, 1.0f);
  expect_close(stack, x, 513, multiplier.product(Weights(stack, true), x, 513));
}

TEST_P(CpuMatmul, TheSameBitsHoweverTokensAreSplit) {
  const Stack stack(GetParam(), {64, 64, 128}, 1024);
  const Weights weights(stack, true);
  const Multiplier multiplier(2);
  constexpr int kTokens = 209;
  auto x = random_values(3, kTokens * 1024, 1.0f);
  const auto whole = multiplier.product(weights, x, kTokens);
  for (const int chunk : {1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 32, 96, 97, 128}) {
    std::vector<float> y;
    for (int t = 0; t < kTokens; t += chunk) {
      const int n = std::min(chunk, kTokens - t);
      std::vector<float> part(x.begin() + t * 1024, x.begin() + (t + n) * 1024);
      const auto some = multiplier.product(weights, part, n);
      y.insert(y.end(), some.begin(), some.end());
    }
    EXPECT_EQ(bits_differ(whole, y), "") << "chunk of " << chunk;
  }
}

TEST_P(CpuMatmul, TheSameBitsOnAnyNumberOfThreadsPackedOrMapped) {
  const Stack stack(GetParam(), {320, 64}, 320);
  const Weights packed(stack, true);
  const Weights mapped(stack, false);
  for (const int tokens : {1, 5, 8, 100}) {
    auto x = random_values(4, tokens * 320, 1.0f);
    const auto expected = Multiplier(1).product(packed, x, tokens);
    for (const int threads : {1, 2, 3, 16}) {
      const Multiplier multiplier(threads);
      EXPECT_EQ(bits_differ(expected, multiplier.product(packed, x, tokens)), "")
          << threads << " threads, packed, " << tokens << " tokens";
      EXPECT_EQ(bits_differ(expected, multiplier.product(mapped, x, tokens)), "")
          << threads << " threads, mapped, " << tokens << " tokens";
    }
  }
}

// With an input of one 1 among zeros an output is a weight: packing loses and moves nothing.
TEST_P(CpuMatmul, UnitInputsGiveBackTheWeights) {
  constexpr int kCols = 96;
  const Stack stack(GetParam(), {64, 192}, kCols);
  const std::vector<float> expected = stack.decoded();
  std::vector<float> x(kCols * kCols);
  for (std::size_t c = 0; c < kCols; ++c) x[c * kCols + c] = 1.0f;
  for (const bool packed : {true, false}) {
    const auto y = Multiplier(2).product(Weights(stack, packed), x, kCols);
    for (std::size_t r = 0; r < 256; ++r) {
      for (std::size_t c = 0; c < kCols; ++c) {
        ASSERT_EQ(y[c * 256 + r], expected[r * kCols + c]) << "row " << r << " column " << c;
      }
    }
  }
}

TEST_P(CpuMatmul, AddPutsTheProductOnTop) {
  const Stack stack(GetParam(), {128}, 320);
  const Weights weights(stack, true);
  const Multiplier multiplier(2);
  for (const int tokens : {1, 7, 130}) {
    auto x = random_values(5, tokens * 320, 1.0f);
    auto y = random_values(6, tokens * 128, 3.0f);
    auto expected = multiplier.product(weights, x, tokens);
    for (std::size_t i = 0; i < y.size(); ++i) expected[i] = y[i] + expected[i];
    multiplier.run(weights, x, tokens, y, Write::add);
    EXPECT_EQ(bits_differ(expected, y), "") << tokens << " tokens";
  }
}

TEST_P(CpuMatmul, RowsNeedNotFillTheLastPanel) {
  for (const int rows : {1, 32, 96, 200}) {
    const Stack stack(GetParam(), {rows}, 64);
    for (const bool packed : {true, false}) {
      const Multiplier multiplier(2);
      for (const int tokens : {1, 9}) {
        auto x = random_values(9, tokens * 64, 1.0f);
        expect_close(stack, x, tokens, multiplier.product(Weights(stack, packed), x, tokens));
      }
    }
  }
}

TEST_P(CpuMatmul, NoTokensNoWork) {
  const Stack stack(GetParam(), {64}, 32);
  std::vector<float> x;
  EXPECT_TRUE(Multiplier(2).product(Weights(stack, true), x, 0).empty());
}

// Inputs so small that powers of two of them underflow, and infinite ones, take the same way
// through every kernel.
TEST_P(CpuMatmul, ExtremeInputsAreTheSameInAnyBatch) {
  const Stack stack(GetParam(), {64}, 320);
  const Weights weights(stack, true);
  const Multiplier multiplier(2);
  constexpr int kTokens = 6;
  auto x = random_values(10, kTokens * 320, 1e-38f);
  for (std::size_t i = 0; i < 320; ++i) x[320 + i] = i % 2 == 0 ? 0x1p-149f : -0.0f;
  x[2 * 320 + 5] = std::numeric_limits<float>::infinity();
  const auto whole = multiplier.product(weights, x, kTokens);
  for (int t = 0; t < kTokens; ++t) {
    std::vector<float> one(x.begin() + t * 320, x.begin() + (t + 1) * 320);
    const std::vector<float> row(whole.begin() + t * 64, whole.begin() + (t + 1) * 64);
    EXPECT_EQ(bits_differ(row, multiplier.product(weights, one, 1)), "") << "token " << t;
  }
}

// Every CPU target that this machine can run.
TEST_P(CpuMatmul, TargetsAgree) {
  constexpr std::int64_t kFused = HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL | HWY_NEON;
  const Stack stack(GetParam(), {64, 64}, 1024);
  const Weights weights(stack, true);
  const Multiplier multiplier(2);
  for (const int tokens : {1, 2, 3, 4, 5, 6, 7, 13, 100}) {
    auto x = random_values(11, tokens * 1024, 1.0f);
    std::vector<float> fused;
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      const auto y = multiplier.product(weights, x, tokens);
      hwy::SetSupportedTargetsForTest(0);
      expect_close(stack, x, tokens, y, (target & kFused) != 0);
      if ((target & kFused) == 0) continue;
      if (fused.empty()) fused = y;
      EXPECT_EQ(bits_differ(fused, y), "")
          << hwy::TargetName(target) << ", " << tokens << " tokens";
    }
  }
}

}  // namespace
}  // namespace kipp::cpu
