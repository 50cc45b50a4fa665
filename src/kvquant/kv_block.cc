#include "kvquant/kv_block.h"

#include <array>
#include <cstring>

#include "kvquant/codec.h"

namespace kvquant {
namespace {

constexpr std::size_t kPart = 64;  // parts of a plane begin at multiples of this many bytes

std::size_t padded(std::size_t bytes) { return (bytes + kPart - 1) / kPart * kPart; }

constexpr Side kBothSides[] = {Side::key, Side::value};
constexpr Plane kEveryPlane[] = {Plane::hi2, Plane::mid2, Plane::low4, Plane::bf16};

int plane_bits(Plane plane) {
  switch (plane) {
    case Plane::hi2:
    case Plane::mid2:
      return 2;
    case Plane::low4:
      return 4;
    case Plane::bf16:
      return 16;
  }
  return 0;
}

Plane range_plane_of(const QuantScheme& scheme) {
  return scheme.bits == BitWidth::int2 ? Plane::hi2 : Plane::mid2;
}

std::size_t group_count(const KvShape& shape, const QuantScheme& scheme) {
  if (scheme.bits == BitWidth::bf16) return 0;
  return static_cast<std::size_t>(kBlockPositions) * static_cast<std::size_t>(shape.row()) /
         static_cast<std::size_t>(scheme.group_size);
}

PlaneLayout plane_layout(const KvShape& shape, const QuantScheme& scheme, Plane plane) {
  const bool coded = scheme.bits != BitWidth::bf16;
  if (plane != Plane::bf16 && !(coded && planes_for(scheme.bits).has(plane))) return {};
  PlaneLayout layout;
  layout.row_bytes = static_cast<std::size_t>(shape.head_width * plane_bits(plane) / 8);
  // Head widths are multiples of 16, so that 32 rows of codes need no padding.
  layout.scales = layout.row_bytes * static_cast<std::size_t>(kBlockPositions * shape.kv_heads);
  const bool has_range = coded && plane == range_plane_of(scheme);
  const bool has_fit = plane == Plane::hi2 && has_fitted_pair(scheme);
  const std::size_t part = has_range || has_fit ? padded(2 * group_count(shape, scheme)) : 0;
  layout.offsets = layout.scales + part;
  layout.bytes = layout.offsets + (scheme.symmetric ? 0 : part);
  return layout;
}

// CRC-32 of IEEE 802.3, the one zlib computes, so that any language can check a block.
constexpr std::array<std::uint32_t, 256> kCrcTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0xedb88320u : 0u);
    table[i] = crc;
  }
  return table;
}();

std::uint32_t crc32(std::span<const std::uint8_t> bytes, std::uint32_t crc) {
  for (const std::uint8_t byte : bytes) crc = kCrcTable[(crc ^ byte) & 0xffu] ^ (crc >> 8);
  return crc;
}

// --- header fields
// --------------------------------------------------------------------------------------------

constexpr std::uint8_t kMagic[4] = {'K', 'V', 'Q', 'B'};
constexpr std::size_t kChecksumAt = 12;
constexpr std::size_t kSideAt[kSides] = {24, 32};
constexpr std::size_t kReservedAt = 40;

void put16(std::uint8_t* at, std::size_t value) {
  at[0] = static_cast<std::uint8_t>(value);
  at[1] = static_cast<std::uint8_t>(value >> 8);
}

void put32(std::uint8_t* at, std::size_t value) {
  put16(at, value & 0xffffu);
  put16(at + 2, value >> 16);
}

std::uint16_t get16(const std::uint8_t* at) {
  return static_cast<std::uint16_t>(at[0] | at[1] << 8);
}

std::uint32_t get32(const std::uint8_t* at) {
  return get16(at) | static_cast<std::uint32_t>(get16(at + 2)) << 16;
}

std::uint32_t checksum(std::span<const std::uint8_t> bytes) {
  constexpr std::uint8_t kZero[4] = {};
  std::uint32_t crc = crc32(bytes.first(kChecksumAt), 0xffffffffu);
  crc = crc32(kZero, crc);
  return ~crc32(bytes.subspan(kChecksumAt + sizeof kZero), crc);
}

void put_side(std::uint8_t* at, const QuantScheme& scheme, PlaneSet planes) {
  at[0] = static_cast<std::uint8_t>(scheme.bits);
  at[7] = planes.bits();
  if (scheme.bits == BitWidth::bf16) return;  // the rest is zero: it means nothing
  at[1] = static_cast<std::uint8_t>(scheme.grouping);
  at[2] = static_cast<std::uint8_t>((scheme.symmetric ? 1 : 0) | (scheme.hadamard ? 2 : 0));
  at[3] = static_cast<std::uint8_t>(scheme.narrowest);
  put16(at + 4, static_cast<std::size_t>(scheme.group_size));
  at[6] = static_cast<std::uint8_t>(scheme.clip_percent);
}

