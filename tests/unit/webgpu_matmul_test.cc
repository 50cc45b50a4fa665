// Products of the webgpu backend, on whatever adapter there is: against sums in double, and the
// promise that a row's bits do not depend on the other rows of a step.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "backend/webgpu/device_weights.h"
#include "backend/webgpu/kernels.h"
#include "support/stored_weights.h"

namespace kipp::webgpu {
namespace {

using test::index_of;
using test::normal_floats;
using test::StoredWeights;

constexpr Scheme kSchemes[] = {Scheme::bf16, Scheme::q8_0, Scheme::affine4_gs32,
                               Scheme::scale4_gs32};
constexpr int kMostRows = 72;

gpu::Device& device() {
  static const std::unique_ptr<gpu::Device> opened = [] {
    auto made = gpu::Device::open({});
    if (!made) throw std::runtime_error(made.error().message);
    return *std::move(made);
  }();
  return *opened;
}

Kernels& kernels() {
  static Kernels all = [] {
    auto made = Kernels::create(device());
    if (!made) throw std::runtime_error(made.error().message);
    return *std::move(made);
  }();
  return all;
}

template <class T, class E>
T value(tl::expected<T, E> result) {
  if (!result) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

// A matrix on the device, by way of weights that have no other: it is the embedding and the head.
struct Uploaded {
  StoredWeights stored;
  std::vector<float> norm = std::vector<float>(8, 1.0f);
  DeviceWeights weights;

  Uploaded(Scheme scheme, int outs, int cols) : stored(scheme, outs, cols), weights(upload()) {}

  DeviceWeights upload() {
    Qwen3Weights<StackedMatrix> from;
    from.embed = stored.view;
    from.lm_head = {.parts = {stored.view, {}, {}}, .n_parts = 1};
    from.final_norm = norm;
    const auto pool = ThreadPool::create(1).value();
    auto made = DeviceWeights::upload(device(), from, *pool, {});
    if (!made) throw std::runtime_error(made.error().message);
    return *std::move(made);
  }
};

// The product of `in` [rows, cols] on the device, in one dispatch.
std::vector<float> multiply(const Uploaded& w, const std::vector<float>& in, bool add = false) {
  const DeviceMatrix& m = w.weights.embedding();
  const auto rows = static_cast<int>(in.size()) / m.cols;
  MatmulCut cut = {.kernel = nullptr, .outs = 8, .rows = 1};
  if (rows == 1) {
    cut.kernel = value(kernels().matmul_row(m.scheme, m.cols, RowInput::plain));
  } else {
    cut = value(kernels().matmul(m.scheme, m.rows, m.cols, rows));
  }
  const auto words = [](int a, int b) { return index_of(a, b, 0) * sizeof(float); };
  const gpu::Buffer x = value(device().create_buffer(words(kMostRows, m.cols), "inputs"));
  const gpu::Buffer y = value(device().create_buffer(words(kMostRows, m.rows), "outputs"));
  const gpu::Buffer step = value(device().create_uniform(16, "step"));
  const gpu::Buffer shape = value(device().create_uniform(32, "shape"));
  const auto word = [](int n) { return static_cast<std::uint32_t>(n); };
  const std::array<std::uint32_t, 4> step_words = {word(rows), 0, 0, 0};
  const std::array<std::uint32_t, 8> shape_words = {word(m.rows), word(m.cols), add ? 1u : 0u};
  device().write(step, 0, std::as_bytes(std::span(step_words)));
  device().write(shape, 0, std::as_bytes(std::span(shape_words)));
  device().write(x, 0, std::as_bytes(std::span(in)));
  const std::vector<float> unwritten(index_of(kMostRows, m.rows, 0), add ? 1.0f : NAN);
  device().write(y, 0, std::as_bytes(std::span(unwritten)));
  const std::array<gpu::Binding, 7> bindings = {
      {{&step}, {&shape}, {&m.codes}, {m.scales ? &m.scales : &m.codes}, {&x}, {&y}, {&x}}};
  const gpu::Arguments arguments = value(device().bind(*cut.kernel, bindings));
  gpu::Recorder recorder = device().record();
  recorder.dispatch(*cut.kernel, arguments, word((m.rows + cut.outs - 1) / cut.outs),
                    word((rows + cut.rows - 1) / cut.rows));
  std::vector<float> out(unwritten.size());
  value(
      device().submit_and_read(std::move(recorder), y, 0, std::as_writable_bytes(std::span(out))));
  for (std::size_t i = index_of(rows, m.rows, 0); i < out.size(); ++i) {
    EXPECT_EQ(std::isnan(out[i]), !add) << "written beyond the step's rows";
    if (testing::Test::HasFailure()) break;
  }
  out.resize(index_of(rows, m.rows, 0));
  return out;
}

std::vector<float> inputs(int rows, int cols) {
  std::vector<float> values = normal_floats(9, index_of(rows, cols, 0));
  for (std::size_t i = 50; i < values.size(); i += 97) values[i] *= 40;  // as transformers have
  return values;
}

// Rows on both sides of every cut; columns that leave half a chunk of 64, and rounds of them.
TEST(WebgpuMatmul, IsTheProductInDoubles) {
  for (const Scheme scheme : kSchemes) {
    for (const auto& [outs, cols] : {std::pair{72, 96}, {200, 320}, {8, 2304}}) {
      const Uploaded w(scheme, outs, cols);
      for (const int rows : {1, 3, 8, 9, 33, 70}) {
        if (cols != 320 && (rows == 3 || rows == 33 || rows == 70)) continue;
        SCOPED_TRACE(testing::Message() << "scheme " << static_cast<int>(scheme) << ", " << rows
                                        << " rows of " << cols);
        const std::vector<float> in = inputs(rows, cols);
        const std::vector<float> out = multiply(w, in);
        for (int r = 0; r < rows; ++r) {
          for (int o = 0; o < outs; ++o) {
            double sum = 0, magnitude = 0;
            for (int c = 0; c < cols; ++c) {
              const double product = static_cast<double>(in[index_of(r, cols, c)]) *
                                     static_cast<double>(w.stored.decoded[index_of(o, cols, c)]);
              sum += product;
              magnitude += std::abs(product);
            }
            ASSERT_NEAR(out[index_of(r, outs, o)], sum, 2e-6 * magnitude)
                << "row " << r << ", output " << o;
          }
        }
      }
    }
  }
}

TEST(WebgpuMatmul, ARowHasTheSameBitsInAnyStep) {
  for (const Scheme scheme : kSchemes) {
    constexpr int kCols = 224, kOuts = 136;
    const Uploaded w(scheme, kOuts, kCols);
    const std::vector<float> in = inputs(70, kCols);
    const std::vector<float> all = multiply(w, in);
    for (const auto& [first, rows] :
         {std::pair{0, 1}, {69, 1}, {3, 2}, {40, 4}, {17, 8}, {5, 13}, {30, 40}}) {
      const auto begin = in.begin() + static_cast<std::ptrdiff_t>(index_of(first, kCols, 0));
      const std::vector<float> some =
          multiply(w, {begin, begin + static_cast<std::ptrdiff_t>(index_of(rows, kCols, 0))});
      ASSERT_TRUE(
          std::ranges::equal(some, std::span(all).subspan(index_of(first, kOuts, 0), some.size())))
          << "scheme " << static_cast<int>(scheme) << ", rows " << first << " + " << rows;
    }
  }
}

TEST(WebgpuMatmul, AddsToWhatIsThere) {
  const Uploaded w(Scheme::q8_0, 16, 64);
  const std::vector<float> in = inputs(3, 64);
  const std::vector<float> set = multiply(w, in);
  const std::vector<float> added = multiply(w, in, true);
  for (std::size_t i = 0; i < set.size(); ++i) ASSERT_EQ(added[i], set[i] + 1.0f);
}

}  // namespace
}  // namespace kipp::webgpu
