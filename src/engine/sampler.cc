#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "model/config.h"

namespace kipp {
namespace {

constexpr auto kTokens = static_cast<std::size_t>(kNamedTokens);
constexpr double kNever = -std::numeric_limits<double>::infinity();

struct Candidate {
  Token token = 0;
  double value = 0;  // an adjusted logit, later its weight
};

bool better(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.token < b.token);
}

// Kept between calls: a row of doubles is 1.2 MB, too much to allocate for every token.
struct Scratch {
  std::vector<double> values;   // [kTokens] adjusted logits
  std::vector<double> weights;  // [kTokens] where no filter thins the row out
  std::vector<Candidate> candidates;
};

Scratch& scratch() {
  thread_local Scratch mine;
  return mine;
}

bool named(Token id) { return id >= 0 && id < kNamedTokens; }

void load(std::span<const float> logits, std::vector<double>& values) {
  values.resize(kTokens);
  for (std::size_t i = 0; i < kTokens; ++i) {
    values[i] = std::isnan(logits[i]) ? kNever : static_cast<double>(logits[i]);
  }
}

std::span<const Token> penalty_window(const SampleContext& context) {
  const auto n = std::min<std::size_t>(context.generated.size(), kPenaltyWindow);
  return context.generated.last(n);
}

void penalize_repetition(double penalty, const SampleContext& context,
                         std::vector<double>& values) {
  std::vector<bool> seen(kTokens);
  const auto once = [&](Token id) {
    const auto i = static_cast<std::size_t>(id);
    if (!named(id) || seen[i]) return;
    seen[i] = true;
    values[i] = values[i] > 0 ? values[i] / penalty : values[i] * penalty;
  };
  for (const Token id : context.prompt) once(id);
  for (const Token id : penalty_window(context)) once(id);
}

void penalize_generated(const SamplingParams& params, const SampleContext& context,
                        std::vector<double>& values) {
  const auto window = penalty_window(context);
  std::vector<Token> ids(window.begin(), window.end());
  std::sort(ids.begin(), ids.end());
  for (auto run = ids.begin(); run != ids.end();) {
    const auto end = std::upper_bound(run, ids.end(), *run);
    if (named(*run)) {
      const auto count = static_cast<double>(end - run);
      values[static_cast<std::size_t>(*run)] -=
          static_cast<double>(params.presence_penalty) +
          static_cast<double>(params.frequency_penalty) * count;
    }
    run = end;
  }
}

bool adjusts(const SamplingParams& params) {
  return !params.logit_bias.empty() || params.repetition_penalty != 1.0f ||
         params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f;
}

void adjust(const SamplingParams& params, const SampleContext& context,
            std::vector<double>& values) {
  for (const auto& [id, bias] : params.logit_bias) {
    if (named(id)) values[static_cast<std::size_t>(id)] += static_cast<double>(bias);
  }
  if (params.repetition_penalty != 1.0f) {
    penalize_repetition(static_cast<double>(params.repetition_penalty), context, values);
  }
  if (params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f) {
    penalize_generated(params, context, values);
  }
}

// The lowest id among the greatest values; what is not a number does not count. In lanes, because
// one running maximum would make every comparison wait for the one before: 0.2 ms a row.
template <class T>
std::size_t arg_max(std::span<const T> values) {
  constexpr std::size_t kLanes = 16;
  constexpr std::size_t kPart = 64 * kLanes;
  T best = -std::numeric_limits<T>::infinity();
  std::size_t best_part = 0;
  for (std::size_t at = 0; at < values.size(); at += kPart) {
    const auto part = values.subspan(at, std::min(kPart, values.size() - at));
    std::array<T, kLanes> lanes;
    lanes.fill(best);
    std::size_t i = 0;
    for (; i + kLanes <= part.size(); i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] = part[i + lane] > lanes[lane] ? part[i + lane] : lanes[lane];
      }
    }
    for (; i < part.size(); ++i) lanes[0] = part[i] > lanes[0] ? part[i] : lanes[0];
    const T greatest = *std::ranges::max_element(lanes);
    if (greatest > best) {
      best = greatest;
      best_part = at;
    }
  }
  const auto from = values.subspan(best_part);
  const auto found = std::ranges::find(from, best);
  // Nothing is greater than -inf: all are that or no numbers.
  return found == from.end() ? 0 : best_part + static_cast<std::size_t>(found - from.begin());
}

// The n best, best first, without sorting the rest: candidates gather in a buffer that is cut back
// to n whenever it holds 2n, and what cannot beat the n-th best so far does not enter. One pass,
// mostly comparisons.
void select_best(std::span<const double> values, std::size_t n, std::vector<Candidate>& out) {
  out.clear();
  double floor = kNever;
  bool full = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Ids ascend, so an equal value loses to the one already held.
    if (full && values[i] <= floor) continue;
    out.push_back({static_cast<Token>(i), values[i]});
    if (out.size() < 2 * n) continue;
    const auto last_kept = out.begin() + static_cast<std::ptrdiff_t>(n) - 1;
    std::nth_element(out.begin(), last_kept, out.end(), better);
    floor = last_kept->value;
    full = true;
    out.resize(n);
  }
  std::sort(out.begin(), out.end(), better);
  if (out.size() > n) out.resize(n);
}

// softmax numerators: the best token weighs 1, whatever the temperature.
struct Softmax {
  double best;
  double temperature;

  double weight(double value) const {
    const double x = (value - best) / temperature;
    return x < -746 ? 0 : std::exp(x);  // below half the least double; a call saved
  }
};

// Cuts `sorted` (weights, best first) to the fewest that hold `share`; false when all together do
// not.
bool cut_to_share(std::vector<Candidate>& sorted, double share) {
  double sum = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    sum += sorted[i].value;
    if (sum >= share) {
      sorted.resize(i + 1);
      return true;
    }
  }
  return false;
}

