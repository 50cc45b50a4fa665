// The reader of stored KvBlocks on arbitrary bytes. The mutator mends what random changes break
// first (block size, checksum, now and then the number of bytes that the header's own planes take),
// so that the checks behind those are reached. Whatever the bytes: they are refused with a sentence
// and the block is left alone, or they are a block, which stores to the same bytes and can be read.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "kvquant/cpu_ref.h"
#include "kvquant/kv_block.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

using namespace kvquant;

constexpr Side kBothSides[] = {Side::key, Side::value};
constexpr Plane kEveryPlane[] = {Plane::hi2, Plane::mid2, Plane::low4, Plane::bf16};
constexpr BitWidth kEveryWidth[] = {BitWidth::int2, BitWidth::int4, BitWidth::int8, BitWidth::bf16};
constexpr std::uint8_t kUntouched = 0xa5;

void check(bool holds) {
  if (!holds) std::abort();
}

void check_refusal(const Status& status) {
  check(status.code() == Code::corrupt && std::strlen(status.message()) > 10);
}

// Planes in allocations of their own size, so that AddressSanitizer sees every byte past an end.
class Planes {
 public:
  Planes(const BlockLayout& layout, const BlockHeader& header) : layout_(layout) {
    for (const Side side : kBothSides) {
      for (const Plane plane : kEveryPlane) {
        if (!header.planes[static_cast<int>(side)].has(plane)) continue;
        auto& bytes = memory_[static_cast<int>(side)][static_cast<int>(plane)];
        const std::size_t size = layout.plane(side, plane).bytes;
        bytes = std::make_unique<std::uint8_t[]>(size);
        std::memset(bytes.get(), kUntouched, size);
        block.plane(side, plane) = bytes.get();
      }
    }
  }

  bool untouched() const {
    for (const Side side : kBothSides) {
      for (const Plane plane : kEveryPlane) {
        const std::uint8_t* bytes = block.plane(side, plane);
        if (bytes == nullptr) continue;
        for (std::size_t i = 0; i < layout_.plane(side, plane).bytes; ++i) {
          if (bytes[i] != kUntouched) return false;
        }
      }
    }
    return block.positions == 0;
  }

  KvBlock block;

 private:
  const BlockLayout& layout_;
  std::unique_ptr<std::uint8_t[]> memory_[kSides][kPlanes];
};

// Every pair of widths, first and last rows alone and all of them.
void read(const BlockLayout& layout, const KvBlock& block) {
  CpuRefBackend backend;
  const auto row = static_cast<std::size_t>(layout.shape().row());
  for (const BitWidth key : kEveryWidth) {
    for (const BitWidth value : kEveryWidth) {
      for (const int count : {1, block.positions}) {
        const std::size_t elements = static_cast<std::size_t>(count) * row;
        std::vector<float> k(elements), v(elements);
        const Status status = backend.dequantize_for_attention(
            layout, block, {key, value}, block.positions - count, count, k, v);
        if (!status.ok()) {
          check(status.code() == Code::invalid_argument || status.code() == Code::unavailable);
          continue;
        }
        for (const float x : k) check(std::isfinite(x));
        for (const float x : v) check(std::isfinite(x));
      }
    }
  }
}

std::uint32_t crc32(std::span<const std::uint8_t> bytes) {
  std::uint32_t crc = 0xffffffffu;
  for (const std::uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

void put32(std::uint8_t* at, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) at[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

void seal(std::span<std::uint8_t> bytes) {
  put32(bytes.data() + 8, static_cast<std::uint32_t>(bytes.size()));
  put32(bytes.data() + 12, 0);
  put32(bytes.data() + 12, crc32(bytes));
}

// What the header's shape, schemes and planes add up to; 0 where they are none.
std::size_t bytes_by_header(const std::uint8_t* at) {
  KvShape shape = {at[16] | at[17] << 8, at[18] | at[19] << 8};
  QuantScheme schemes[kSides];
  for (int side = 0; side < kSides; ++side) {
    const std::uint8_t* record = at + 24 + 8 * side;
    schemes[side] = {static_cast<BitWidth>(record[0]),
                     static_cast<Grouping>(record[1]),
                     record[4] | record[5] << 8,
                     (record[2] & 1) != 0,
                     (record[2] & 2) != 0,
                     static_cast<BitWidth>(record[3]),
                     record[6]};
  }
  const auto layout = BlockLayout::make(shape, {schemes[0], schemes[1]});
  if (!layout.ok()) return 0;
  return stored_bytes(layout.value(), PlaneSet(at[31] & 15), PlaneSet(at[39] & 15));
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 16 == 0 || size < kBlockHeaderBytes) return size;
  if (seed % 2 == 0) {
    const std::size_t wanted = bytes_by_header(data);
    if (wanted >= kBlockHeaderBytes && wanted <= max_size) {
      if (wanted > size) std::memset(data + size, 0, wanted - size);
      size = wanted;
    }
  }
  seal({data, size});
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::uint8_t> bytes(data, data + size);
  const auto header = inspect_block(bytes);
  if (!header.ok()) {
    check_refusal(header.status());
    return 0;
  }
  const auto layout = BlockLayout::make(header.value().shape, header.value().scheme);
  check(layout.ok() && header.value().bytes == size);
  Planes planes(layout.value(), header.value());
  if (const Status status = load_block(layout.value(), bytes, planes.block); !status.ok()) {
    check_refusal(status);
    check(planes.untouched());
    return 0;
  }
  std::vector<std::uint8_t> again(size);
  check(store_block(layout.value(), planes.block, again).ok() && again == bytes);
  read(layout.value(), planes.block);
  return 0;
}
