// What reads promise about the values that went in, on blocks that the oracle wrote: how far off an
// element may be at each width, in which groups more bits mean less error, and what becomes of
// constant groups, of outliers and of signs.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <vector>

#include "kvquant/codec.h"
#include "kvquant/cpu_ref.h"
#include "kvquant/differential.h"
#include "support/owned_block.h"
#include "support/property.h"
#include "support/tiered_cases.h"

namespace kvquant {
namespace {

using namespace test;

using Numbers = std::vector<double>;  // [position][head][channel] of a block

std::size_t index(int i) { return static_cast<std::size_t>(i); }

double squared(double x) { return x * x; }

// RC_ASSERT, for every element: it says as much and costs nothing where it holds.
void at_most(double found, double most, const char* what, std::size_t place) {
  if (found <= most) return;
  std::ostringstream message;
  message << what << " of " << place << ": expected at most " << most << ", found " << found;
  RC_FAIL(message.str());
}

// What FP16 keeps of a magnitude: the distance to its neighbours there.
double fp16_grain(double magnitude) {
  if (magnitude < 0x1p-14) return 0x1p-24;
  return std::ldexp(1.0, std::ilogb(magnitude) - 10);
}

// An orthonormal rotation of every head's row, in double precision.
Numbers rotated(const KvShape& shape, Numbers rows) {
  const std::size_t width = index(shape.head_width);
  for (std::size_t start = 0; start < rows.size(); start += width) {
    for (std::size_t half = 1; half < width; half *= 2) {
      for (std::size_t i = 0; i < width; ++i) {
        if ((i & half) != 0) continue;
        double& a = rows[start + i];
        double& b = rows[start + i + half];
        a = (a + b) * std::sqrt(0.5);
        b = a - b * std::sqrt(2.0);
      }
    }
  }
  return rows;
}

// A block with codes on one side, BF16 on the other, and what is known of its values.
class Coded {
 public:
  Coded(const KvShape& shape, const QuantScheme& scheme, std::vector<float> rows)
      : scheme_(scheme),
        layout_(layout_of(shape, scheme)),
        block_(layout_, layout_.planes(Side::key), planes_for(BitWidth::bf16)) {
    const std::vector<float> nothing(rows.size());
    const Status status = backend_.quantize_append(layout_, rows, nothing, block_.block());
    if (!status.ok()) RC_FAIL(status.message());
    stored_ = read(BitWidth::bf16);
    coded_ = scheme.hadamard ? rotated(shape, stored_) : stored_;
    for (int position = 0; position < kBlockPositions; ++position) {
      for (int i = 0; i < shape.row(); ++i) {
        group_of_.push_back(
            layout_.group_of(Side::key, position, i / shape.head_width, i % shape.head_width));
      }
    }
    find_slack();
  }

  const QuantScheme& scheme() const { return scheme_; }
  std::size_t size() const { return stored_.size(); }
  std::size_t groups() const { return layout_.groups(Side::key); }
  std::size_t group_of(std::size_t element) const { return group_of_[element]; }

  const Numbers& stored() const { return stored_; }  // BF16
  const Numbers& coded() const { return coded_; }    // what the coder sees: rotated or not

  Numbers read(BitWidth width) {
    std::vector<float> k(index(kBlockPositions * layout_.shape().row()));
    std::vector<float> v(k.size());
    const Status status = backend_.dequantize_for_attention(
        layout_, block_.block(), {width, BitWidth::bf16}, 0, kBlockPositions, k, v);
    if (!status.ok()) RC_FAIL(status.message());
    return Numbers(k.begin(), k.end());
  }
  // The same where the coder sees it.
  Numbers read_coded(BitWidth width) {
    return scheme_.hadamard ? rotated(layout_.shape(), read(width)) : read(width);
  }

  bool fitted(BitWidth width) const { return width == BitWidth::int2 && has_fitted_pair(scheme_); }
  double scale(std::size_t group) const { return parameter(range_plane(), false, group); }
  double offset(std::size_t group) const {
    return scheme_.symmetric ? 0 : parameter(range_plane(), true, group);
  }
  double fitted_scale(std::size_t group) const { return parameter(Plane::hi2, false, group); }
  double fitted_offset(std::size_t group) const {
    return scheme_.symmetric ? 0 : parameter(Plane::hi2, true, group);
  }

  // The range that codes cover.
  double lowest(std::size_t group) const {
    return scheme_.symmetric ? -scale(group) * half_levels() : offset(group);
  }
  double highest(std::size_t group) const {
    return scheme_.symmetric ? scale(group) * half_levels()
                             : offset(group) + scale(group) * code_levels(scheme_.bits);
  }

