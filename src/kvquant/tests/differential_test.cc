// The differential harness itself: the oracle agrees with itself, and a backend that is wrong in
// one place is found out, at that place.
#include "kvquant/differential.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kvquant/codec.h"
#include "kvquant/cpu_ref.h"

namespace kvquant {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// The oracle with a fault: what a hook does after a call, or in place of it.
class FaultyBackend final : public KvBackend {
 public:
  using Append = std::function<Status(const BlockLayout&, std::span<const float> k,
                                      std::span<const float> v, KvBlock&, CpuRefBackend& oracle)>;
  using Read = std::function<Status(const BlockLayout&, const KvBlock&, Tier, int first, int count,
                                    std::span<float> k, std::span<float> v, CpuRefBackend& oracle)>;

  explicit FaultyBackend(Append append) : append_(std::move(append)) {}
  explicit FaultyBackend(Read read) : read_(std::move(read)) {}

  const char* name() const override { return "faulty"; }
  Status quantize_append(const BlockLayout& layout, std::span<const float> k,
                         std::span<const float> v, KvBlock& block) override {
    if (append_) return append_(layout, k, v, block, oracle_);
    return oracle_.quantize_append(layout, k, v, block);
  }
  Status dequantize_for_attention(const BlockLayout& layout, const KvBlock& block, Tier tier,
                                  int first, int count, std::span<float> k,
                                  std::span<float> v) override {
    if (read_) return read_(layout, block, tier, first, count, k, v, oracle_);
    return oracle_.dequantize_for_attention(layout, block, tier, first, count, k, v);
  }

