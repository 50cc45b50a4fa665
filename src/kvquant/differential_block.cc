#include "kvquant/differential_block-inl.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include "kvquant/codec.h"

namespace kvquant::differential {
namespace {

constexpr Side kBothSides[] = {Side::key, Side::value};
constexpr Plane kEveryPlane[] = {Plane::hi2, Plane::mid2, Plane::low4, Plane::bf16};
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr std::align_val_t kAlignment{64};
constexpr std::uint8_t kUntouched = 0x5a;

// What two blocks hold in one place, as bits and as the numbers that they mean.
struct Pair {
  std::uint32_t expected_bits, found_bits;
  double expected, found;
};

// The place where `pair_at(position, head, channel)` gives the numbers that are furthest apart.
template <class PairAt>
bool find_worst(const KvShape& shape, const PairAt& pair_at, Finding& finding) {
  double worst = -1;
  for (int position = 0; position < kBlockPositions; ++position) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int channel = 0; channel < shape.head_width; ++channel) {
        const Pair pair = pair_at(position, head, channel);
        if (pair.expected_bits == pair.found_bits) continue;
        const double distance = apart(pair.expected, pair.found);
        if (distance <= worst) continue;
        worst = distance;
        finding.position = position;
        finding.head = head;
        finding.channel = channel;
        finding.expected = pair.expected;
        finding.found = pair.found;
      }
    }
  }
  return worst >= 0;
}

std::uint16_t get16(const std::uint8_t* bytes) {
  std::uint16_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

class StoredComparison {
 public:
  StoredComparison(const BlockLayout& layout, const TestBlock& expected, const TestBlock& found)
      : layout_(layout), expected_(expected), found_(found) {}

  // False where the two hold the same bytes and positions.
  bool find(Finding& finding) const {
    if (expected_.same_as(found_)) return false;
    finding = {};
    finding.kind = Disagreement::stored;
    finding.difference = kInfinite;
    for (const Side side : kBothSides) {
      finding.side = side;
      if (find_rows(side, finding) || find_codes(side, finding)) return true;
    }
    for (const Side side : kBothSides) {
      finding.side = side;
      if (find_elsewhere(side, finding)) return true;
    }
    finding.side = Side::key;
    finding.part = "count of positions";
    finding.expected = expected_.block.positions;
    finding.found = found_.block.positions;
    return true;
  }

 private:
  bool find_rows(Side side, Finding& finding) const {
    finding.part = "element";
    finding.width = BitWidth::bf16;
    const std::size_t row_bytes = layout_.plane(side, Plane::bf16).row_bytes;
    const auto at = [&](int position, int head, int channel) {
      const std::size_t offset = row_of(position, head) * row_bytes + 2 * index(channel);
      const std::uint16_t expected = get16(expected_.plane(side, Plane::bf16) + offset);
      const std::uint16_t found = get16(found_.plane(side, Plane::bf16) + offset);
      return Pair{expected, found, static_cast<double>(bf16_to_float(expected)),
                  static_cast<double>(bf16_to_float(found))};
    };
    return find_worst(layout_.shape(), at, finding);
  }

  bool find_codes(Side side, Finding& finding) const {
    const QuantScheme& scheme = layout_.scheme().side(side);
    if (scheme.bits == BitWidth::bf16) return false;
    finding.width = scheme.bits;
    if (find_params(side, layout_.range_plane(side), "scale", "offset", finding)) return true;
    finding.part = "code";
    const auto at = [&](int position, int head, int channel) {
      const int expected = code(expected_, side, position, head, channel);
      const int found = code(found_, side, position, head, channel);
      return Pair{static_cast<std::uint32_t>(expected), static_cast<std::uint32_t>(found),
                  static_cast<double>(expected), static_cast<double>(found)};
    };
    if (find_worst(layout_.shape(), at, finding)) return true;
    finding.width = BitWidth::int2;
    return has_fitted_pair(scheme) &&
           find_params(side, Plane::hi2, "fitted scale", "fitted offset", finding);
  }

  bool find_params(Side side, Plane plane, const char* scale, const char* offset,
                   Finding& finding) const {
    const PlaneLayout& parts = layout_.plane(side, plane);
    const auto search = [&](std::size_t start) {
      return find_worst(
          layout_.shape(),
          [&](int position, int head, int channel) {
            const std::size_t at = start + 2 * layout_.group_of(side, position, head, channel);
            const std::uint16_t expected = get16(expected_.plane(side, plane) + at);
            const std::uint16_t found = get16(found_.plane(side, plane) + at);
            return Pair{expected, found, static_cast<double>(fp16_to_float(expected)),
                        static_cast<double>(fp16_to_float(found))};
          },
          finding);
    };
    finding.part = scale;
    if (search(parts.scales)) return true;
    finding.part = offset;
    return parts.bytes > parts.offsets && search(parts.offsets);
  }

  // Padding and the room behind planes, by the byte. Behind a plane of rows a byte stands where the
  // row after the last one would have it.
  bool find_elsewhere(Side side, Finding& finding) const {
    for (const Plane plane : kEveryPlane) {
      const PlaneLayout& parts = layout_.plane(side, plane);
      const std::size_t end = parts.bytes + TestBlock::room_behind(parts);
      for (std::size_t i = 0; i < end; ++i) {
        const std::uint8_t expected = expected_.plane(side, plane)[i];
        const std::uint8_t found = found_.plane(side, plane)[i];
        if (expected == found) continue;
        const bool behind = i >= parts.bytes;
        finding.part = behind ? "byte behind a plane" : "byte of padding";
        finding.width = plane == Plane::bf16 ? BitWidth::bf16 : layout_.scheme().side(side).bits;
        finding.position = behind ? kBlockPositions : 0;
        finding.head = behind ? layout_.shape().kv_heads - 1 : 0;
        finding.channel =
            behind && plane == Plane::bf16 ? static_cast<int>(i - parts.bytes) / 2 : 0;
        finding.expected = expected;
        finding.found = found;
        return true;
      }
    }
    return false;
  }

  int code(const TestBlock& block, Side side, int position, int head, int channel) const {
    const BitWidth bits = layout_.scheme().side(side).bits;
    const int width = layout_.shape().head_width;
    const auto row = [&](Plane plane) {
      return block.plane(side, plane) +
             row_of(position, head) * layout_.plane(side, plane).row_bytes;
    };
    int value = get2(row(Plane::hi2), width, channel);
    if (bits >= BitWidth::int4) value = value * 4 + get2(row(Plane::mid2), width, channel);
    if (bits >= BitWidth::int8) value = value * 16 + get4(row(Plane::low4), width, channel);
    return value;
  }

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  static std::size_t row_of(int position, int head) {
    return index(head * kBlockPositions + position);
  }

  const BlockLayout& layout_;
  const TestBlock& expected_;
  const TestBlock& found_;
};

}  // namespace

