// The SIMD backend against the oracle, bit for bit, on every instruction set of this CPU: generated
// shapes, schemes, inputs and plane sets; and codes that no encoder made.
#include "kvquant/cpu_simd.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kvquant/codec.h"
#include "kvquant/cpu_ref.h"

namespace kvquant {
namespace {

using Random = std::mt19937_64;

constexpr Side kBothSides[] = {Side::key, Side::value};
constexpr Plane kEveryPlane[] = {Plane::hi2, Plane::mid2, Plane::low4, Plane::bf16};
constexpr std::size_t kGuard = 64;
constexpr std::uint8_t kFill = 0xa5;

int below(Random& random, int end) {
  return static_cast<int>(random() % static_cast<std::uint64_t>(end));
}

template <class T>
T one_of(Random& random, std::initializer_list<T> choices) {
  return choices.begin()[below(random, static_cast<int>(choices.size()))];
}

// A block of some planes, with a guard behind each; its bytes are one vector, to be compared whole.
class Memory {
 public:
  Memory(const BlockLayout& layout, const PlaneSet (&planes)[kSides]) {
    std::size_t size = 0;
    for_each(layout, planes, [&](Side, Plane, std::size_t bytes) { size += bytes + kGuard; });
    bytes_.assign(size, kFill);
    std::size_t at = 0;
    for_each(layout, planes, [&](Side side, Plane plane, std::size_t bytes) {
      block.plane(side, plane) = bytes_.data() + at;
      at += bytes + kGuard;
    });
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::vector<std::uint8_t>& bytes() { return bytes_; }

  KvBlock block;

 private:
  template <class Visit>
  static void for_each(const BlockLayout& layout, const PlaneSet (&planes)[kSides],
                       const Visit& visit) {
    for (const Side side : kBothSides) {
      for (const Plane plane : kEveryPlane) {
        if (!planes[static_cast<int>(side)].has(plane)) continue;
        visit(side, plane, layout.plane(side, plane).bytes);
      }
    }
  }

  std::vector<std::uint8_t> bytes_;
};

struct Case {
  BlockLayout layout;
  std::vector<float> rows[kSides];  // kBlockPositions of them

  const KvShape& shape() const { return layout.shape(); }
  std::span<const float> some(Side side, int first, int count) const {
    const auto row = static_cast<std::size_t>(shape().row());
    return std::span(rows[static_cast<int>(side)])
        .subspan(static_cast<std::size_t>(first) * row, static_cast<std::size_t>(count) * row);
  }
};

KvShape any_shape(Random& random) {
  const int width =
      one_of(random, {16, 32, 48, 64, 64, 80, 112, 128, 128, 128, 192, 256, 320, 512});
  return {1 + below(random, width >= 256 ? 2 : 4), width};
}

QuantScheme any_scheme(Random& random, const KvShape& shape) {
  QuantScheme scheme;
  scheme.bits = one_of(random, {BitWidth::int8, BitWidth::int8, BitWidth::int4, BitWidth::int4,
                                BitWidth::int2, BitWidth::bf16});
  scheme.grouping =
      one_of(random, {Grouping::per_token, Grouping::per_token, Grouping::per_channel});
  const bool per_token = scheme.grouping == Grouping::per_token;
  const int whole = per_token ? shape.row() : kBlockPositions;
  scheme.group_size = per_token ? one_of(random, {shape.head_width, shape.row(), 0}) : 0;
  while (scheme.group_size == 0 || whole % scheme.group_size != 0) {
    scheme.group_size = 1 + below(random, whole);
  }
  scheme.symmetric = below(random, 2) == 0;
  scheme.hadamard =
      std::has_single_bit(static_cast<unsigned>(shape.head_width)) && below(random, 2) == 0;
  const int bits = static_cast<int>(scheme.bits);
  scheme.narrowest =
      bits == 16 ? BitWidth::int2 : one_of(random, {BitWidth::int2, BitWidth::int2, scheme.bits});
  if (bits == 8 && below(random, 3) == 0) scheme.narrowest = BitWidth::int4;
  if (bits <= 4 && below(random, 2) == 0) scheme.clip_percent = 50 + below(random, 51);
  return scheme;
}

// One row's worth of numbers of some kind, none larger than `most`.
class Source {
 public:
  Source(Random& random, float most)
      : random_(random),
        most_(most),
        kind_(below(random, 10)),
        size_(one_of(random, {0x1p-40f, 0x1p-24f, 0x1p-14f, 1.0f, 1.0f, 1.0f, 1000.0f})),
        constant_(static_cast<float>(normal_(random)) * size_) {}