  // What FP32 may add to an error of one element: a few roundings of the group's numbers while it
  // is coded and read, and of its row's while that is turned either way.
  double slack(std::size_t element) const { return slack_[element]; }

 private:
  static BlockLayout layout_of(const KvShape& shape, const QuantScheme& scheme) {
    const Expected<BlockLayout> layout =
        BlockLayout::make(shape, {scheme, {.bits = BitWidth::bf16}});
    if (!layout.ok()) RC_FAIL(layout.status().message());
    return layout.value();
  }

  void find_slack() {
    Numbers numbers;
    for (std::size_t group = 0; group < groups(); ++group) {
      numbers.push_back(std::fmax(std::fabs(lowest(group)), std::fabs(highest(group))));
    }
    const std::size_t width = index(layout_.shape().head_width);
    for (std::size_t start = 0; start < size(); start += width) {
      double norm = 0;
      for (std::size_t i = start; i < start + width; ++i) norm += squared(coded_[i]);
      const double row = scheme_.hadamard ? 64 * 0x1p-24 * std::sqrt(norm) : 0;
      for (std::size_t i = start; i < start + width; ++i) {
        slack_.push_back(8 * 0x1p-24 * numbers[group_of(i)] + row + static_cast<double>(kSmallest));
      }
    }
  }

  int half_levels() const { return code_levels(scheme_.bits) / 2; }
  Plane range_plane() const { return layout_.range_plane(Side::key); }
  double parameter(Plane plane, bool offset, std::size_t group) const {
    const PlaneLayout& parts = layout_.plane(Side::key, plane);
    std::uint16_t bits;
    std::memcpy(&bits,
                block_.block().plane(Side::key, plane) + (offset ? parts.offsets : parts.scales) +
                    2 * group,
                sizeof bits);
    return static_cast<double>(fp16_to_float(bits));
  }

  QuantScheme scheme_;
  BlockLayout layout_;
  mutable OwnedBlock block_;
  CpuRefBackend backend_;
  Numbers stored_, coded_, slack_;
  std::vector<std::size_t> group_of_;
};

// Of what the coder saw of a group.
struct Extent {
  double low = 1e30, high = -1e30;
  double slack = 0;

