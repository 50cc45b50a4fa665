// What a test can see of a cache: the bytes it holds and everything that can be read from it.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "kvquant/cpu_ref.h"
#include "kvquant/tiered_cache.h"
#include "support/owned_block.h"
#include "support/tiered_cases.h"

namespace kvquant::test {

using RefCache = TieredKvCache<CpuRefBackend>;

inline int blocks_of(int positions) { return (positions + kBlockPositions - 1) / kBlockPositions; }

// What a plane of a block holds; rows past the last position are none of it.
inline void append_content(const BlockLayout& layout, const KvBlock& block, Side side, Plane plane,
                           std::vector<std::uint8_t>& out) {
  const std::uint8_t* from = block.plane(side, plane);
  const PlaneLayout& parts = layout.plane(side, plane);
  if (plane != Plane::bf16) {
    out.insert(out.end(), from, from + parts.bytes);
    return;
  }
  for (int head = 0; head < layout.shape().kv_heads; ++head) {
    const std::uint8_t* rows =
        from + static_cast<std::size_t>(head * kBlockPositions) * parts.row_bytes;
    out.insert(out.end(), rows, rows + static_cast<std::size_t>(block.positions) * parts.row_bytes);
  }
}

// All that a cache holds from block `first` on: which planes, and their bytes.
struct Held {
  int length = 0;
  std::vector<int> positions;  // of each block
  std::vector<std::uint8_t> planes;
  std::vector<std::uint8_t> bytes;

  friend bool operator==(const Held&, const Held&) = default;
};

inline Held held_by(const TieredCacheCore& cache, int first_block = 0) {
  Held held;
  held.length = cache.length();
  for (int index = first_block; index < blocks_of(cache.length()); ++index) {
    const KvBlock& block = cache.block(index);
    held.positions.push_back(block.positions);
    for (const Side side : kBothSides) {
      held.planes.push_back(block.present(side).bits());
      for (const Plane plane : kEveryPlane) {
        if (block.present(side).has(plane)) {
          append_content(cache.layout(), block, side, plane, held.bytes);
        }
      }
    }
  }
  return held;
}

inline bool same_memory(const MemoryReport& a, const MemoryReport& b) {
  for (int band = 0; band < kBands; ++band) {
    if (a.bands[band].blocks != b.bands[band].blocks) return false;
    if (a.bands[band].bytes != b.bands[band].bytes) return false;
  }
  return a.held == b.held && a.reserved == b.reserved && a.bits_per_element == b.bits_per_element;
}

// Reads positions [first, first + count) into `out`, keys and then values.
template <class Cache>
Status read(Cache& cache, int query, int first, int count, std::vector<float>& out) {
  const auto elements = static_cast<std::size_t>(count * cache.layout().shape().row());
  out.assign(2 * elements, 0.0f);
  const std::span<float> all(out);
  return cache.dequantize(query, first, count, {all.first(elements), all.subspan(elements)});
}

// Equal in every bit: -0 is not 0.
inline bool same_floats(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Queries in this block and later ones find every block of `length` positions in its last band.
inline int last_query_block(const CacheConfig& config, int length) {
  return length / kBlockPositions + config.policy.recent_blocks + config.policy.mid_width() + 2;
}

// All that queries at `from` and later read, block by block; a refusal stands as its code.
// Neighbouring query blocks that read a block in the same band read the same bytes: one of them is
// asked.
template <class Cache>
std::vector<float> all_reads(Cache& cache, int from = 0) {
  std::vector<float> all, rows;
  for (int index = 0; index < blocks_of(cache.length()); ++index) {
    const int first = index * kBlockPositions;
    const int count = std::min(kBlockPositions, cache.length() - first);
    int asked = -1;
    const int end = last_query_block(cache.config(), cache.length());
    for (int block = std::max(index, from / kBlockPositions); block <= end; ++block) {
      const int query =
          std::max({from, block * kBlockPositions, block == index ? first + count - 1 : 0});
      const int band = static_cast<int>(cache.config().policy.band(query, first));
      if (band == asked) continue;
      asked = band;
      const Status status = read(cache, query, first, count, rows);
      if (!status.ok()) rows.assign(1, static_cast<float>(status.code()));
      all.insert(all.end(), rows.begin(), rows.end());
    }
  }
  return all;
}

template <class A, class B>
bool same_reads(A& a, B& b, int from = 0) {
  return same_floats(all_reads(a, from), all_reads(b, from));
}

// Planes that a query at `query` or later reads of block `index`: the union over all of them.
inline PlaneSet planes_needed(const CacheConfig& config, Side side, int index, int query) {
  PlaneSet planes;
  const int begin = std::max(query / kBlockPositions, index);
  const int end =
      std::max(begin, index + config.policy.recent_blocks + config.policy.mid_width() + 1);
  for (int query_block = begin; query_block <= end; ++query_block) {
    const Tier tier = config.policy.tier(query_block * kBlockPositions, index * kBlockPositions);
    planes = planes | planes_for(tier.side(side));
  }
  return planes;
}

}  // namespace kvquant::test