  float next(int channel) { return std::fmin(std::fmax(raw(channel), -most_), most_); }

 private:
  float raw(int channel) {
    const float x = static_cast<float>(normal_(random_));
    switch (kind_) {
      case 0:
        return x / std::fmax(static_cast<float>(std::abs(normal_(random_))), 1e-3f) * size_;
      case 1:
        return channel % 61 == 5 ? 100.0f * x * size_ : x * size_;
      case 2:
        return constant_;
      case 3:
        return below(random_, 2) == 0 ? 0.0f : -0.0f;
      case 4:
        return std::numeric_limits<float>::denorm_min() * static_cast<float>(below(random_, 1000));
      case 5:
        return x > 0 ? most_ : -most_;
      case 6:
        return most_;
      case 7:
        return 50.0f * size_ + x * size_ * 0.01f;
      default:
        return x * size_;
    }
  }

  Random& random_;
  const float most_;
  const int kind_;
  const float size_;
  std::normal_distribution<double> normal_;
  const float constant_;
};

Case any_case(Random& random) {
  const KvShape shape = any_shape(random);
  Case made = {
      BlockLayout::make(shape, {any_scheme(random, shape), any_scheme(random, shape)}).value(), {}};
  for (const Side side : kBothSides) {
    const float most = largest_value(made.layout.scheme().side(side), shape.head_width);
    std::vector<float>& rows = made.rows[static_cast<int>(side)];
    for (int position = 0; position < kBlockPositions; ++position) {
      Source source(random, most);
      for (int i = 0; i < shape.row(); ++i) rows.push_back(source.next(i % shape.head_width));
    }
  }
  return made;
}

// Every plane, or some of the code planes left out: a side without hi2 gets no codes at all.
void any_planes(Random& random, const BlockLayout& layout, PlaneSet (&planes)[kSides]) {
  for (const Side side : kBothSides) {
    PlaneSet& set = planes[static_cast<int>(side)];
    set = layout.planes(side);
    if (below(random, 3) != 0) continue;
    const BitWidth kept = one_of(random, {BitWidth::bf16, BitWidth::int2, BitWidth::int4});
    set = PlaneSet((set.bits() & planes_for(kept).bits()) | planes_for(BitWidth::bf16).bits());
  }
}

void append_in_pieces(Random& random, KvBackend& backend, const Case& c, KvBlock& block) {
  while (!block.complete()) {
    const int first = block.positions;
    const int rows = below(random, 3) == 0 ? kBlockPositions - first
                                           : 1 + below(random, kBlockPositions - first);
    const Status status = backend.quantize_append(c.layout, c.some(Side::key, first, rows),
                                                  c.some(Side::value, first, rows), block);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(block.positions, first + rows);
  }
}

std::string describe(const QuantScheme& s) {
  return std::string(name_of(s.bits)) +
         (s.grouping == Grouping::per_token ? " token " : " channel ") +
         std::to_string(s.group_size) + (s.symmetric ? " symmetric" : "") +
         (s.hadamard ? " hadamard" : "") + " narrowest " + name_of(s.narrowest) + " clip " +
         std::to_string(s.clip_percent);
}

std::string describe(const BlockLayout& layout) {
  return std::to_string(layout.shape().kv_heads) + " x " +
         std::to_string(layout.shape().head_width) + ", keys " + describe(layout.scheme().key) +
         ", values " + describe(layout.scheme().value);
}

// Every width of both sides, over some range, in both kinds of store.
void expect_equal_reads(Random& random, const BlockLayout& layout, KvBlock& block) {
  CpuRefBackend oracle;
  const auto row = static_cast<std::size_t>(layout.shape().row());
  for (const BitWidth width : {BitWidth::bf16, BitWidth::int8, BitWidth::int4, BitWidth::int2}) {
    Tier tier = {width, width};
    for (const Side side : kBothSides) {
      const QuantScheme& scheme = layout.scheme().side(side);
      const bool coded = scheme.bits != BitWidth::bf16 && width <= scheme.bits &&
                         width >= scheme.narrowest &&
                         block.present(side).contains(planes_for(width));
      if (!coded) (side == Side::key ? tier.key : tier.value) = BitWidth::bf16;
    }
    const int first = below(random, kBlockPositions);
    const int count = 1 + below(random, kBlockPositions - first);
    const std::size_t elements = static_cast<std::size_t>(count) * row;
    std::vector<float> expected(2 * elements);
    const std::span<float> all(expected);
    ASSERT_TRUE(oracle
                    .dequantize_for_attention(layout, block, tier, first, count,
                                              all.first(elements), all.last(elements))
                    .ok());
    for (const auto stores : {CpuSimdBackend::Stores::cached, CpuSimdBackend::Stores::streaming}) {
      CpuSimdBackend backend(stores);
      // An odd start has no vector's alignment; the guard behind must stay.
      const std::size_t start = below(random, 2) == 0 ? 0 : 1;
      std::vector<float> memory(2 * elements + 64, 12345.0f);
      void* aligned = memory.data();
      std::size_t room = memory.size() * sizeof(float);
      std::align(64, 2 * elements * sizeof(float), aligned, room);
      const std::span<float> found(static_cast<float*>(aligned) + start, 2 * elements);
      const Status status = backend.dequantize_for_attention(
          layout, block, tier, first, count, found.first(elements), found.last(elements));
      ASSERT_TRUE(status.ok()) << status.message();
      for (std::size_t i = 0; i < 2 * elements; ++i) {
        ASSERT_EQ(bits_of(expected[i]), bits_of(found[i]))
            << "read at " << name_of(width) << ", positions from " << first << ", element " << i
            << " of " << 2 * elements << ": expected " << expected[i] << ", found " << found[i];
      }
      ASSERT_EQ(found.data()[2 * elements], 12345.0f);
    }
  }
}

class CpuSimd : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_TRUE(CpuSimdBackend::force_target(GetParam()).ok()); }
  void TearDown() override { CpuSimdBackend::use_best_target(); }
};

INSTANTIATE_TEST_SUITE_P(Targets, CpuSimd,
                         testing::ValuesIn(CpuSimdBackend::targets().begin(),
                                           CpuSimdBackend::targets().end()),
                         [](const testing::TestParamInfo<const char*>& target) {
                           return std::string(target.param);
                         });

TEST_P(CpuSimd, RunsOnTheForcedTarget) { EXPECT_STREQ(CpuSimdBackend::target(), GetParam()); }

TEST_P(CpuSimd, StoresAndReadsTheBitsOfTheOracle) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const Case c = any_case(random);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + describe(c.layout));
    PlaneSet planes[kSides];
    any_planes(random, c.layout, planes);
    Memory expected(c.layout, planes);
    Memory found(c.layout, planes);
    CpuRefBackend oracle;
    CpuSimdBackend backend;
    append_in_pieces(random, oracle, c, expected.block);
    append_in_pieces(random, backend, c, found.block);
    ASSERT_FALSE(testing::Test::HasFatalFailure());
    for (const Side side : kBothSides) {
      for (const Plane plane : kEveryPlane) {
        if (found.block.plane(side, plane) == nullptr) continue;
        const std::size_t bytes = c.layout.plane(side, plane).bytes + kGuard;
        ASSERT_EQ(0, std::memcmp(expected.block.plane(side, plane), found.block.plane(side, plane),
                                 bytes))
            << name_of(side) << " plane " << name_of(plane);
      }
    }
    expect_equal_reads(random, c.layout, found.block);
    ASSERT_FALSE(testing::Test::HasFatalFailure());
  }
}

