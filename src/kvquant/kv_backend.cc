#include "kvquant/kv_backend.h"

#include <cmath>

#include "kvquant/codec.h"

namespace kvquant {

Status check_append(const BlockLayout& layout, std::span<const float> k, std::span<const float> v,
                    const KvBlock& block, int* rows) {
  const auto row = static_cast<std::size_t>(layout.shape().row());
  if (k.size() != v.size()) {
    return Status::fail(Code::invalid_argument,
                        "k and v: expected equal sizes, found %zu and %zu elements", k.size(),
                        v.size());
  }
  if (k.size() % row != 0) {
    return Status::fail(Code::invalid_argument,
                        "k and v: expected whole rows of %zu elements, found %zu elements", row,
                        k.size());
  }
  const std::size_t room = static_cast<std::size_t>(kBlockPositions - block.positions);
  if (k.size() / row > room) {
    return Status::fail(Code::invalid_argument, "k and v: expected at most %zu rows, found %zu",
                        room, k.size() / row);
  }
  for (const Side side : {Side::key, Side::value}) {
    if (block.plane(side, Plane::bf16) == nullptr) {
      return Status::fail(Code::unavailable, "%s: the block has no bf16 plane to append to",
                          name_of(side));
    }
  }
  *rows = static_cast<int>(k.size() / row);
  return {};
}

Status check_values(const BlockLayout& layout, Side side, std::span<const float> rows,
                    int first_position) {
  const KvShape& shape = layout.shape();
  const float largest = largest_value(layout.scheme().side(side), shape.head_width);
  const auto row = static_cast<std::size_t>(shape.row());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (std::fabs(rows[i]) <= largest) continue;  // false for NaN
    const int position = first_position + static_cast<int>(i / row);
    const int head = static_cast<int>(i % row) / shape.head_width;
    const int channel = static_cast<int>(i % row) % shape.head_width;
    return Status::fail(
        Code::not_finite,
        "%s at position %d, head %d, channel %d: expected a finite number of magnitude at "
        "most %g, found %g",
        name_of(side), position, head, channel, static_cast<double>(largest),
        static_cast<double>(rows[i]));
  }
  return {};
}

Status check_read(const BlockLayout& layout, const KvBlock& block, Tier tier, int first, int count,
                  std::span<const float> k, std::span<const float> v) {
  if (first < 0 || count < 0 || first > block.positions || count > block.positions - first) {
    return Status::fail(Code::invalid_argument,
                        "range: expected positions within [0, %d), found %d positions from %d",
                        block.positions, count, first);
  }
  const std::size_t elements =
      static_cast<std::size_t>(count) * static_cast<std::size_t>(layout.shape().row());
  if (k.size() != elements || v.size() != elements) {
    return Status::fail(Code::invalid_argument,
                        "k and v: expected %zu elements each, found %zu and %zu", elements,
                        k.size(), v.size());
  }
  for (const Side side : {Side::key, Side::value}) {
    const BitWidth width = tier.side(side);
    const QuantScheme& scheme = layout.scheme().side(side);
    const bool coded = width != BitWidth::bf16;
    if (coded &&
        (scheme.bits == BitWidth::bf16 || width > scheme.bits || width < scheme.narrowest)) {
      return Status::fail(Code::invalid_argument, "%s: its scheme cannot be read at %s",
                          name_of(side), name_of(width));
    }
    if (!block.present(side).contains(planes_for(width))) {
      return Status::fail(Code::unavailable,
                          "%s: a read at %s needs plane set 0x%02x, found 0x%02x", name_of(side),
                          name_of(width), planes_for(width).bits(), block.present(side).bits());
    }
    if (coded && !block.complete()) {
      return Status::fail(Code::unavailable,
                          "%s: codes exist once a block has %d positions, found %d", name_of(side),
                          kBlockPositions, block.positions);
    }
  }
  return {};
}

}  // namespace kvquant