 private:
  CpuRefBackend oracle_;
  Append append_;
  Read read_;
};

DifferentialConfig small_config() {
  DifferentialConfig config;
  config.shape = {2, 32};
  config.scheme.key.group_size = 16;
  config.scheme.value.group_size = 32;
  config.blocks_per_input = 2;
  return config;
}

DifferentialReport report_of(KvBackend& backend, const DifferentialConfig& config) {
  DifferentialReport report;
  const Status status = run_differential(backend, config, report);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(report.agrees, report.disagreement == Disagreement::none);
  return report;
}

// A backend that does something to every block that becomes complete.
FaultyBackend spoiling(std::function<void(const BlockLayout&, KvBlock&)> spoil) {
  return FaultyBackend([spoil](const BlockLayout& layout, std::span<const float> k,
                               std::span<const float> v, KvBlock& block, CpuRefBackend& oracle) {
    Status status = oracle.quantize_append(layout, k, v, block);
    if (status.ok() && !k.empty() && block.complete()) spoil(layout, block);
    return status;
  });
}

std::uint8_t* row_in(const BlockLayout& layout, KvBlock& block, Side side, Plane plane,
                     int position, int head) {
  return block.plane(side, plane) + static_cast<std::size_t>(head * kBlockPositions + position) *
                                        layout.plane(side, plane).row_bytes;
}

void expect_place(const DifferentialReport& report, Side side, BitWidth width, int position,
                  int head, int channel) {
  EXPECT_EQ(report.side, side) << report.what;
  EXPECT_EQ(report.width, width) << report.what;
  EXPECT_EQ(report.position, position) << report.what;
  EXPECT_EQ(report.head, head) << report.what;
  EXPECT_EQ(report.channel, channel) << report.what;
}

QuantScheme scheme_of(BitWidth bits, Grouping grouping, int group_size, BitWidth narrowest,
                      bool symmetric, bool hadamard, int clip_percent = 100) {
  return {bits, grouping, group_size, symmetric, hadamard, narrowest, clip_percent};
}

TEST(Differential, TheOracleAgreesWithItself) {
  using enum BitWidth;
  using enum Grouping;
  const struct {
    KvShape shape;
    KvScheme scheme;
  } kCases[] = {
      {{2, 32},
       {scheme_of(int8, per_token, 32, int2, false, true),
        scheme_of(int4, per_token, 64, int2, false, false, 90)}},
      {{1, 16},
       {scheme_of(int8, per_channel, 32, int4, true, true),
        scheme_of(int2, per_token, 4, int2, true, false, 50)}},
      {{3, 48},
       {scheme_of(int4, per_channel, 8, int4, false, false),
        scheme_of(int8, per_token, 9, int8, false, false)}},
      {{2, 64},
       {scheme_of(bf16, per_token, 0, int2, false, false),
        scheme_of(int4, per_token, 1, int2, true, true)}},
      {{1, 512},
       {scheme_of(int2, per_channel, 1, int2, false, true),
        scheme_of(bf16, per_token, 0, int2, false, false)}},
  };
  for (const auto& test : kCases) {
    DifferentialConfig config;
    config.shape = test.shape;
    config.scheme = test.scheme;
    CpuRefBackend oracle;
    const DifferentialReport report = report_of(oracle, config);
    EXPECT_TRUE(report.agrees) << report.what;
    EXPECT_STREQ(report.what, "");
    EXPECT_EQ(report.difference, 0);
    // Each of the 7 blocks per input is read whole four times at least.
    EXPECT_GE(report.elements,
              static_cast<std::uint64_t>(kInputs * 7 * 4 * 2 * kBlockPositions * test.shape.row()));
  }
}

TEST(Differential, WhatCannotRunIsAnError) {
  CpuRefBackend oracle;
  DifferentialReport report;
  DifferentialConfig config = small_config();
  config.scheme.key.group_size = 7;
  EXPECT_EQ(run_differential(oracle, config, report).code(), Code::invalid_argument);
  config = small_config();
  config.blocks_per_input = 0;
  EXPECT_STREQ(run_differential(oracle, config, report).message(),
               "blocks_per_input: expected at least 1, found 0");
}

TEST(Differential, OneFlippedBitOfACodeIsFound) {
  const struct {
    Plane plane;
    int bit;   // of the packed byte
    int step;  // of the code
    int channel;
  } kFlips[] = {
      {Plane::low4, 0x01, 1, 5},   // byte 5, low nibble
      {Plane::low4, 0x80, 8, 21},  // its high nibble: half a row further
      {Plane::mid2, 0x02, 32, 5},  // byte 5, lowest pair
      {Plane::hi2, 0x40, 64, 29},  // byte 5, highest pair: three quarters of a row further
  };
  for (const auto& flip : kFlips) {
    FaultyBackend backend = spoiling([&](const BlockLayout& layout, KvBlock& block) {
      if (block.plane(Side::value, flip.plane) == nullptr) return;
      std::uint8_t* row = row_in(layout, block, Side::value, flip.plane, 7, 1);
      row[5] = static_cast<std::uint8_t>(row[5] ^ flip.bit);
    });
    const DifferentialReport report = report_of(backend, small_config());
    EXPECT_EQ(report.disagreement, Disagreement::stored);
    EXPECT_EQ(report.input, Input::gaussian);
    expect_place(report, Side::value, BitWidth::int8, 7, 1, flip.channel);
    EXPECT_EQ(std::fabs(report.expected - report.found), flip.step);
    EXPECT_TRUE(std::isinf(report.difference));
    EXPECT_EQ(std::string(report.what),
              "gaussian: value code at int8, position 7, head 1, channel " +
                  std::to_string(flip.channel) + ": expected " +
                  std::to_string(static_cast<int>(report.expected)) + ", found " +
                  std::to_string(static_cast<int>(report.found)));
  }
}

// A fault that shows with one input alone is reported with that input.
TEST(Differential, AFaultOfOneInputIsFound) {
  FaultyBackend backend = spoiling([&](const BlockLayout& layout, KvBlock& block) {
    if (block.plane(Side::key, Plane::hi2) == nullptr) return;
    std::uint16_t bits;
    std::memcpy(&bits, row_in(layout, block, Side::key, Plane::bf16, 0, 0), 2);
    const float first = bf16_to_float(bits);
    if (first == 0 || std::fabs(first) >= 0x1p-126f) return;
    row_in(layout, block, Side::key, Plane::hi2, 31, 0)[0] ^= 1;
  });
  const DifferentialReport report = report_of(backend, small_config());
  EXPECT_EQ(report.input, Input::denormals) << report.what;
  expect_place(report, Side::key, BitWidth::int8, 31, 0, 0);
}

TEST(Differential, AParameterOneUlpOffIsFound) {
  const struct {
    Plane plane;
    bool offset;
    BitWidth width;
    const char* what;
  } kParameters[] = {
      {Plane::mid2, false, BitWidth::int8, "key scale at int8"},
      {Plane::mid2, true, BitWidth::int8, "key offset at int8"},
      {Plane::hi2, false, BitWidth::int2, "key fitted scale at int2"},
      {Plane::hi2, true, BitWidth::int2, "key fitted offset at int2"},
  };
  for (const auto& parameter : kParameters) {
    std::uint16_t before = 0;
    FaultyBackend backend = spoiling([&](const BlockLayout& layout, KvBlock& block) {
      std::uint8_t* plane = block.plane(Side::key, parameter.plane);
      if (plane == nullptr) return;
      const PlaneLayout& parts = layout.plane(Side::key, parameter.plane);
      std::uint8_t* at = plane + (parameter.offset ? parts.offsets : parts.scales) +
                         2 * layout.group_of(Side::key, 30, 1, 31);
      std::uint16_t bits;
      std::memcpy(&bits, at, 2);
      if (before == 0) before = bits;
      ++bits;
      std::memcpy(at, &bits, 2);
    });
    const DifferentialReport report = report_of(backend, small_config());
    EXPECT_EQ(report.disagreement, Disagreement::stored);
    expect_place(report, Side::key, parameter.width, 30, 1, 16);  // where its group of 16 begins
    EXPECT_EQ(report.expected, static_cast<double>(fp16_to_float(before)));
    EXPECT_EQ(report.found,
              static_cast<double>(fp16_to_float(static_cast<std::uint16_t>(before + 1))));
    EXPECT_THAT(report.what, HasSubstr(parameter.what));
  }
}

TEST(Differential, PaddingThatIsNotZeroIsFound) {
  DifferentialConfig config = small_config();
  config.shape = {1, 16};
  config.scheme.key.grouping = Grouping::per_channel;
  config.scheme.key.group_size = 32;  // 16 groups, in a part with room for 32
  config.scheme.value.group_size = 16;
  FaultyBackend backend = spoiling([&](const BlockLayout& layout, KvBlock& block) {
    if (block.plane(Side::key, Plane::mid2) == nullptr) return;
    block.plane(Side::key, Plane::mid2)[layout.plane(Side::key, Plane::mid2).bytes - 1] = 9;
  });
  const DifferentialReport report = report_of(backend, config);
  EXPECT_STREQ(report.what,
               "gaussian: key byte of padding at int8, position 0, head 0, channel 0: expected 0, "
               "found 9");
}

FaultyBackend misreading(float share) {
  return FaultyBackend([share](const BlockLayout& layout, const KvBlock& block, Tier tier,
                               int first, int count, std::span<float> k, std::span<float> v,
                               CpuRefBackend& oracle) {
    Status status = oracle.dequantize_for_attention(layout, block, tier, first, count, k, v);
    if (!status.ok() || tier.value != BitWidth::int4 || first > 9 || first + count <= 9) {
      return status;
    }
    const auto row = static_cast<std::size_t>(layout.shape().row());
    const std::span<float> found = v.subspan(static_cast<std::size_t>(9 - first) * row, row);
    float largest = 0;
    for (const float value : found.last(32)) largest = std::fmax(largest, std::fabs(value));
    found[32 + 3] += largest * share / 4;  // a smaller fault before it
    found[32 + 20] += largest * share;
    return status;
  });
}

TEST(Differential, AValueOffByMoreThanAllowedIsFound) {
  FaultyBackend backend = misreading(1e-3f);
  DifferentialConfig config = small_config();
  config.largest_difference = 0.9e-3f;
  const DifferentialReport report = report_of(backend, config);
  EXPECT_EQ(report.disagreement, Disagreement::value);
  expect_place(report, Side::value, BitWidth::int4, 9, 1, 20);
  EXPECT_NEAR(report.difference, 1e-3, 1e-5);
  EXPECT_THAT(report.what,
              HasSubstr("value read at int4, position 9, head 1, channel 20: expected "));
}

// The worst read is reported, not the first that is bad.
TEST(Differential, TheWorstOfManyValuesIsFound) {
  FaultyBackend backend([](const BlockLayout& layout, const KvBlock& block, Tier tier, int first,
                           int count, std::span<float> k, std::span<float> v,
                           CpuRefBackend& oracle) {
    Status status = oracle.dequantize_for_attention(layout, block, tier, first, count, k, v);
    if (status.ok() && count == kBlockPositions) {
      const auto row = static_cast<std::size_t>(layout.shape().row());
      const float share = tier.key == BitWidth::int4 ? 0.75f : 0.25f;
      k[21 * row + 8] += share * std::fabs(k[21 * row + 8]);
    }
    return status;
  });
  const DifferentialReport report = report_of(backend, small_config());
  EXPECT_EQ(report.disagreement, Disagreement::value);
  expect_place(report, Side::key, BitWidth::int4, 21, 0, 8);
  EXPECT_NEAR(report.difference, 0.75, 1e-5) << "in rows where all are equal";
}

TEST(Differential, AValueOffByLessThanAllowedIsReportedAndForgiven) {
  FaultyBackend backend = misreading(1e-3f);
  DifferentialConfig config = small_config();
  config.largest_difference = 1.1e-3f;
  const DifferentialReport report = report_of(backend, config);
  EXPECT_TRUE(report.agrees);
  expect_place(report, Side::value, BitWidth::int4, 9, 1, 20);
  EXPECT_NEAR(report.difference, 1e-3, 1e-5);
}

TEST(Differential, AReadThatGivesNoNumberIsFound) {
  FaultyBackend backend([](const BlockLayout& layout, const KvBlock& block, Tier tier, int first,
                           int count, std::span<float> k, std::span<float> v,
                           CpuRefBackend& oracle) {
    Status status = oracle.dequantize_for_attention(layout, block, tier, first, count, k, v);
    if (status.ok() && count == 1 && tier.key == BitWidth::int2) {
      k[33] = std::numeric_limits<float>::quiet_NaN();
    }
    return status;
  });
  DifferentialConfig config = small_config();
  config.largest_difference = 100;
  const DifferentialReport report = report_of(backend, config);
  EXPECT_EQ(report.disagreement, Disagreement::value);
  expect_place(report, Side::key, BitWidth::int2, 0, 1, 1);
  EXPECT_TRUE(std::isinf(report.difference));
}

// Stores whatever `spared` says as zero, in place of refusing it.
struct Lenient {
  std::function<bool(float)> spared;
  int position = 0, element = 0;  // of the first it stored
  float value = 0;
  bool seen = false;

