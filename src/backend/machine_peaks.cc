#include "backend/machine_peaks.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "base/huge_buffer.h"

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/machine_peaks.cc"
#include <hwy/foreach_target.h>
// After it, so that the file is read once per target.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kipp::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Enough chains to hide a latency of four cycles at two a cycle, and to fit 16 registers.
constexpr std::size_t kChains = 12;

// Sums `count` words, which is a multiple of eight vectors of the widest target.
std::uint64_t sum_words(const std::uint64_t* words, std::size_t count) {
  using D = hn::CappedTag<std::uint64_t, 8>;
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  hn::Vec<D> sums[8];
  for (auto& sum : sums) sum = hn::Zero(D());
  for (std::size_t i = 0; i < count; i += 8 * kLanes) {
    for (std::size_t k = 0; k < 8; ++k) sums[k] = sums[k] + hn::Load(D(), words + i + k * kLanes);
  }
  for (std::size_t k = 1; k < 8; ++k) sums[0] = sums[0] + sums[k];
  return hn::GetLane(sums[0]);
}

// Returns the operations done.
double multiply_add(int rounds, float* sink) {
  using D = hn::CappedTag<float, 16>;
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  hn::Vec<D> sums[kChains];
  for (std::size_t k = 0; k < kChains; ++k) sums[k] = hn::Set(D(), static_cast<float>(k));
  const auto factor = hn::Set(D(), 0.5f);
  const auto term = hn::Set(D(), 1.0f);
  for (int i = 0; i < rounds; ++i) {
    for (std::size_t k = 0; k < kChains; ++k) sums[k] = hn::MulAdd(sums[k], factor, term);
  }
  for (std::size_t k = 1; k < kChains; ++k) sums[0] = sums[0] + sums[k];
  *sink = hn::GetLane(sums[0]);
  return 2.0 * static_cast<double>(rounds) * static_cast<double>(kChains * kLanes);
}

}  // namespace
}  // namespace kipp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kipp {

HWY_EXPORT(sum_words);
HWY_EXPORT(multiply_add);

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

Result<double> measure_read_bandwidth(ThreadPool& pool, std::size_t bytes, int passes) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  const auto pieces = static_cast<int>(bytes / kPiece);
  KIPP_TRY_ASSIGN(buffer, HugeBuffer::create(static_cast<std::size_t>(pieces) * kPiece));
  std::byte* data = buffer.bytes().data();
  pool.parallel_for(pieces, [&](int begin, int end, int) {
    std::memset(data + static_cast<std::size_t>(begin) * kPiece, 1,
                static_cast<std::size_t>(end - begin) * kPiece);
  });
  double best = 0;
  std::atomic<std::uint64_t> sink = 0;  // what is not used would not be computed
  for (int pass = 0; pass < passes; ++pass) {
    const auto start = Clock::now();
    pool.parallel_for(pieces, [&](int begin, int end, int) {
      sink += HWY_DYNAMIC_DISPATCH(sum_words)(reinterpret_cast<const std::uint64_t*>(data) +
                                                  static_cast<std::size_t>(begin) * (kPiece / 8),
                                              static_cast<std::size_t>(end - begin) * (kPiece / 8));
    });
    best = std::max(best, static_cast<double>(buffer.bytes().size()) / seconds_since(start));
  }
  return best;
}

double measure_multiply_add(ThreadPool& pool, int passes) {
  constexpr int kRounds = 1'000'000;
  double best = 0;
  std::atomic<float> sink = 0;
  for (int pass = 0; pass < passes; ++pass) {
    std::atomic<double> operations = 0;
    const auto start = Clock::now();
    pool.parallel_for(pool.threads(), [&](int, int, int) {
      float result = 0;
      const double done = HWY_DYNAMIC_DISPATCH(multiply_add)(kRounds, &result);
      sink = result;
      operations.fetch_add(done);
    });
    best = std::max(best, operations / seconds_since(start));
  }
  return best;
}

}  // namespace kipp
#endif