QuantScheme canonical(const QuantScheme& scheme) {
  if (scheme.bits != BitWidth::bf16) return scheme;
  QuantScheme plain;
  plain.bits = BitWidth::bf16;
  return plain;
}

QuantScheme get_side(const std::uint8_t* at) {
  QuantScheme scheme;
  scheme.bits = static_cast<BitWidth>(at[0]);
  if (scheme.bits == BitWidth::bf16) return canonical(scheme);
  scheme.grouping = static_cast<Grouping>(at[1]);
  scheme.symmetric = (at[2] & 1) != 0;
  scheme.hadamard = (at[2] & 2) != 0;
  scheme.narrowest = static_cast<BitWidth>(at[3]);
  scheme.group_size = get16(at + 4);
  scheme.clip_percent = at[6];
  return scheme;
}

// The planes a block may be made of: nested code planes, BF16 alone while it is open.
Status check_planes(const BlockLayout& layout, Side side, PlaneSet planes, int positions) {
  const bool nested = (!planes.has(Plane::low4) || planes.has(Plane::mid2)) &&
                      (!planes.has(Plane::mid2) || planes.has(Plane::hi2));
  const bool fits =
      positions == kBlockPositions ? planes.bits() != 0 : planes == planes_for(BitWidth::bf16);
  if (layout.planes(side).contains(planes) && nested && fits) return {};
  return Status::fail(Code::corrupt,
                      "%s planes: a block of %d positions cannot be made of plane set 0x%02x",
                      name_of(side), positions, planes.bits());
}

bool all_zero(const std::uint8_t* bytes, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (bytes[i] != 0) return false;
  }
  return true;
}

// Content that no encoder writes, though the checksum may be right.
Status check_content(const BlockLayout& layout, Side side, Plane plane, const std::uint8_t* bytes,
                     int positions) {
  const PlaneLayout& parts = layout.plane(side, plane);
  const auto heads = static_cast<std::size_t>(layout.shape().kv_heads);
  const auto held = static_cast<std::size_t>(positions);
  const std::size_t groups = layout.groups(side);
  const auto refuse = [&](const char* what) {
    return Status::fail(Code::corrupt, "%s plane %s: %s", name_of(side), name_of(plane), what);
  };
  if (plane == Plane::bf16) {
    for (std::size_t head = 0; head < heads; ++head) {
      const std::uint8_t* rows = bytes + head * kBlockPositions * parts.row_bytes;
      for (std::size_t at = 0; at < held * parts.row_bytes; at += 2) {
        if ((get16(rows + at) & 0x7f80u) == 0x7f80u)
          return refuse("an element is not a finite number");
      }
      if (!all_zero(rows + held * parts.row_bytes, (kBlockPositions - held) * parts.row_bytes)) {
        return refuse("rows past the last position are not zero");
      }
    }
  }
  if (parts.offsets != parts.scales) {
    for (std::size_t group = 0; group < groups; ++group) {
      if (get16(bytes + parts.scales + 2 * group) >= 0x7c00u) {
        return refuse("a scale is negative or not a finite number");
      }
    }
    if (!all_zero(bytes + parts.scales + 2 * groups, parts.offsets - parts.scales - 2 * groups)) {
      return refuse("padding after the scales is not zero");
    }
  }
  if (parts.bytes != parts.offsets) {
    for (std::size_t group = 0; group < groups; ++group) {
      if ((get16(bytes + parts.offsets + 2 * group) & 0x7c00u) == 0x7c00u) {
        return refuse("an offset is not a finite number");
      }
    }
    if (!all_zero(bytes + parts.offsets + 2 * groups, parts.bytes - parts.offsets - 2 * groups)) {
      return refuse("padding after the offsets is not zero");
    }
  }
  return {};
}

}  // namespace

const char* name_of(Plane plane) {
  switch (plane) {
    case Plane::hi2:
      return "hi2";
    case Plane::mid2:
      return "mid2";
    case Plane::low4:
      return "low4";
    case Plane::bf16:
      return "bf16";
  }
  return "unknown plane";
}

Expected<BlockLayout> BlockLayout::make(const KvShape& shape, const KvScheme& scheme) {
  if (Status status = validate(shape, scheme); !status.ok()) return status;
  BlockLayout layout;
  layout.shape_ = shape;
  layout.scheme_ = {canonical(scheme.key), canonical(scheme.value)};
  for (const Side side : kBothSides) {
    for (const Plane plane : kEveryPlane) {
      layout.planes_[static_cast<int>(side)][static_cast<int>(plane)] =
          plane_layout(shape, layout.scheme_.side(side), plane);
    }
  }
  return layout;
}

