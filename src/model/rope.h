// The angles of rotary position embedding, the same on every backend that computes on the host:
// double throughout, sine and cosine rounded once, which hides the last-bit differences between C
// libraries.
#pragma once

#include <span>

namespace kipp {

// theta^(-2 i / kHeadDim): [kHeadDim / 2].
void rope_inverse_frequency(int theta, std::span<double> out);
// cos and sin of position * inverse_frequency[i]: [kHeadDim / 2] each.
void rope_angles(int position, std::span<const double> inverse_frequency, std::span<float> cos,
                 std::span<float> sin);

}  // namespace kipp