Status TestBlock::reserve(const BlockLayout& layout) {
  size_ = 0;
  for (const Side side : kBothSides) {
    for (const Plane plane : kEveryPlane) {
      at_[static_cast<int>(side)][static_cast<int>(plane)] = size_;
      const PlaneLayout& parts = layout.plane(side, plane);
      size_ += parts.bytes + room_behind(parts);
    }
  }
  memory_.reset(static_cast<std::uint8_t*>(::operator new[](size_, kAlignment, std::nothrow)));
  if (memory_ != nullptr) return {};
  return Status::fail(Code::out_of_memory, "differential: no memory for a block of %zu bytes",
                      size_);
}

void TestBlock::FreeAligned::operator()(std::uint8_t* memory) const {
  ::operator delete[](memory, kAlignment);
}

// One row of one head: where a row too many would go.
std::size_t TestBlock::room_behind(const PlaneLayout& plane) {
  return (plane.row_bytes + 63) / 64 * 64;
}

void TestBlock::reset(PlaneSet key, PlaneSet value) {
  std::memset(memory_.get(), kUntouched, size_);
  block.positions = 0;
  keep(key, value);
}

void TestBlock::keep(PlaneSet key, PlaneSet value) {
  for (const Side side : kBothSides) {
    for (const Plane plane : kEveryPlane) {
      const bool there = (side == Side::key ? key : value).has(plane);
      const std::size_t at = at_[static_cast<int>(side)][static_cast<int>(plane)];
      block.plane(side, plane) = there ? memory_.get() + at : nullptr;
    }
  }
}

void TestBlock::copy_from(const TestBlock& other) {
  std::memcpy(memory_.get(), other.memory_.get(), size_);
  block.positions = other.block.positions;
}

bool TestBlock::same_as(const TestBlock& other) const {
  return std::memcmp(memory_.get(), other.memory_.get(), size_) == 0 &&
         block.positions == other.block.positions;
}

double apart(double a, double b) {
  if (a == b) return 0;
  const double distance = std::fabs(a - b);
  return std::isnan(distance) ? kInfinite : distance;
}

bool find_stored_difference(const BlockLayout& layout, const TestBlock& expected,
                            const TestBlock& found, Finding& finding) {
  return StoredComparison(layout, expected, found).find(finding);
}

}  // namespace kvquant::differential
