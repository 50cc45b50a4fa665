#include "kvquant/cpu_ref.h"

#include <cmath>
#include <cstring>

#include "kvquant/codec.h"

namespace kvquant {
namespace {

constexpr int kMaxWidth = 512;
constexpr int kMaxRow = 8192;

// One side of a block, by element.
class SideView {
 public:
  SideView(const BlockLayout& layout, Side side, const KvBlock& block)
      : layout_(layout), side_(side), scheme_(layout.scheme().side(side)), block_(block) {}

  float bf16(int position, int head, int channel) const {
    const std::uint8_t* row = row_at(Plane::bf16, position, head);
    std::uint16_t bits;
    std::memcpy(&bits, row + 2 * channel, sizeof bits);
    return bf16_to_float(bits);
  }

  void set_bf16(int position, int head, int channel, float value) const {
    const std::uint16_t bits = float_to_bf16(value);
    std::memcpy(row_at(Plane::bf16, position, head) + 2 * channel, &bits, sizeof bits);
  }

  // The top bits of a code, as many as `width` has.
  int code(BitWidth width, int position, int head, int channel) const {
    const int heads_width = layout_.shape().head_width;
    int code = get2(row_at(Plane::hi2, position, head), heads_width, channel);
    if (width >= BitWidth::int4) {
      code = code * 4 + get2(row_at(Plane::mid2, position, head), heads_width, channel);
    }
    if (width >= BitWidth::int8) {
      code = code * 16 + get4(row_at(Plane::low4, position, head), heads_width, channel);
    }
    return code;
  }

  // Into planes that are zero; a plane that is not there is left out.
  void set_code(int position, int head, int channel, int code) const {
    const int width = layout_.shape().head_width;
    const int bits = static_cast<int>(scheme_.bits);
    put2(row_at(Plane::hi2, position, head), width, channel, code >> (bits - 2));
    if (bits >= 4 && has(Plane::mid2)) {
      put2(row_at(Plane::mid2, position, head), width, channel, (code >> (bits - 4)) & 3);
    }
    if (bits == 8 && has(Plane::low4))
      put4(row_at(Plane::low4, position, head), width, channel, code & 15);
  }

  GroupParams params(Plane plane, std::size_t group) const {
    const PlaneLayout& parts = layout_.plane(side_, plane);
    GroupParams params;
    std::memcpy(&params.scale, at(plane) + parts.scales + 2 * group, 2);
    if (!scheme_.symmetric) std::memcpy(&params.offset, at(plane) + parts.offsets + 2 * group, 2);
    return params;
  }

  void set_params(Plane plane, std::size_t group, GroupParams params) const {
    const PlaneLayout& parts = layout_.plane(side_, plane);
    std::memcpy(at(plane) + parts.scales + 2 * group, &params.scale, 2);
    if (!scheme_.symmetric) std::memcpy(at(plane) + parts.offsets + 2 * group, &params.offset, 2);
  }

  bool has(Plane plane) const { return block_.plane(side_, plane) != nullptr; }

  void clear(Plane plane) const {
    if (has(plane)) std::memset(at(plane), 0, layout_.plane(side_, plane).bytes);
  }

 private:
  // The block's planes are the caller's memory: a view of a const block may write through them.
  std::uint8_t* at(Plane plane) const {
    return block_.planes[static_cast<int>(side_)][static_cast<int>(plane)];
  }
  std::uint8_t* row_at(Plane plane, int position, int head) const {
    const std::size_t row = static_cast<std::size_t>(head * kBlockPositions + position);
    return at(plane) + row * layout_.plane(side_, plane).row_bytes;
  }

