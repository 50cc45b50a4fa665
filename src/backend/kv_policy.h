// Which precision keys and values are read at, and so which bit planes a block has to keep: named
// presets, and policies written out. A pure function of positions (kvquant/tiered_policy.h); all
// that backends, the block pool and the command line know of tiers they ask here.
//
// A policy in words, comma separated, each band optional:
//
//     sink=1:int8,recent=8:int8,mid=8:int8/int4,far=int4
//
//   sink=B:W      the first B blocks of 32 positions
//   recent=B:W    the B blocks before the query's own, which is always BF16
//   mid=B:W       the B blocks before these
//   far=W         all others
//   up=L+L...     in these layers (from 0, or from -1 backwards) every band is read one tier up
//   exempt=L+...  these layers stay BF16
//   rotate=off    no Hadamard rotation, to measure what it brings
//
// W is a width for keys and values, or two: keys/values. Codes are made at int8 whatever is read,
// so that every width below is a part of the same bits.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "kvquant/kv_block.h"
#include "kvquant/tiered_policy.h"
#include "model/config.h"

namespace kipp {

// The piece that planes are made of: the two-bit codes of one side of one layer of a block.
inline constexpr std::size_t kKvUnitBytes =
    std::size_t{kKvWidth} * kBlockPositions * 2 / 8;  // 8 KiB
constexpr int units_of(kvquant::Plane plane) {
  switch (plane) {
    case kvquant::Plane::bf16:
      return 8;
    case kvquant::Plane::low4:
      return 2;
    case kvquant::Plane::hi2:
    case kvquant::Plane::mid2:
      break;
  }
  return 1;
}

// Layers of one group have the same tiers.
enum class LayerGroup : std::uint8_t { common = 0, apart = 1 };
inline constexpr int kLayerGroups = 2;

constexpr PlaneBits plane_bit(LayerGroup group, kvquant::Side side, kvquant::Plane plane) {
  const int bit = static_cast<int>(group) * kvquant::kSides * kvquant::kPlanes +
                  static_cast<int>(side) * kvquant::kPlanes + static_cast<int>(plane);
  return static_cast<PlaneBits>(1u << bit);
}

class KvPolicy {
 public:
  // All BF16; the one that needs no tiered store.
  KvPolicy();

  // A preset's name, or a policy in words. Whether the layers it names exist is checked with the
  // checkpoint.
  static Result<KvPolicy> parse(std::string_view text);
  static std::span<const std::string_view> preset_names();  // bf16, int8, tiered, tiered-max

  const std::string& name() const { return name_; }  // as parsed
  bool all_bf16() const;
  Result<void> check_layers(const ModelConfig& config) const;

  const kvquant::TieredKvPolicy& tiers(LayerGroup group) const {
    return tiers_[static_cast<std::size_t>(group)];
  }
  LayerGroup group_of(int layer, int layers) const;
  // Of kvquant, for one layer: int8 codes per token and head, rotated, read no narrower than some
  // band of some layer does. The narrowest width decides whether int2 parameters are stored.
  const kvquant::KvScheme& scheme() const { return scheme_; }

  // What a query in block `query` reads of block `key` <= query, of either side.
  kvquant::Tier tier(LayerGroup group, int query, int key) const {
    return tiers(group).tier(query * kBlockPositions, key * kBlockPositions);
  }
  // The planes of all layers that band needs.
  PlaneBits planes(kvquant::Band band) const;
  PlaneBits planes_needed(int query, int key) const;

  // Units of kKvUnitBytes that one plane of a block takes, all layers of its group together; by
  // bit. Planes of no layer take none.
  std::vector<int> units_by_plane(const ModelConfig& config) const;
  int units(PlaneBits planes, const ModelConfig& config) const;
  // Scales and offsets of one block, which it keeps whatever its planes are: FP16
  // [layer][side][range, fitted where int2 is read][scale, offset][head][position].
  std::size_t parameter_bytes(const ModelConfig& config) const;

  friend bool operator==(const KvPolicy& a, const KvPolicy& b) { return a.name_ == b.name_; }

 private:
  std::string name_ = "bf16";
  kvquant::TieredKvPolicy tiers_[kLayerGroups];
  std::vector<int> apart_;  // layers, negative ones from the end
  kvquant::KvScheme scheme_;
};

}  // namespace kipp