// Codes and parameters as another encoder might have written them: any bits, any finite FP16.
TEST_P(CpuSimd, ReadsCodesOfAnyOriginAsTheOracleDoes) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const Case c = any_case(random);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + describe(c.layout));
    const PlaneSet planes[kSides] = {c.layout.planes(Side::key), c.layout.planes(Side::value)};
    Memory memory(c.layout, planes);
    for (std::uint8_t& byte : memory.bytes()) byte = static_cast<std::uint8_t>(random());
    memory.block.positions = kBlockPositions;
    for (const Side side : kBothSides) {
      for (const Plane plane : {Plane::hi2, Plane::mid2, Plane::bf16}) {
        std::uint8_t* start = memory.block.plane(side, plane);
        if (start == nullptr) continue;
        const PlaneLayout& parts = c.layout.plane(side, plane);
        const bool bf16 = plane == Plane::bf16;
        for (std::size_t at = bf16 ? 0 : parts.scales; at < parts.bytes; at += 2) {
          std::uint16_t bits;
          std::memcpy(&bits, start + at, 2);
          const unsigned exponent = bf16 ? 0x7f80u : 0x7c00u;
          if ((bits & exponent) == exponent) bits = static_cast<std::uint16_t>(bits & ~exponent);
          std::memcpy(start + at, &bits, 2);
        }
      }
    }
    expect_equal_reads(random, c.layout, memory.block);
    ASSERT_FALSE(testing::Test::HasFatalFailure());
  }
}