  const BlockLayout& layout_;
  Side side_;
  const QuantScheme& scheme_;
  const KvBlock& block_;
};

// An element of a group, in the order of its values.
struct Place {
  int position, head, channel;
};

// Codes one group: `count` values and where each belongs.
template <class PlaceOf>
void encode_group(const BlockLayout& layout, Side side, const SideView& view, const float* values,
                  int stride, int count, const PlaceOf& place_of) {
  const QuantScheme& scheme = layout.scheme().side(side);
  float smallest = values[0];
  float largest = values[0];
  for (int i = 1; i < count; ++i) {
    smallest = std::fmin(smallest, values[i * stride]);
    largest = std::fmax(largest, values[i * stride]);
  }
  const GroupParams params = fit_range(scheme, smallest, largest);
  const Encoder e = encoder(scheme, params);
  LevelSums sums;
  for (int i = 0; i < count; ++i) {
    const int code = encode(e, values[i * stride]);
    add_code(sums, scheme, code);
    const Place place = place_of(i);
    view.set_code(place.position, place.head, place.channel, code);
  }
  const Place first = place_of(0);
  const std::size_t group = layout.group_of(side, first.position, first.head, first.channel);
  if (view.has(layout.range_plane(side))) view.set_params(layout.range_plane(side), group, params);
  if (has_fitted_pair(scheme)) view.set_params(Plane::hi2, group, fit_levels(scheme, params, sums));
}

// A head's row as the coder sees it.
void load_row(const BlockLayout& layout, Side side, const SideView& view, int position, int head,
              float* row) {
  const int width = layout.shape().head_width;
  for (int c = 0; c < width; ++c) row[c] = view.bf16(position, head, c);
  if (layout.scheme().side(side).hadamard) hadamard(row, width);
  for (int c = 0; c < width; ++c) row[c] = flush_small(row[c]);
}

void encode_per_token(const BlockLayout& layout, Side side, const SideView& view) {
  const int width = layout.shape().head_width;
  const int size = layout.scheme().side(side).group_size;
  float row[kMaxRow];
  for (int position = 0; position < kBlockPositions; ++position) {
    for (int head = 0; head < layout.shape().kv_heads; ++head) {
      load_row(layout, side, view, position, head, row + head * width);
    }
    for (int start = 0; start < layout.shape().row(); start += size) {
      encode_group(layout, side, view, row + start, 1, size, [&](int i) {
        return Place{position, (start + i) / width, (start + i) % width};
      });
    }
  }
}

void encode_per_channel(const BlockLayout& layout, Side side, const SideView& view) {
  const int width = layout.shape().head_width;
  const int size = layout.scheme().side(side).group_size;
  float rows[kBlockPositions * kMaxWidth];
  for (int head = 0; head < layout.shape().kv_heads; ++head) {
    for (int position = 0; position < kBlockPositions; ++position) {
      load_row(layout, side, view, position, head, rows + position * width);
    }
    for (int start = 0; start < kBlockPositions; start += size) {
      for (int channel = 0; channel < width; ++channel) {
        encode_group(layout, side, view, rows + start * width + channel, width, size, [&](int i) {
          return Place{start + i, head, channel};
        });
      }
    }
  }
}

void encode_block(const BlockLayout& layout, Side side, KvBlock& block) {
  const SideView view(layout, side, block);
  if (!view.has(Plane::hi2)) return;  // BF16 is all this side is ever read at
  for (const Plane plane : {Plane::hi2, Plane::mid2, Plane::low4}) view.clear(plane);
  if (layout.scheme().side(side).grouping == Grouping::per_token) {
    encode_per_token(layout, side, view);
  } else {
    encode_per_channel(layout, side, view);
  }
}

void decode_row(const BlockLayout& layout, Side side, const SideView& view, BitWidth width,
                int position, int head, float* out) {
  const QuantScheme& scheme = layout.scheme().side(side);
  const int channels = layout.shape().head_width;
  if (width == BitWidth::bf16) {
    for (int c = 0; c < channels; ++c) out[c] = view.bf16(position, head, c);
    return;
  }
  const bool fitted = width == BitWidth::int2 && has_fitted_pair(scheme);
  const Plane plane = fitted ? Plane::hi2 : layout.range_plane(side);
  for (int c = 0; c < channels; ++c) {
    const int top = view.code(width, position, head, c);
    const GroupParams params = view.params(plane, layout.group_of(side, position, head, c));
    const float level = fitted ? fitted_level(scheme, top) : level_of(scheme, width, top);
    out[c] = fp16_to_float(params.offset) + fp16_to_float(params.scale) * level;
  }
  if (scheme.hadamard) hadamard(out, channels);
}

}  // namespace

Status CpuRefBackend::quantize_append(const BlockLayout& layout, std::span<const float> k,
                                      std::span<const float> v, KvBlock& block) {
  int rows = 0;
  if (Status status = check_append(layout, k, v, block, &rows); !status.ok()) return status;
  if (Status status = check_values(layout, Side::key, k, block.positions); !status.ok())
    return status;
  if (Status status = check_values(layout, Side::value, v, block.positions); !status.ok())
    return status;
  const int width = layout.shape().head_width;
  for (const Side side : {Side::key, Side::value}) {
    const SideView view(layout, side, block);
    const float* from = side == Side::key ? k.data() : v.data();
    for (int row = 0; row < rows; ++row) {
      for (int head = 0; head < layout.shape().kv_heads; ++head) {
        for (int c = 0; c < width; ++c) view.set_bf16(block.positions + row, head, c, *from++);
      }
    }
  }
  block.positions += rows;
  if (rows > 0 && block.complete()) {
    encode_block(layout, Side::key, block);
    encode_block(layout, Side::value, block);
  }
  return {};
}

Status CpuRefBackend::dequantize_for_attention(const BlockLayout& layout, const KvBlock& block,
                                               Tier tier, int first, int count, std::span<float> k,
                                               std::span<float> v) {
  if (Status status = check_read(layout, block, tier, first, count, k, v); !status.ok())
    return status;
  const int width = layout.shape().head_width;
  for (const Side side : {Side::key, Side::value}) {
    const SideView view(layout, side, block);
    float* out = side == Side::key ? k.data() : v.data();
    for (int position = first; position < first + count; ++position) {
      for (int head = 0; head < layout.shape().kv_heads; ++head, out += width) {
        decode_row(layout, side, view, tier.side(side), position, head, out);
      }
    }
  }
  return {};
}

}  // namespace kvquant
