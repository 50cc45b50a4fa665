// Lets the Python tests reach the library, to compare it with a second implementation. Reads
// requests from standard input until it ends; all numbers are little-endian, 32 bits:
//
//   1  make a block   heads, head width, positions; for keys, then values: bits, grouping, group
//                     size, symmetric, hadamard, narrowest, clip, plane set; then the FP32 rows of
//                     keys and of values, [position][head][channel]
//   2  read a block   key width, value width, size, and so many bytes of a stored block
//
// Answers each with a Code, a size and so many bytes: the stored block; the FP32 values of keys and
// of values; or, where the code is not 0, a sentence.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "kvquant/cpu_ref.h"
#include "kvquant/kv_block.h"
#include "support/owned_block.h"

namespace {

using namespace kvquant;

using test::kBothSides;
using test::OwnedBlock;

bool take(void* to, std::size_t bytes) { return std::fread(to, 1, bytes, stdin) == bytes; }

void answer(Code code, const void* bytes, std::size_t size) {
  const std::uint32_t head[] = {static_cast<std::uint32_t>(code), static_cast<std::uint32_t>(size)};
  std::fwrite(head, sizeof head, 1, stdout);
  if (size > 0) std::fwrite(bytes, 1, size, stdout);
}

void answer(const Status& status) {
  answer(status.code(), status.message(), std::strlen(status.message()));
}

Status make(const BlockLayout& layout, const PlaneSet (&sets)[kSides],
            const std::vector<float> (&rows)[kSides], std::vector<std::uint8_t>& stored) {
  const PlaneSet bf16 = planes_for(BitWidth::bf16);
  OwnedBlock owned(layout, sets[0] | bf16, sets[1] | bf16);
  KvBlock& block = owned.block();
  Status status = CpuRefBackend().quantize_append(layout, rows[0], rows[1], block);
  if (!status.ok()) return status;
  for (const Side side : kBothSides) {
    if (!sets[static_cast<int>(side)].has(Plane::bf16)) {
      block.plane(side, Plane::bf16) = nullptr;
    }
  }
  stored.resize(stored_bytes(layout, sets[0], sets[1]));
  return store_block(layout, block, stored);
}

bool answer_make() {
  std::int32_t shape[3];
  std::int32_t sides[kSides][8];
  if (!take(shape, sizeof shape) || !take(sides, sizeof sides)) return false;
  QuantScheme schemes[kSides];
  PlaneSet sets[kSides];
  std::vector<float> rows[kSides];
  for (int s = 0; s < kSides; ++s) {
    const auto& f = sides[s];
    schemes[s] = {static_cast<BitWidth>(f[0]),
                  static_cast<Grouping>(f[1]),
                  f[2],
                  f[3] != 0,
                  f[4] != 0,
                  static_cast<BitWidth>(f[5]),
                  f[6]};
    sets[s] = PlaneSet(static_cast<std::uint8_t>(f[7]));
    rows[s].resize(static_cast<std::size_t>(shape[0]) * static_cast<std::size_t>(shape[1]) *
                   static_cast<std::size_t>(shape[2]));
    if (!take(rows[s].data(), rows[s].size() * sizeof(float))) return false;
  }
  const auto layout = BlockLayout::make({shape[0], shape[1]}, {schemes[0], schemes[1]});
  std::vector<std::uint8_t> stored;
  const Status status = layout.ok() ? make(layout.value(), sets, rows, stored) : layout.status();
  if (status.ok()) {
    answer(Code::ok, stored.data(), stored.size());
  } else {
    answer(status);
  }
  return true;
}

Status read(const std::vector<std::uint8_t>& stored, Tier tier, std::vector<float>& values) {
  const auto header = inspect_block(stored);
  if (!header.ok()) return header.status();
  const auto layout = BlockLayout::make(header.value().shape, header.value().scheme);
  if (!layout.ok()) return layout.status();
  OwnedBlock owned(layout.value(), header.value().planes[0], header.value().planes[1]);
  KvBlock& block = owned.block();
  if (Status status = load_block(layout.value(), stored, block); !status.ok()) return status;
  const auto elements = static_cast<std::size_t>(block.positions) *
                        static_cast<std::size_t>(layout.value().shape().row());
  values.resize(2 * elements);
  const std::span<float> all(values);
  return CpuRefBackend().dequantize_for_attention(layout.value(), block, tier, 0, block.positions,
                                                  all.first(elements), all.subspan(elements));
}

bool answer_read() {
  std::uint32_t head[3];
  if (!take(head, sizeof head)) return false;
  std::vector<std::uint8_t> stored(head[2]);
  if (!take(stored.data(), stored.size())) return false;
  std::vector<float> values;
  const Tier tier = {static_cast<BitWidth>(head[0]), static_cast<BitWidth>(head[1])};
  if (const Status status = read(stored, tier, values); !status.ok()) {
    answer(status);
  } else {
    answer(Code::ok, values.data(), values.size() * sizeof(float));
  }
  return true;
}

}  // namespace

int main() {
  for (std::uint32_t request = 0; take(&request, sizeof request);) {
    if (request != 1 && request != 2) {
      std::fprintf(stderr, "kvquant_probe: expected request 1 or 2, found %u\n", request);
      return 2;
    }
    if (!(request == 1 ? answer_make() : answer_read())) {
      std::fprintf(stderr, "kvquant_probe: standard input ends inside a request\n");
      return 1;
    }
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