void select_weights(const Softmax& softmax, std::size_t n, Scratch& s) {
  select_best(s.values, n, s.candidates);
  for (Candidate& candidate : s.candidates) candidate.value = softmax.weight(candidate.value);
}

// Leaves in s.candidates what top-k and top-p keep, best first, with weights. At least one of them
// is on.
void keep_best(std::size_t top_k, double top_p, const Softmax& softmax, Scratch& s) {
  if (top_k > 0) {
    select_weights(softmax, top_k, s);
    double total = 0;
    for (const Candidate& candidate : s.candidates) total += candidate.value;
    if (top_p < 1) cut_to_share(s.candidates, top_p * total);
    return;
  }
  double total = 0;
  for (const double value : s.values) total += softmax.weight(value);
  // How many tokens top-p keeps is not known beforehand; usually it is few.
  for (std::size_t n = 64; n < kTokens; n *= 8) {
    select_weights(softmax, n, s);
    if (cut_to_share(s.candidates, top_p * total)) return;
  }
  select_weights(softmax, kTokens, s);
  cut_to_share(s.candidates, top_p * total);
}

Token draw_from_candidates(std::vector<Candidate>& candidates, double uniform) {
  // In id order, so that a filter which removes nothing changes nothing.
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.value;
  const double target = uniform * total;
  double sum = 0;
  for (const Candidate& candidate : candidates) {
    sum += candidate.value;
    if (target < sum) return candidate.token;
  }
  return candidates.back().token;  // not reached: target < total, and sum ends at total
}

Token draw_from_all(const Softmax& softmax, Scratch& s, double uniform) {
  s.weights.resize(kTokens);
  double total = 0;
  for (std::size_t i = 0; i < kTokens; ++i) {
    s.weights[i] = softmax.weight(s.values[i]);
    total += s.weights[i];
  }
  const double target = uniform * total;
  double sum = 0;
  std::size_t i = 0;
  while (i + 1 < kTokens && (sum += s.weights[i]) <= target) ++i;
  return static_cast<Token>(i);
}

Result<void> check_range(const char* field, float value, float low, float high) {
  if (value >= low && value <= high) return {};
  return fail(ErrorCode::invalid, "{}: expected a number from {} to {}, found {}", field, low, high,
              value);
}

}  // namespace

Result<void> validate(const SamplingParams& params) {
  if (!std::isfinite(params.temperature) || params.temperature < 0) {
    return fail(ErrorCode::invalid, "temperature: expected a finite number of at least 0, found {}",
                params.temperature);
  }
  if (params.top_k < 0) {
    return fail(ErrorCode::invalid, "top_k: expected at least 0, found {}", params.top_k);
  }
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return fail(ErrorCode::invalid, "top_p: expected a number above 0 and at most 1, found {}",
                params.top_p);
  }
  KIPP_TRY(check_range("min_p", params.min_p, 0, 1));
  if (!std::isfinite(params.repetition_penalty) || params.repetition_penalty <= 0) {
    return fail(ErrorCode::invalid,
                "repetition_penalty: expected a finite number above 0, found {}",
                params.repetition_penalty);
  }
  KIPP_TRY(check_range("presence_penalty", params.presence_penalty, -2, 2));
  KIPP_TRY(check_range("frequency_penalty", params.frequency_penalty, -2, 2));
  std::vector<Token> ids;
  for (const auto& [id, bias] : params.logit_bias) {
    if (!named(id)) {
      return fail(ErrorCode::invalid, "logit_bias: expected token ids from 0 to {}, found {}",
                  kNamedTokens - 1, id);
    }
    KIPP_TRY(check_range("logit_bias", bias, -100, 100));
    ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  if (const auto twice = std::adjacent_find(ids.begin(), ids.end()); twice != ids.end()) {
    return fail(ErrorCode::invalid, "logit_bias: expected each token once, found {} twice", *twice);
  }
  return {};
}

Token sample(std::span<const float> logits, const SamplingParams& params,
             const SampleContext& context, std::uint64_t draw) {
  if (params.temperature == 0 && !adjusts(params)) {
    const auto best = static_cast<Token>(arg_max(logits.first(kTokens)));
    if (std::ranges::find(context.barred, best) == context.barred.end()) return best;
  }
  Scratch& s = scratch();
  load(logits, s.values);
  for (const Token id : context.barred) s.values[static_cast<std::size_t>(id)] = kNever;
  adjust(params, context, s.values);
  const std::size_t best = arg_max<double>(s.values);
  if (params.temperature == 0 || !std::isfinite(s.values[best])) return static_cast<Token>(best);

  const Softmax softmax{s.values[best], static_cast<double>(params.temperature)};
  const double uniform = draw_uniform(params.seed, draw);
  const auto min_p = static_cast<double>(params.min_p);
  const int top_k = params.top_k < kNamedTokens ? params.top_k : 0;
  if (top_k > 0 || params.top_p < 1) {
    keep_best(static_cast<std::size_t>(top_k), static_cast<double>(params.top_p), softmax, s);
    while (s.candidates.back().value < min_p) s.candidates.pop_back();  // the best weighs 1
    return draw_from_candidates(s.candidates, uniform);
  }
  if (min_p > 0) {
    s.candidates.clear();
    for (std::size_t i = 0; i < kTokens; ++i) {
      const double weight = softmax.weight(s.values[i]);
      if (weight >= min_p) s.candidates.push_back({static_cast<Token>(i), weight});
    }
    return draw_from_candidates(s.candidates, uniform);
  }
  return draw_from_all(softmax, s, uniform);
}

}  // namespace kipp
