#include "model/rope.h"

#include <cmath>
#include <cstddef>

#include "model/config.h"

namespace kipp {

void rope_inverse_frequency(int theta, std::span<double> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = std::pow(static_cast<double>(theta), -2.0 * static_cast<double>(i) / kHeadDim);
  }
}

void rope_angles(int position, std::span<const double> inverse_frequency, std::span<float> cos,
                 std::span<float> sin) {
  for (std::size_t i = 0; i < inverse_frequency.size(); ++i) {
    const double angle = static_cast<double>(position) * inverse_frequency[i];
    cos[i] = static_cast<float>(std::cos(angle));
    sin[i] = static_cast<float>(std::sin(angle));
  }
}

}  // namespace kipp
