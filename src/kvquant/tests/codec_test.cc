// The arithmetic of codec.h against independent computations: number formats over all of their bit
// patterns, the rotation against its matrix, planes against the codes that went in, and fitted
// levels against least squares in double precision.
#include "kvquant/codec.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace kvquant {
namespace {

struct Group {
  std::vector<int> codes;
  GroupParams range, fitted;
};

Group encode_group(const QuantScheme& scheme, const std::vector<float>& values) {
  Group group;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  group.range = fit_range(scheme, *low, *high);
  const Encoder e = encoder(scheme, group.range);
  LevelSums sums;
  for (const float value : values) {
    group.codes.push_back(encode(e, value));
    add_code(sums, scheme, group.codes.back());
  }
  if (has_fitted_pair(scheme)) group.fitted = fit_levels(scheme, group.range, sums);
  return group;
}

// FP16 is coarser than the cells of a narrow group far from zero; the levels must not jump out of
// their cells with the rounding of their offset.
TEST(FittedPair, LevelsStayInTheirCellsWhenTheOffsetDwarfsTheRange) {
  const QuantScheme scheme;
  for (const float mean : {1000.3f, 2000.7f, -5000.9f}) {
    std::vector<float> values;
    for (int i = 0; i < 128; ++i)
      values.push_back(mean + 0.001f * static_cast<float>(i * 37 % 128));
    const Group group = encode_group(scheme, values);
    const double cell = 64.0 * fp16_to_float(group.range.scale);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float level = fitted_level(scheme, group.codes[i] >> 6);
      const float read =
          fp16_to_float(group.fitted.offset) + fp16_to_float(group.fitted.scale) * level;
      EXPECT_LE(std::fabs(static_cast<double>(read) - static_cast<double>(values[i])), cell)
          << "mean " << mean << ", value " << i;
    }
  }
}

// Half a code below the smallest value there is lies beyond the range of FP16.
TEST(FittedPair, IsFiniteForTheLargestValues) {
  for (const BitWidth bits : {BitWidth::int8, BitWidth::int4}) {
    QuantScheme scheme;
    scheme.bits = bits;
    std::vector<float> values(16, 4096.0f);  // the bottom of cell 2 draws level 0 down
    values.front() = -65280.0f;
    values.back() = 65280.0f;
    const Group group = encode_group(scheme, values);
    const float offset = fp16_to_float(group.fitted.offset);
    const float scale = fp16_to_float(group.fitted.scale);
    const float cell = 65280.0f / 2;
    EXPECT_NEAR(offset, -65280.0f, cell) << name_of(bits);
    EXPECT_NEAR(offset + scale * 3, 65280.0f, cell) << name_of(bits);
  }
}

}  // namespace
}  // namespace kvquant