PlaneSet BlockLayout::planes(Side side) const {
  return planes_for(BitWidth::bf16) | planes_for(scheme_.side(side).bits);
}

Plane BlockLayout::range_plane(Side side) const { return range_plane_of(scheme_.side(side)); }

std::size_t BlockLayout::groups(Side side) const { return group_count(shape_, scheme_.side(side)); }

std::size_t BlockLayout::group_of(Side side, int position, int head, int channel) const {
  const QuantScheme& scheme = scheme_.side(side);
  const int width = shape_.head_width;
  const int size = scheme.group_size;
  if (scheme.grouping == Grouping::per_channel) {
    return static_cast<std::size_t>((head * (kBlockPositions / size) + position / size) * width +
                                    channel);
  }
  if (width % size == 0) {  // within a head: heads stay together
    return static_cast<std::size_t>((head * kBlockPositions + position) * (width / size) +
                                    channel / size);
  }
  return static_cast<std::size_t>(position * (shape_.row() / size) +
                                  (head * width + channel) / size);
}

std::size_t BlockLayout::bytes(Side side, PlaneSet planes) const {
  std::size_t sum = 0;
  for (const Plane p : kEveryPlane) {
    if (planes.has(p)) sum += plane(side, p).bytes;
  }
  return sum;
}

PlaneSet KvBlock::present(Side side) const {
  PlaneSet set;
  for (const Plane p : kEveryPlane) {
    if (plane(side, p) != nullptr) set = set.with(p);
  }
  return set;
}

std::size_t stored_bytes(const BlockLayout& layout, PlaneSet key, PlaneSet value) {
  return kBlockHeaderBytes + layout.bytes(Side::key, key) + layout.bytes(Side::value, value);
}

Status store_block(const BlockLayout& layout, const KvBlock& block, std::span<std::uint8_t> out) {
  if (block.positions < 1 || block.positions > kBlockPositions) {
    return Status::fail(Code::invalid_argument, "positions: expected 1 to %d, found %d",
                        kBlockPositions, block.positions);
  }
  for (const Side side : kBothSides) {
    Status status = check_planes(layout, side, block.present(side), block.positions);
    if (!status.ok()) return Status::fail(Code::invalid_argument, "%s", status.message());
  }
  const std::size_t bytes =
      stored_bytes(layout, block.present(Side::key), block.present(Side::value));
  if (out.size() != bytes) {
    return Status::fail(Code::invalid_argument, "out: expected %zu bytes, found %zu", bytes,
                        out.size());
  }
  std::uint8_t* header = out.data();
  std::memset(header, 0, kBlockHeaderBytes);
  std::memcpy(header, kMagic, sizeof kMagic);
  put16(header + 4, kBlockVersion);
  put16(header + 6, kBlockHeaderBytes);
  put32(header + 8, bytes);
  put16(header + 16, static_cast<std::size_t>(layout.shape().kv_heads));
  put16(header + 18, static_cast<std::size_t>(layout.shape().head_width));
  header[20] = static_cast<std::uint8_t>(block.positions);
  std::uint8_t* at = header + kBlockHeaderBytes;
  for (const Side side : kBothSides) {
    put_side(header + kSideAt[static_cast<int>(side)], layout.scheme().side(side),
             block.present(side));
    for (const Plane plane : kEveryPlane) {
      const std::uint8_t* from = block.plane(side, plane);
      if (from == nullptr) continue;
      const PlaneLayout& parts = layout.plane(side, plane);
      std::memcpy(at, from, parts.bytes);
      if (plane == Plane::bf16) {  // what truncation left behind is not part of the block
        const auto held = static_cast<std::size_t>(block.positions) * parts.row_bytes;
        const std::size_t whole = kBlockPositions * parts.row_bytes;
        for (int head = 0; head < layout.shape().kv_heads; ++head) {
          std::memset(at + static_cast<std::size_t>(head) * whole + held, 0, whole - held);
        }
      }
      at += parts.bytes;
    }
  }
  put32(header + kChecksumAt, checksum(out));
  return {};
}