TEST_P(CpuSimd, RefusedValuesChangeNothing) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    Case c = any_case(random);
    const int before = below(random, kBlockPositions);
    const int rows = 1 + below(random, kBlockPositions - before);
    const Side side = one_of(random, {Side::key, Side::value});
    const float most = largest_value(c.layout.scheme().side(side), c.shape().head_width);
    const float sign = below(random, 2) == 0 ? 1.0f : -1.0f;
    const float wrong = sign * one_of(random, {std::numeric_limits<float>::quiet_NaN(),
                                               std::numeric_limits<float>::infinity(),
                                               std::nextafter(most, HUGE_VALF)});
    const std::size_t row = static_cast<std::size_t>(c.shape().row());
    const std::size_t at =
        static_cast<std::size_t>(before) * row + random() % (static_cast<std::size_t>(rows) * row);
    const PlaneSet planes[kSides] = {c.layout.planes(Side::key), c.layout.planes(Side::value)};
    Memory memory(c.layout, planes);
    CpuSimdBackend backend;
    ASSERT_TRUE(backend
                    .quantize_append(c.layout, c.some(Side::key, 0, before),
                                     c.some(Side::value, 0, before), memory.block)
                    .ok());
    c.rows[static_cast<int>(side)][at] = wrong;
    const std::vector<std::uint8_t> held = memory.bytes();
    const auto k = c.some(Side::key, before, rows);
    const auto v = c.some(Side::value, before, rows);
    const Status status = backend.quantize_append(c.layout, k, v, memory.block);
    const Status expected = CpuRefBackend().quantize_append(c.layout, k, v, memory.block);
    ASSERT_EQ(status.code(), Code::not_finite) << "seed " << seed;
    ASSERT_STREQ(status.message(), expected.message());
    ASSERT_EQ(memory.block.positions, before);
    ASSERT_EQ(memory.bytes(), held) << "seed " << seed;
  }
}

TEST(CpuSimdTargets, UnknownOneIsRefusedAndTheBestStays) {
  const std::string best = CpuSimdBackend::target();
  EXPECT_EQ(best, CpuSimdBackend::targets().front());
  const Status status = CpuSimdBackend::force_target("AVX9");
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.message(), testing::HasSubstr("target: expected one of " + best));
  EXPECT_THAT(status.message(), testing::HasSubstr("found AVX9"));
  EXPECT_EQ(best, CpuSimdBackend::target());
}

TEST(CpuSimdTargets, BadSizesGetTheSentenceOfTheOracle) {
  const BlockLayout layout = BlockLayout::make({8, 16}, {}).value();
  std::vector<float> rows(static_cast<std::size_t>(layout.shape().row()) + 1);
  KvBlock none;
  const Status found = CpuSimdBackend().quantize_append(layout, rows, rows, none);
  EXPECT_EQ(found.code(), Code::invalid_argument);
  EXPECT_STREQ(found.message(),
               CpuRefBackend().quantize_append(layout, rows, rows, none).message());
  const Status read = CpuSimdBackend().dequantize_for_attention(layout, none, Tier(), 0, 1, {}, {});
  EXPECT_EQ(read.code(), Code::invalid_argument);
}

}  // namespace
}  // namespace kvquant
