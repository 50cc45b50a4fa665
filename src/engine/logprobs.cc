// One pass: a part of the row is read once, and again while it is in the nearest cache. Written in
// lanes that compilers vectorize without changing a bit. A row takes 0.15 to 0.2 ms of a Zen 4 core
// beside other work, with 5 best 0.01 ms more (build/engine_step_bench): 2 to 3 % of what a token
// of a scored prompt takes a qwen3-0.6b twin on two such cores.
#include "engine/logprobs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "model/config.h"

namespace kipp {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr std::size_t kLanes = 16;
constexpr std::size_t kStrip = 8 * kLanes;  // so few additions in a float lose nothing that counts
constexpr std::size_t kPart = 8 * kStrip;   // 4 KB

// 2^x of x <= 0, within 2e-7 of it. What is below -120, or not a number, counts as -120: beside the
// greatest logit, which adds 1, that is nothing.
inline float power_of_two(float x) {
  // By their bits greater numbers are greater and those that are none the greatest; a comparison of
  // floats would keep compilers from vectorizing.
  const auto magnitude =
      std::min(std::bit_cast<std::int32_t>(x) & 0x7fffffff, std::bit_cast<std::int32_t>(120.0f));
  x = -std::bit_cast<float>(magnitude);
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: what is added to it becomes whole
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

inline float exp_of(float x) {
  constexpr float kLog2e = 1.44269504f;
  return power_of_two(x * kLog2e);
}

float greatest_of(std::span<const float> part) {
  std::array<float, kLanes> lanes;
  lanes.fill(kNever);
  std::size_t i = 0;
  for (; i + kLanes <= part.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = part[i + lane] > lanes[lane] ? part[i + lane] : lanes[lane];
    }
  }
  for (; i < part.size(); ++i) lanes[0] = part[i] > lanes[0] ? part[i] : lanes[0];
  return *std::ranges::max_element(lanes);
}

// Of exp(value - greatest).
double sum_of_exp(std::span<const float> part, float greatest) {
  std::array<double, kLanes> sums = {};
  std::size_t i = 0;
  for (; i + kStrip <= part.size(); i += kStrip) {
    const auto strip = part.subspan(i).first<kStrip>();
    std::array<float, kStrip> powers;
    for (std::size_t j = 0; j < kStrip; ++j) powers[j] = exp_of(strip[j] - greatest);
    for (std::size_t n = kStrip / 2; n >= kLanes; n /= 2) {
      for (std::size_t j = 0; j < n; ++j) powers[j] += powers[j + n];
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += static_cast<double>(powers[lane]);
    }
  }
  double sum = 0;
  for (; i < part.size(); ++i) sum += static_cast<double>(exp_of(part[i] - greatest));
  for (const double lane : sums) sum += lane;
  return sum;
}

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
    const float here = greatest_of(part);
    if (here > greatest) {
      sum *= std::exp(static_cast<double>(greatest) - static_cast<double>(here));
      greatest = here;
    }
    sum += sum_of_exp(part, greatest);
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