  double range() const { return high - low; }
  double magnitude() const { return std::fmax(-low, high); }
};

std::vector<Extent> extents_of(const Coded& coded) {
  std::vector<Extent> extents(coded.groups());
  for (std::size_t i = 0; i < coded.size(); ++i) {
    Extent& extent = extents[coded.group_of(i)];
    extent.low = std::fmin(extent.low, coded.coded()[i]);
    extent.high = std::fmax(extent.high, coded.coded()[i]);
    extent.slack = std::fmax(extent.slack, coded.slack(i));
  }
  return extents;
}

std::vector<BitWidth> code_widths(const QuantScheme& scheme) {
  std::vector<BitWidth> widths = readable_widths(scheme);
  widths.erase(widths.begin());  // BF16
  return widths;
}

QuantScheme any_coded_scheme(const KvShape& shape) {
  QuantScheme scheme = any_scheme(shape);
  if (scheme.bits == BitWidth::bf16) scheme = {.group_size = 16};
  return scheme;
}

std::vector<float> rows_of_input(Input input, const KvShape& shape, const QuantScheme& scheme) {
  std::vector<float> rows(index(kBlockPositions * shape.row()));
  generate(input, *rc::gen::inRange<std::uint64_t>(0, 1 << 20), shape, scheme, rows);
  return rows;
}

Coded any_coded(const QuantScheme& scheme, const KvShape& shape) {
  const auto input = static_cast<Input>(*rc::gen::inRange(0, kInputs - 1));
  RC_LOG() << name_of(input) << ", " << scheme << '\n';
  return Coded(shape, scheme, rows_of_input(input, shape, scheme));
}

// --- how far off

// Every element is read within half a step of the tier's width, and within one cell by the fitted
// pair, of the value that the coder saw or, where that was clipped, of the end of the range.
// Without clipping the range holds every value. Rotated rows are measured where they were coded.
TEST(CodecProperty, ReadsAreWithinHalfAStep) {
  property([] {
    const KvShape shape = any_shape();
    const QuantScheme scheme = any_coded_scheme(shape);
    Coded coded = any_coded(scheme, shape);
    for (const BitWidth width : code_widths(scheme)) {
      const Numbers read = coded.read_coded(width);
      const bool fitted = coded.fitted(width);
      for (std::size_t i = 0; i < read.size(); ++i) {
        const std::size_t group = coded.group_of(i);
        const double step =
            coded.scale(group) * (1 << (static_cast<int>(scheme.bits) - static_cast<int>(width)));
        const double covered =
            std::clamp(coded.coded()[i], coded.lowest(group), coded.highest(group));
        const double pair = fitted ? 1.5 * fp16_grain(coded.fitted_scale(group)) : 0;
        if (scheme.clip_percent == 100) {
          at_most(std::fabs(covered - coded.coded()[i]), coded.slack(i), "outside the range", i);
        }
        at_most(std::fabs(read[i] - covered), (fitted ? step + pair : step / 2) + coded.slack(i),
                name_of(width), i);
      }
    }
  });
}

// Steps are no wider than FP16 makes them: a range of 2^-10 more than the group's own, and what the
// offset had to give way.
TEST(CodecProperty, StepsAreNoWiderThanTheGroupNeeds) {
  property([] {
    const KvShape shape = any_shape();
    const QuantScheme scheme = any_coded_scheme(shape);
    const Coded coded = any_coded(scheme, shape);
    const std::vector<Extent> extents = extents_of(coded);
    const double keep = scheme.clip_percent / 100.0;
    const double steps = code_levels(scheme.bits) - (scheme.symmetric ? 1 : 0);
    for (std::size_t group = 0; group < coded.groups(); ++group) {
      const Extent& extent = extents[group];
      double needed = 2 * extent.magnitude() * keep;
      if (!scheme.symmetric) {
        // What is cut off is rounded to BF16, and the offset downward to FP16.
        needed = extent.range() * keep + extent.range() * (1 - keep) * 0x1p-8 +
                 fp16_grain(std::fmax(std::fabs(extent.low), std::fabs(extent.high)));
      }
      at_most(coded.scale(group) * steps,
              needed * (1 + 0x1p-10) + steps * 0x1p-24 + 4 * extent.slack, "range", group);
    }
  });
}

// --- more bits, less error

// In a group whose values spread, within the cells of the narrower read, by half a step of the
// wider read or more (root mean square, about each cell's own mean), the wider read has no more
// error: its error is at most that half step, and no choice of one level per cell beats the cell's
// own mean. Groups of a few elements, or of values that cluster where a narrow level happens to
// lie, can be read better at fewer bits; every spread group of some size cannot.
TEST(CodecProperty, MoreBitsAreNoWorseWhereGroupsSpreadWithinCells) {
  // Groups that one expects to spread, and how many do: a rare one with an outlier does not.
  std::size_t n_even = 0;
  std::size_t n_spread = 0;
  property([&] {
    // Some cases are sure to have such groups, however few cases a sanitized run has time for.
    const bool sure = *rc::gen::inRange(0, 4) == 0;
    const KvShape shape = sure ? KvShape{.kv_heads = 2, .head_width = 64} : any_shape();
    QuantScheme scheme = any_coded_scheme(shape);
    scheme.clip_percent = 100;
    if (sure) {
      scheme.grouping = Grouping::per_token;
      scheme.group_size = 64;
    }
    const auto any_input =
        *rc::gen::element(Input::gaussian, Input::laplace, Input::shifted, Input::outlier_channel,
                          Input::mixed_scale, Input::heavy_tail, Input::largest);
    const auto input = sure ? Input::gaussian : any_input;
    Coded coded(shape, scheme, rows_of_input(input, shape, scheme));
    const std::vector<BitWidth> widths = code_widths(scheme);
    for (std::size_t w = 1; w < widths.size(); ++w) {
      const Numbers wide = coded.read_coded(widths[w - 1]);
      const Numbers narrow = coded.read_coded(widths[w]);
      struct Cell {
        double count = 0, sum = 0, squares = 0;
      };
      struct Sums {
        double wide = 0, narrow = 0, slack = 0;
        Cell cells[16];
      };
      std::vector<Sums> sums(coded.groups());
      const int wide_bits = static_cast<int>(widths[w - 1]);
      const double step_of_code = 1 << (static_cast<int>(scheme.bits) - wide_bits);
      const double cell_codes = 1 << (static_cast<int>(scheme.bits) - static_cast<int>(widths[w]));
      for (std::size_t i = 0; i < wide.size(); ++i) {
        const std::size_t group = coded.group_of(i);
        Sums& s = sums[group];
        const double value = coded.coded()[i];
        s.wide += squared(wide[i] - value);
        s.narrow += squared(narrow[i] - value);
        s.slack = std::fmax(s.slack, coded.slack(i));
        const double scale = coded.scale(group);
        const double base = scheme.symmetric ? scale * (1 << (static_cast<int>(scheme.bits) - 1))
                                             : -coded.offset(group);
        const double code = scale > 0 ? std::nearbyint((value + base) / scale) : 0;
        Cell& cell = s.cells[static_cast<int>(std::clamp(code / cell_codes, 0.0, 15.0))];
        cell.count += 1;
        // About a number near by, or the squares would swallow the spread.
        cell.sum += value + base;
        cell.squares += squared(value + base);
      }
      for (std::size_t group = 0; group < sums.size(); ++group) {
        const Sums& s = sums[group];
        double spread = 0;
        double count = 0;
        for (const Cell& cell : s.cells) {
          if (cell.count == 0) continue;
          spread += cell.squares - squared(cell.sum) / cell.count;
          count += cell.count;
        }
        const double half_step = coded.scale(group) * step_of_code / 2;
        const bool spreads = spread >= count * squared(half_step) && coded.scale(group) > 0;
        const bool evenly = input == Input::gaussian || input == Input::laplace;
        if (evenly && scheme.group_size >= 64 && scheme.grouping == Grouping::per_token) {
          ++n_even;
          n_spread += spreads;
        }
        if (!spreads) continue;
        const double wide_error = std::sqrt(s.wide / count);
        at_most(wide_error, half_step + s.slack, "error at more bits", group);
        at_most(wide_error, std::sqrt(s.narrow / count) + 2 * s.slack, "error at more bits", group);
      }
    }
  });
  EXPECT_GT(n_even, 100u);
  EXPECT_GE(static_cast<double>(n_spread), 0.999 * static_cast<double>(n_even));
}

// Squared error of the fitted pair over an affine group's codes, against that of cell centres. The
// pair lies on the way from the centres to the optimum, on which the error only falls, but for the
// rounding of its ends: to sixteenths of a code (1/32), when they shrink together once more (1/16),
// and to FP16. By the triangle inequality the root of the squared error grows by no more than the
// furthest that a level was moved.
TEST(CodecProperty, TheFittedPairIsNoWorseThanCellCentres) {
  property([] {
    const KvShape shape = any_shape();
    QuantScheme scheme = any_coded_scheme(shape);
    if (scheme.bits == BitWidth::int2) scheme.bits = BitWidth::int4;
    scheme.narrowest = BitWidth::int2;
    scheme.symmetric = false;
    Coded coded = any_coded(scheme, shape);
    const Numbers codes = coded.read_coded(scheme.bits);
    const Numbers read = coded.read_coded(BitWidth::int2);
    const int cell = 1 << (static_cast<int>(scheme.bits) - 2);
    struct Sums {
      double fitted = 0, centres = 0, count = 0, slack = 0;
    };
    std::vector<Sums> sums(coded.groups());
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const std::size_t group = coded.group_of(i);
      Sums& s = sums[group];
      const double scale = coded.scale(group);
      const double code = scale > 0 ? std::nearbyint((codes[i] - coded.offset(group)) / scale) : 0;
      const double centre =
          coded.offset(group) + scale * (std::floor(code / cell) * cell + (cell - 1) / 2.0);
      s.fitted += squared(read[i] - codes[i]);
      s.centres += squared(centre - codes[i]);
      s.count += 1;
      s.slack = std::fmax(s.slack, coded.slack(i));
    }
    for (std::size_t group = 0; group < sums.size(); ++group) {
      const Sums& s = sums[group];
      const double moved = coded.scale(group) * (1.0 / 32 + 1.0 / 16) +
                           std::fmax(fp16_grain(std::fabs(coded.fitted_offset(group))),
                                     1.5 * fp16_grain(coded.fitted_scale(group)));
      at_most(std::sqrt(s.fitted / s.count), std::sqrt(s.centres / s.count) + moved + 4 * s.slack,
              "error of the pair", group);
    }
  });
}

// --- groups of a certain kind

// A BF16 number of normal FP16 magnitude is an FP16 number: an affine group of one value has it for
// its offset, and reads it back as it was at every width.
TEST(CodecProperty, ConstantGroupsAreReadExactly) {
  property([] {
    const KvShape shape = any_shape();
    QuantScheme scheme = any_coded_scheme(shape);
    scheme.symmetric = false;
    scheme.hadamard = false;
    std::vector<float> rows = rows_of_input(
        *rc::gen::element(Input::constant_rows, Input::zeros, Input::largest), shape, scheme);
    const bool per_channel = scheme.grouping == Grouping::per_channel;
    for (std::size_t i = 0; i < rows.size(); ++i) {  // each channel, or row, as its first element
      const std::size_t row = index(shape.row());
      rows[i] = rows[per_channel ? i % row : i / row * row];
      if (std::fabs(rows[i]) < 0x1p-14f) rows[i] = 0;
    }
    Coded coded(shape, scheme, rows);
    for (const BitWidth width : code_widths(scheme)) RC_ASSERT(coded.read(width) == coded.stored());
  });
}

// The mirror image of a block is read as the mirror image of what the block reads, to the bit, at
// the width of its codes; zero is read as zero there.
TEST(CodecProperty, SymmetricCodesMirror) {
  property([] {
    const KvShape shape = any_shape();
    QuantScheme scheme = any_coded_scheme(shape);
    scheme.symmetric = true;
    const auto input = static_cast<Input>(*rc::gen::inRange(0, kInputs - 1));
    std::vector<float> rows = rows_of_input(input, shape, scheme);
    if (!scheme.hadamard) {
      for (std::size_t i = 0; i < rows.size(); i += 5) rows[i] = 0;
    }
    std::vector<float> mirrored = rows;
    for (float& value : mirrored) value = -value;
    Coded coded(shape, scheme, rows);
    const Numbers read = coded.read(scheme.bits);
    const Numbers read_mirrored = Coded(shape, scheme, mirrored).read(scheme.bits);
    for (std::size_t i = 0; i < read.size(); ++i) {
      at_most(std::fabs(read_mirrored[i] + read[i]), 0, "asymmetry", i);
      if (rows[i] == 0 && !scheme.hadamard) at_most(std::fabs(read[i]), 0, "zero", i);
    }
  });
}

// One element far out stretches the steps of its whole group; rotation spreads it over the row
// first. At four bits and rows of 32 that is worth half the error at least.
TEST(CodecProperty, RotationTamesAnOutlier) {
  property([] {
    constexpr KvShape shape = {1, 32};
    const QuantScheme plain = {.bits = BitWidth::int4, .group_size = 32};
    QuantScheme turned = plain;
    turned.hadamard = true;
    std::vector<float> rows = rows_of_input(Input::gaussian, shape, plain);
    for (int position = 0; position < kBlockPositions; ++position) {
      const float sign = *rc::gen::element(1.0f, -1.0f);
      rows[index(position * 32 + *rc::gen::inRange(0, 32))] =
          sign * static_cast<float>(*rc::gen::inRange(50, 200));
    }
    const auto error = [&](const QuantScheme& scheme) {
      Coded coded(shape, scheme, rows);
      const Numbers read = coded.read(BitWidth::int4);
      double sum = 0;
      for (std::size_t i = 0; i < read.size(); ++i) sum += squared(read[i] - coded.stored()[i]);
      return sum;
    };
    RC_ASSERT(error(turned) <= 0.5 * error(plain));
  });
}

// Clipped codes cover the middle of the group's range, as much of it as the scheme says, up to the
// rounding of what is cut off to BF16 and of offset and scale to FP16.
TEST(CodecProperty, ClippedRangesLieInTheMiddle) {
  property([] {
    const KvShape shape = any_shape();
    QuantScheme scheme = any_coded_scheme(shape);
    if (scheme.bits == BitWidth::int8) scheme.bits = BitWidth::int4;
    scheme.narrowest = scheme.bits;
    scheme.clip_percent = *rc::gen::inRange(50, 100);
    const Coded coded = any_coded(scheme, shape);
    const std::vector<Extent> extents = extents_of(coded);
    for (std::size_t group = 0; group < coded.groups(); ++group) {
      const Extent& extent = extents[group];
      const double keep = scheme.clip_percent / 100.0;
      const double cut = extent.range() * (1 - keep) / 2;
      const double lowest = scheme.symmetric ? -extent.magnitude() * keep : extent.low + cut;
      const double highest = scheme.symmetric ? extent.magnitude() * keep : extent.high - cut;
      const double steps = code_levels(scheme.bits);
      const double rounding = cut * 0x1p-7 + fp16_grain(std::fabs(lowest) + cut * 0x1p-7) +
                              steps * fp16_grain((highest - lowest) / steps * 1.01) +
                              8 * extent.slack;
      at_most(std::fabs(coded.lowest(group) - lowest), rounding, "lower end", group);
      at_most(std::fabs(coded.highest(group) - highest), rounding, "upper end", group);
    }
  });
}

}  // namespace
}  // namespace kvquant
