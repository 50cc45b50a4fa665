// What the differential harness feeds to backends.
#include <cmath>
#include <cstdlib>

#include "kvquant/codec.h"
#include "kvquant/differential.h"

namespace kvquant {
namespace {

// The draws of one element, or of one row.
class Stream {
 public:
  Stream(std::uint64_t key, std::uint64_t index) : key_(draw(key, index)) {}

  std::uint64_t next() { return draw(key_, counter_++); }
  int below(int bound) {
    return static_cast<int>(next() % static_cast<std::uint64_t>(bound));  // bounds are tiny
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)
  double sign() { return below(2) == 0 ? 1.0 : -1.0; }

  // Twelve uniforms of 16 bits, which sum to variance 1: close to normal, exact, within +-6.
  double gaussian() {
    std::int64_t sum = -12 * 65535 / 2;
    for (int i = 0; i < 3; ++i) {
      const std::uint64_t bits = next();
      for (int shift = 0; shift < 64; shift += 16) {
        sum += static_cast<std::int64_t>(bits >> shift & 0xffffu);
      }
    }
    return static_cast<double>(sum) * 0x1p-16;
  }

  // Von Neumann's way, by comparisons alone: a run of falling uniforms of odd length keeps its
  // first, one of even length adds 1 to whatever comes next.
  double exponential() {
    for (int whole = 0;; ++whole) {
      const double first = uniform();
      int length = 1;
      for (double last = first, now = uniform(); now < last; now = uniform(), ++length) last = now;
      if (length % 2 == 1) return whole + first;
    }
  }

  // By the inverse of its distribution, which for two degrees of freedom is algebraic.
  double student_t2() {
    const double u = uniform() + 0x1p-54;
    return (2.0 * u - 1.0) / std::sqrt(2.0 * u * (1.0 - u));
  }

  // Its binary exponent is one of the `octaves` that end at `top`, or as deep as FP32 goes.
  float tiny(int top, int octaves) {
    const int biased = top + 127 - below(octaves);
    const auto exponent = static_cast<std::uint32_t>(biased < 0 ? 0 : biased);
    const auto mantissa = static_cast<std::uint32_t>(next() & 0x7fffffu);
    return float_of(static_cast<std::uint32_t>(below(2)) << 31 | exponent << 23 | mantissa);
  }

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

double power_of_ten(int exponent) {
  double power = 1.0;
  for (int i = 0; i < std::abs(exponent); ++i) power *= 10.0;
  return exponent < 0 ? 1.0 / power : power;
}

// The two streams of an element: its own, and that of its row, which all of the row share.
double element(Input input, Stream own, Stream row, bool outlier, double largest) {
  switch (input) {
    case Input::gaussian:
    case Input::not_finite:
      return own.gaussian();
    case Input::laplace:
      return own.sign() * own.exponential();
    case Input::heavy_tail:
      return own.student_t2();
    case Input::outlier_channel:
      return outlier ? 60.0 + 4.0 * own.gaussian() : own.gaussian();
    case Input::constant_rows:
      return row.gaussian() * power_of_ten(row.below(4) - 1);
    case Input::shifted:
      return row.sign() * (100.0 + 200.0 * row.uniform()) + own.gaussian();
    case Input::zeros:
      return own.sign() * 0.0;
    case Input::denormals:  // of BF16 and FP32 in most rows, of FP16 in others
      return own.tiny(-14 - 16 * row.below(8), 24);
    case Input::largest:  // every fourth row of one sign: a rotation gathers it in one element
      return row.below(4) == 0 ? row.sign() * largest : own.sign() * largest;
    case Input::mixed_scale:
      return own.gaussian() * power_of_ten(row.below(10) - 6);
  }
  return 0.0;
}

float refused_value(std::uint64_t kind, float largest) {
  const std::uint32_t beyond = bits_of(largest) + 1;
  switch (kind) {
    case 0:
      return float_of(0x7fc00000u);
    case 1:
      return float_of(0x7f800000u);
    case 2:
      return float_of(0xff800000u);
    case 3:
      return float_of(beyond);
    default:
      return float_of(beyond | 0x80000000u);
  }
}

}  // namespace

const char* name_of(Input input) {
  switch (input) {
    case Input::gaussian:
      return "gaussian";
    case Input::laplace:
      return "laplace";
    case Input::heavy_tail:
      return "heavy_tail";
    case Input::outlier_channel:
      return "outlier_channel";
    case Input::constant_rows:
      return "constant_rows";
    case Input::shifted:
      return "shifted";
    case Input::zeros:
      return "zeros";
    case Input::denormals:
      return "denormals";
    case Input::largest:
      return "largest";
    case Input::mixed_scale:
      return "mixed_scale";
    case Input::not_finite:
      return "not_finite";
  }
  return "unknown input";
}

std::uint64_t draw(std::uint64_t key, std::uint64_t counter) {
  std::uint64_t z = key + (counter + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void generate(Input input, std::uint64_t seed, const KvShape& shape, const QuantScheme& scheme,
              std::span<float> rows) {
  const std::uint64_t key = draw(seed, static_cast<std::uint64_t>(input));
  const std::uint64_t own_key = draw(key, 0);
  const std::uint64_t row_key = draw(key, 1);
  const float largest = largest_value(scheme, shape.head_width);
  const auto row = static_cast<std::size_t>(shape.row());
  const auto width = static_cast<std::size_t>(shape.head_width);
  const std::size_t outlier = draw(key, 2) % width;  // the same channel of every head and row
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double value = element(input, Stream(own_key, i), Stream(row_key, i / row),
                                 i % width == outlier, static_cast<double>(largest));
    const auto rounded = static_cast<float>(value);
    rows[i] = std::fmin(std::fmax(rounded, -largest), largest);
  }
  if (input == Input::not_finite && !rows.empty()) {
    rows[draw(key, 3) % rows.size()] = refused_value(seed % 5, largest);
  }
}

}  // namespace kvquant