  FaultyBackend backend() {
    return FaultyBackend([this](const BlockLayout& layout, std::span<const float> k,
                                std::span<const float> v, KvBlock& block, CpuRefBackend& oracle) {
      std::vector<float> mended(k.begin(), k.end());
      for (std::size_t i = 0; i < mended.size(); ++i) {
        if (!spared(mended[i])) continue;
        if (!seen) {
          const auto row = static_cast<std::size_t>(layout.shape().row());
          position = block.positions + static_cast<int>(i / row);
          element = static_cast<int>(i % row);
          value = mended[i];
          seen = true;
        }
        mended[i] = 0;
      }
      return oracle.quantize_append(layout, mended, v, block);
    });
  }
};

TEST(Differential, ARefusalMissedIsFound) {
  const std::function<bool(float)> kSpared[] = {
      [](float x) { return std::isnan(x); },
      [](float x) { return x == std::numeric_limits<float>::infinity(); },
      [](float x) { return x == -std::numeric_limits<float>::infinity(); },
      [](float x) { return x > 65280 && std::isfinite(x); },
      [](float x) { return x < -65280 && std::isfinite(x); },
  };
  for (const auto& spared : kSpared) {
    Lenient lenient{.spared = spared};
    FaultyBackend backend = lenient.backend();
    const DifferentialReport report = report_of(backend, small_config());
    ASSERT_TRUE(lenient.seen);
    EXPECT_EQ(report.disagreement, Disagreement::refusal);
    EXPECT_EQ(report.input, Input::not_finite);
    expect_place(report, Side::key, BitWidth::bf16, lenient.position, lenient.element / 32,
                 lenient.element % 32);
    EXPECT_EQ(report.expected, static_cast<double>(Code::not_finite));
    EXPECT_EQ(report.found, static_cast<double>(Code::ok));
    EXPECT_THAT(report.what, StartsWith("not_finite: key append at bf16, position "));
    EXPECT_THAT(report.what, HasSubstr(": expected not_finite, found ok"));
  }
}

TEST(Differential, ARefusalTooManyIsFound) {
  FaultyBackend largest([](const BlockLayout& layout, std::span<const float> k,
                           std::span<const float> v, KvBlock& block, CpuRefBackend& oracle) {
    int rows;
    const bool meant = check_append(layout, k, v, block, &rows).ok();
    for (const float x : k) {
      if (meant && std::fabs(x) == 65280)
        return Status::fail(Code::not_finite, "too large by its measure");
    }
    return oracle.quantize_append(layout, k, v, block);
  });
  DifferentialReport report = report_of(largest, small_config());
  EXPECT_EQ(report.disagreement, Disagreement::refusal);
  EXPECT_STREQ(report.what,
               "largest: key append at bf16, position 0, head 0, channel 0: expected ok, found "
               "not_finite");

  FaultyBackend empty([](const BlockLayout& layout, std::span<const float> k,
                         std::span<const float> v, KvBlock& block, CpuRefBackend& oracle) {
    if (k.empty() && v.empty()) return Status::fail(Code::invalid_argument, "nothing to append");
    return oracle.quantize_append(layout, k, v, block);
  });
  report = report_of(empty, small_config());
  EXPECT_THAT(report.what, HasSubstr("expected ok, found invalid_argument"));

  FaultyBackend narrow([](const BlockLayout& layout, const KvBlock& block, Tier tier, int first,
                          int count, std::span<float> k, std::span<float> v,
                          CpuRefBackend& oracle) {
    if (tier.value == BitWidth::int2) return Status::fail(Code::unavailable, "no int2 here");
    return oracle.dequantize_for_attention(layout, block, tier, first, count, k, v);
  });
  report = report_of(narrow, small_config());
  EXPECT_EQ(report.disagreement, Disagreement::refusal);
  EXPECT_THAT(report.what, HasSubstr("expected ok, found unavailable"));
}

TEST(Differential, AReadThatShouldBeRefusedIsFound) {
  const auto kind = [](Code spared) {
    return FaultyBackend([spared](const BlockLayout& layout, const KvBlock& block, Tier tier,
                                  int first, int count, std::span<float> k, std::span<float> v,
                                  CpuRefBackend& oracle) {
      Status status = oracle.dequantize_for_attention(layout, block, tier, first, count, k, v);
      return status.code() == spared ? Status() : status;
    });
  };
  FaultyBackend ranges = kind(Code::invalid_argument);
  DifferentialReport report = report_of(ranges, small_config());
  EXPECT_EQ(report.disagreement, Disagreement::refusal);
  EXPECT_THAT(report.what, HasSubstr("read at bf16, position 0, head 0, channel 0: expected "
                                     "invalid_argument, found ok"));
  FaultyBackend planes = kind(Code::unavailable);
  report = report_of(planes, small_config());
  EXPECT_THAT(report.what, HasSubstr("value read at int8, position 0, head 0, channel 0: expected "
                                     "unavailable, found ok"));
}

// Changes the block when the oracle refuses.
FaultyBackend spoiling_refusals(std::function<void(const BlockLayout&, KvBlock&)> spoil) {
  return FaultyBackend([spoil](const BlockLayout& layout, std::span<const float> k,
                               std::span<const float> v, KvBlock& block, CpuRefBackend& oracle) {
    Status status = oracle.quantize_append(layout, k, v, block);
    if (status.code() == Code::not_finite) spoil(layout, block);
    return status;
  });
}

TEST(Differential, ABlockChangedByARefusedAppendIsFound) {
  FaultyBackend rows = spoiling_refusals([](const BlockLayout& layout, KvBlock& block) {
    std::memset(row_in(layout, block, Side::value, Plane::bf16, block.positions, 1) + 2 * 17, 0, 2);
  });
  DifferentialReport report = report_of(rows, small_config());
  EXPECT_EQ(report.disagreement, Disagreement::refusal);
  EXPECT_EQ(report.input, Input::not_finite);
  expect_place(report, Side::value, BitWidth::bf16, 0, 1, 17);
  EXPECT_THAT(report.what, StartsWith("not_finite: value element after a refused append at bf16"));
  EXPECT_EQ(report.found, 0);

  FaultyBackend positions =
      spoiling_refusals([](const BlockLayout&, KvBlock& block) { block.positions += 1; });
  report = report_of(positions, small_config());
  EXPECT_EQ(report.disagreement, Disagreement::refusal);
  EXPECT_THAT(report.what, HasSubstr("count of positions after a refused append"));
  EXPECT_EQ(report.expected + 1, report.found);
}

// Writes the first row after those it was given, of one head.
FaultyBackend overrunning(int head) {
  return FaultyBackend([head](const BlockLayout& layout, std::span<const float> k,
                              std::span<const float> v, KvBlock& block, CpuRefBackend& oracle) {
    Status status = oracle.quantize_append(layout, k, v, block);
    if (status.ok() && !k.empty()) {
      std::memset(row_in(layout, block, Side::key, Plane::bf16, block.positions, head) + 2 * 3, 0,
                  4);
    }
    return status;
  });
}

TEST(Differential, ARowWrittenOneTooFarIsFound) {
  FaultyBackend last = overrunning(1);
  DifferentialReport report = report_of(last, small_config());  // the first block comes in bulk
  EXPECT_EQ(report.disagreement, Disagreement::stored);
  expect_place(report, Side::key, BitWidth::bf16, 32, 1, 3);
  EXPECT_THAT(report.what, HasSubstr("key byte behind a plane at bf16, position 32"));

  FaultyBackend first = overrunning(0);  // into the next head
  report = report_of(first, small_config());
  EXPECT_EQ(report.position, 0);
  EXPECT_EQ(report.head, 1);
  EXPECT_THAT(report.what, HasSubstr("key element at bf16"));
}

TEST(Differential, ARowWrittenTooFarInAnOpenBlockIsFound) {
  FaultyBackend backend([](const BlockLayout& layout, std::span<const float> k,
                           std::span<const float> v, KvBlock& block, CpuRefBackend& oracle) {
    Status status = oracle.quantize_append(layout, k, v, block);
    if (status.ok() && block.positions == 5) {
      std::memset(row_in(layout, block, Side::value, Plane::bf16, 5, 0) + 2 * 11, 0, 2);
    }
    return status;
  });
  const DifferentialReport report = report_of(backend, small_config());
  EXPECT_EQ(report.disagreement, Disagreement::stored);
  expect_place(report, Side::value, BitWidth::bf16, 5, 0, 11);
  EXPECT_EQ(report.found, 0);
}

TEST(Differential, AReadThatWritesTooFarIsFound) {
  FaultyBackend backend([](const BlockLayout& layout, const KvBlock& block, Tier tier, int first,
                           int count, std::span<float> k, std::span<float> v,
                           CpuRefBackend& oracle) {
    Status status = oracle.dequantize_for_attention(layout, block, tier, first, count, k, v);
    if (status.ok() && count == kBlockPositions) v.data()[v.size() + 34] = 0;
    return status;
  });
  const DifferentialReport report = report_of(backend, small_config());
  EXPECT_EQ(report.disagreement, Disagreement::value);
  expect_place(report, Side::value, BitWidth::bf16, 32, 1, 2);
  EXPECT_THAT(report.what, HasSubstr("value element past the end of a read at bf16"));
}

TEST(Differential, AReadThatChangesTheBlockIsFound) {
  FaultyBackend backend([](const BlockLayout& layout, const KvBlock& block, Tier tier, int first,
                           int count, std::span<float> k, std::span<float> v,
                           CpuRefBackend& oracle) {
    Status status = oracle.dequantize_for_attention(layout, block, tier, first, count, k, v);
    if (status.ok() && tier.key == BitWidth::int2) {
      KvBlock writable = block;
      row_in(layout, writable, Side::key, Plane::hi2, 3, 0)[2] = 0;
    }
    return status;
  });
  DifferentialConfig config = small_config();
  config.largest_difference = 10;  // later reads of the block are wrong, and are forgiven
  const DifferentialReport report = report_of(backend, config);
  EXPECT_EQ(report.disagreement, Disagreement::stored);
  EXPECT_EQ(report.position, 3);
  EXPECT_EQ(report.channel % 8, 2);
  EXPECT_THAT(report.what, HasSubstr("key code after reads at int8, position 3, head 0"));
}

// A fault of a grave kind is reported though lighter ones came before it.
TEST(Differential, RefusalsOutweighBytesAndBytesOutweighValues) {
  FaultyBackend backend([](const BlockLayout& layout, std::span<const float> k,
                           std::span<const float> v, KvBlock& block, CpuRefBackend& oracle) {
    Status status = oracle.quantize_append(layout, k, v, block);
    if (status.code() == Code::not_finite) return Status();
    if (!k.empty() && block.complete() && block.plane(Side::key, Plane::hi2) != nullptr) {
      block.plane(Side::key, Plane::hi2)[0] ^= 3;
    }
    return status;
  });
  EXPECT_EQ(report_of(backend, small_config()).disagreement, Disagreement::refusal);
}

}  // namespace
}  // namespace kvquant
