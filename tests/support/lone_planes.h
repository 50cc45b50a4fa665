// The planes of one sequence that has a tiered backend to itself, kept by hand: what its steps need
// and, after them, what its future does. The pool does this for many.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace kipp::test {

enum class Keep : std::uint8_t {
  needed,      // nothing beyond that: BF16 rows and low planes go as soon as they may
  everything,  // every plane of every block, always
};

inline constexpr PlaneBits kBf16Planes = [] {
  unsigned bits = 0;
  for (const LayerGroup group : {LayerGroup::common, LayerGroup::apart}) {
    for (const auto side : {kvquant::Side::key, kvquant::Side::value}) {
      bits |= plane_bit(group, side, kvquant::Plane::bf16);
    }
  }
  return static_cast<PlaneBits>(bits);
}();

class LonePlanes {
 public:
  LonePlanes(Backend& backend, const KvPolicy& policy, std::span<const BlockId> blocks,
             Keep keep = Keep::needed)
      : backend_(backend), policy_(policy), blocks_(blocks.begin(), blocks.end()), keep_(keep) {}

  // Before positions [pos, end) are evaluated, after those up to pos.
  void before(int pos, int end) {
    std::vector<PlaneChange> changes;
    for (int b = 0; b < blocks_for(end); ++b) {
      const int begins = b * kBlockPositions, ends = begins + kBlockPositions;
      unsigned planes = 0;
      if (ends <= end) planes |= future(std::max(pos / kBlockPositions, b + 1), b);
      const bool whole = pos <= begins && ends <= end;
      if (ends > pos && !whole) planes |= kBf16Planes;
      changes.push_back(change(b, static_cast<PlaneBits>(planes)));
    }
    backend_.hold_planes(changes);
  }

  // `end` positions are there, and the next step begins with that one.
  void after(int end) {
    std::vector<PlaneChange> changes;
    for (int b = 0; b < static_cast<int>(blocks_.size()); ++b) {
      changes.push_back(change(b, planes_at(end, b)));
    }
    backend_.hold_planes(changes);
  }

  // What block b holds between steps when `end` positions are there.
  PlaneBits planes_at(int end, int b) const {
    const int begins = b * kBlockPositions;
    if (begins + kBlockPositions <= end) return future(std::max(end / kBlockPositions, b + 1), b);
    return begins < end ? kBf16Planes : PlaneBits{0};
  }

 private:
  // Of queries in block `query` and all after it.
  PlaneBits future(int query, int key) const {
    using kvquant::Band;
    const Band now =
        policy_.tiers(LayerGroup::common).band(query * kBlockPositions, key * kBlockPositions);
    if (now == Band::sink) return policy_.planes(now);
    unsigned planes = 0;
    for (const Band band : {Band::recent, Band::mid, Band::far}) {
      if (band >= now) planes |= policy_.planes(band);
    }
    return static_cast<PlaneBits>(planes);
  }

  PlaneChange change(int b, PlaneBits planes) const {
    return {.block = blocks_[static_cast<std::size_t>(b)],
            .planes = keep_ == Keep::everything ? PlaneBits{0xffff} : planes};
  }

  Backend& backend_;
  const KvPolicy policy_;
  const std::vector<BlockId> blocks_;
  const Keep keep_;
};

// Units for so many blocks with all their planes.
inline KvConfig tiered_config(const KvPolicy& policy, const ModelConfig& config, int blocks) {
  return {.blocks = blocks,
          .store = KvStore::tiered,
          .policy = policy,
          .units = blocks * policy.units(0xffff, config)};
}

}  // namespace kipp::test