Expected<BlockHeader> inspect_block(std::span<const std::uint8_t> bytes) {
  const std::uint8_t* at = bytes.data();
  if (bytes.size() < kBlockHeaderBytes) {
    return Status::fail(Code::corrupt,
                        "block: expected a header of %zu bytes, found %zu bytes in all",
                        kBlockHeaderBytes, bytes.size());
  }
  if (std::memcmp(at, kMagic, sizeof kMagic) != 0) {
    return Status::fail(Code::corrupt,
                        "block magic: expected 4b 56 51 42, found %02x %02x %02x %02x", at[0],
                        at[1], at[2], at[3]);
  }
  if (get16(at + 4) != kBlockVersion) {
    return Status::fail(Code::corrupt, "block version: expected %d, found %d", kBlockVersion,
                        get16(at + 4));
  }
  if (get16(at + 6) != kBlockHeaderBytes) {
    return Status::fail(Code::corrupt, "block header size: expected %zu, found %d",
                        kBlockHeaderBytes, get16(at + 6));
  }
  if (get32(at + 8) != bytes.size()) {
    return Status::fail(Code::corrupt, "block size: the header says %u bytes, found %zu",
                        get32(at + 8), bytes.size());
  }
  if (const std::uint32_t found = checksum(bytes); get32(at + kChecksumAt) != found) {
    return Status::fail(Code::corrupt, "block checksum: the header says %08x, the bytes give %08x",
                        get32(at + kChecksumAt), found);
  }
  BlockHeader header;
  header.shape = {get16(at + 16), get16(at + 18)};
  header.positions = at[20];
  header.scheme = {get_side(at + kSideAt[0]), get_side(at + kSideAt[1])};
  header.bytes = bytes.size();
  const Expected<BlockLayout> layout = BlockLayout::make(header.shape, header.scheme);
  if (!layout.ok())
    return Status::fail(Code::corrupt, "block header: %s", layout.status().message());
  if (header.positions < 1 || header.positions > kBlockPositions) {
    return Status::fail(Code::corrupt, "block positions: expected 1 to %d, found %d",
                        kBlockPositions, header.positions);
  }
  for (const Side side : kBothSides) {
    const std::uint8_t* record = at + kSideAt[static_cast<int>(side)];
    const PlaneSet planes(record[7]);
    std::uint8_t canonical_record[8] = {};
    put_side(canonical_record, header.scheme.side(side), planes);
    if (std::memcmp(record, canonical_record, sizeof canonical_record) != 0) {
      return Status::fail(Code::corrupt, "block header: the %s scheme sets bits that mean nothing",
                          name_of(side));
    }
    if (Status status = check_planes(layout.value(), side, planes, header.positions);
        !status.ok()) {
      return status;
    }
    header.planes[static_cast<int>(side)] = planes;
  }
  if (!all_zero(at + 21, 3) || !all_zero(at + kReservedAt, kBlockHeaderBytes - kReservedAt)) {
    return Status::fail(Code::corrupt, "block header: reserved bytes are not zero");
  }
  const std::size_t expected = stored_bytes(layout.value(), header.planes[0], header.planes[1]);
  if (expected != bytes.size()) {
    return Status::fail(Code::corrupt, "block size: its planes take %zu bytes, found %zu", expected,
                        bytes.size());
  }
  return header;
}

Status load_block(const BlockLayout& layout, std::span<const std::uint8_t> bytes, KvBlock& block) {
  const Expected<BlockHeader> found = inspect_block(bytes);
  if (!found.ok()) return found.status();
  const BlockHeader& header = found.value();
  if (!(header.shape == layout.shape()) || !(header.scheme == layout.scheme())) {
    return Status::fail(
        Code::corrupt,
        "block: its shape and scheme (%d heads of %d, key %s, value %s) are not this "
        "cache's (%d heads of %d, key %s, value %s), or differ in grouping",
        header.shape.kv_heads, header.shape.head_width, name_of(header.scheme.key.bits),
        name_of(header.scheme.value.bits), layout.shape().kv_heads, layout.shape().head_width,
        name_of(layout.scheme().key.bits), name_of(layout.scheme().value.bits));
  }
  const std::uint8_t* at = bytes.data() + kBlockHeaderBytes;
  for (const Side side : kBothSides) {
    const PlaneSet planes = header.planes[static_cast<int>(side)];
    if (block.present(side) != planes) {
      return Status::fail(
          Code::invalid_argument,
          "%s planes: the bytes hold plane set 0x%02x, the block has room for 0x%02x",
          name_of(side), planes.bits(), block.present(side).bits());
    }
    for (const Plane plane : kEveryPlane) {
      if (!planes.has(plane)) continue;
      if (Status status = check_content(layout, side, plane, at, header.positions); !status.ok()) {
        return status;
      }
      at += layout.plane(side, plane).bytes;
    }
  }
  at = bytes.data() + kBlockHeaderBytes;
  for (const Side side : kBothSides) {
    for (const Plane plane : kEveryPlane) {
      std::uint8_t* to = block.plane(side, plane);
      if (to == nullptr) continue;
      std::memcpy(to, at, layout.plane(side, plane).bytes);
      at += layout.plane(side, plane).bytes;
    }
  }
  block.positions = header.positions;
  return {};
}

}  // namespace kvquant
