// One pass: a part of the row is read once, and again while it is in the nearest cache. Plain loops
// that the compiler turns into vectors of each target; the arithmetic, and so every bit, is the
// same on all of them. A row takes 0.08 ms of a Zen 4 core with AVX-512, with its 5 best 0.09 ms
// (build/engine_step_bench). The 1,000 rows of a prompt so cost 2 to 3 % of the 3.4 s in which a
// Q8_0 twin of qwen3-0.6b reads it on two such cores; the head takes 1.5 s more for them.
#include "engine/logprobs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "model/config.h"

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/logprobs.cc"
#include <hwy/foreach_target.h>
// After it, so that the file is read once per target.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kipp::HWY_NAMESPACE {
namespace {

// What is added up or compared side by side.
constexpr std::size_t kLanes = 128;

// Orders as the number does, and what is none below all: comparisons of floats would keep compilers
// from vectorizing.
inline std::int32_t order_of(float value) {
  constexpr std::int32_t kInfinity = 0x7f800000;
  const auto bits = std::bit_cast<std::int32_t>(value);
  const std::int32_t order = bits ^ ((bits >> 31) & 0x7fffffff);
  return order > kInfinity ? std::numeric_limits<std::int32_t>::min() : order;
}

inline float number_of(std::int32_t order) {
  return std::bit_cast<float>(order ^ ((order >> 31) & 0x7fffffff));
}

// -inf where there is no number.
float greatest_of(const float* part, std::size_t n) {
  std::array<std::int32_t, kLanes> lanes;
  lanes.fill(order_of(-std::numeric_limits<float>::infinity()));
  for (std::size_t at = 0; at < n; at += kLanes) {
    const std::size_t count = std::min(kLanes, n - at);
    for (std::size_t lane = 0; lane < count; ++lane) {
      lanes[lane] = std::max(lanes[lane], order_of(part[at + lane]));
    }
  }
  return number_of(*std::max_element(lanes.begin(), lanes.end()));
}

// 2^x of x <= 0, within 2e-7 of it. What is below -120, or not a number, counts as -120: beside the
// greatest logit, which adds 1, that is nothing.
inline float power_of_two(float x) {
  // By their bits greater numbers are greater and those that are none the greatest.
  const auto magnitude =
      std::min(std::bit_cast<std::int32_t>(x) & 0x7fffffff, std::bit_cast<std::int32_t>(120.0f));
  x = -std::bit_cast<float>(magnitude);
  constexpr float kRound = 0x1.8p23f;  // what is added to it becomes whole
  const float rounded = x + kRound;
  const float r = x - (rounded - kRound);  // at most a half
  // The series of 2^r: powers of ln 2 by factorials.
  float p = 1.54035304e-4f;
  p = p * r + 1.33335581e-3f;
  p = p * r + 9.61812911e-3f;
  p = p * r + 5.55041087e-2f;
  p = p * r + 2.40226507e-1f;
  p = p * r + 6.93147181e-1f;
  p = p * r + 1.0f;
  // The whole part stands in the lowest bits of `rounded`, and goes to where the exponent of p is.
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) +
                              (std::bit_cast<std::uint32_t>(rounded) << 23));
}

// Of exp(value - greatest). Few enough to a lane that a float loses nothing that counts.
double sum_of_exp(const float* part, std::size_t n, float greatest) {
  constexpr float kLog2e = 1.44269504f;
  std::array<float, kLanes> lanes = {};
  for (std::size_t at = 0; at < n; at += kLanes) {
    const std::size_t count = std::min(kLanes, n - at);
    for (std::size_t lane = 0; lane < count; ++lane) {
      lanes[lane] += power_of_two((part[at + lane] - greatest) * kLog2e);
    }
  }
  std::array<double, 8> sums = {};
  for (std::size_t lane = 0; lane < kLanes; lane += sums.size()) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(lanes[lane + i]);
  }
  double sum = 0;
  for (const double one : sums) sum += one;
  return sum;
}

}  // namespace
}  // namespace kipp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace kipp {
namespace {

HWY_EXPORT(greatest_of);
HWY_EXPORT(sum_of_exp);

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr std::size_t kPart = 1024;  // 4 KB

// The n greatest so far, best first, their logits in place of log-probabilities.
class Best {
 public:
  explicit Best(int n) : n_(static_cast<std::size_t>(std::max(n, 0))) { found_.reserve(n_ + 1); }

  // Whether a value would be among them.
  bool wants(float value) const { return n_ > 0 && value > floor_; }
  void look_at(std::span<const float> part, std::size_t first) {
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (!wants(part[i])) continue;
      // Ids ascend, so of equals the one that is there stays before.
      const auto at =
          std::ranges::upper_bound(found_, part[i], std::greater{}, &TokenLogprob::logprob);
      found_.insert(at, {static_cast<Token>(first + i), part[i]});
      if (found_.size() > n_) found_.pop_back();
      if (found_.size() == n_) floor_ = found_.back().logprob;
    }
  }
  std::vector<TokenLogprob> take() { return std::move(found_); }

 private:
  std::size_t n_;
  float floor_ = kNever;
  std::vector<TokenLogprob> found_;
};

}  // namespace

Logprobs logprobs_of(std::span<const float> logits, Token chosen, int n) {
  const auto row = logits.first(static_cast<std::size_t>(kNamedTokens));
  Best best(n);
  float greatest = kNever;
  double sum = 0;  // of exp(value - greatest)
  for (std::size_t at = 0; at < row.size(); at += kPart) {
    const auto part = row.subspan(at, std::min(kPart, row.size() - at));
    const float here = HWY_DYNAMIC_DISPATCH(greatest_of)(part.data(), part.size());
    if (here > greatest) {
      sum *= std::exp(static_cast<double>(greatest) - static_cast<double>(here));
      greatest = here;
    }
    sum += HWY_DYNAMIC_DISPATCH(sum_of_exp)(part.data(), part.size(), greatest);
    if (best.wants(here)) best.look_at(part, at);
  }
  // Nothing is greater than -inf: then all are that or no numbers.
  const double log_sum =
      std::isfinite(greatest) ? static_cast<double>(greatest) + std::log(sum) : greatest;

  const float value = row[static_cast<std::size_t>(chosen)];
  const auto logprob = [log_sum](float logit) {
    return static_cast<float>(static_cast<double>(logit) - log_sum);
  };
  Logprobs out{.chosen = {chosen, logprob(std::isnan(value) ? kNever : value)},
               .best = best.take()};
  for (TokenLogprob& one : out.best) one.logprob = logprob(one.logprob);
  return out;
}

}  // namespace kipp

#endif  // HWY_ONCE
