// Which bit planes each block of a tiered cache holds and in which units of memory: the bookkeeping
// of every tiered store, whose memory may be the host's (tiered_kv.h) or a device's. No bytes of
// keys or values here. Planes are made of units of kKvUnitBytes with a free list, so that nothing
// fragments. Which planes a block holds its caller decides (backend.h: hold_planes); this class
// refuses a step that would need others.
//
// A head of a block is one run of memory in every plane: rows of kHeadDim BF16 values, or codes as
// kvquant/codec.h packs them.
//
//   bf16   8 units a layer and side, one for each head     [position][kHeadDim] BF16
//   hi2    1 unit                                          [head][position][32 bytes]
//   mid2   1 unit                                          [head][position][32 bytes]
//   low4   2 units of four heads each                      [head][position][64 bytes]
//
// A block that an item of a step writes from its first to its last position needs no BF16 planes:
// its rows then live in memory that all layers of the step use in turn. Any other block that is
// written must hold them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/huge_buffer.h"
#include "kvquant/kv_block.h"
#include "kvquant/tiered_policy.h"
#include "model/config.h"
#include "model/step_plan.h"

namespace kipp {

// A value of a row that kvquant does not code.
struct RefusedValue {
  kvquant::Side side = kvquant::Side::key;
  int layer = 0;
  int head = 0;
  int position = 0;  // in the block
  BlockId block = 0;
  float found = 0;
};

class TieredPlanes {
 public:
  using Unit = std::uint32_t;

  // What a unit's number is counted in.
  enum class Numbering : std::uint8_t {
    cache,  // one arena for all layers: units of different layers have different numbers
    layer,  // an arena for each layer: layers of one group, which hold the same planes of every
            // block, hold them at the same numbers
  };

  // Of one side of one layer, in the order of their planes: hi2, mid2, low4, bf16.
  static constexpr std::size_t kUnitsOfSide = 1 + 1 + 2 + 8;
  static constexpr std::size_t first_unit(kvquant::Plane plane) {
    switch (plane) {
      case kvquant::Plane::hi2:
        return 0;
      case kvquant::Plane::mid2:
        return 1;
      case kvquant::Plane::low4:
        return 2;
      case kvquant::Plane::bf16:
        break;
    }
    return 4;
  }
  // Bytes of one head's codes, or rows.
  static constexpr std::size_t head_bytes(kvquant::Plane plane) {
    return static_cast<std::size_t>(units_of(plane)) * kKvUnitBytes / kKvHeads;
  }
  // Of all heads' scales, or offsets, of a block.
  static constexpr std::size_t kPartBytes = sizeof(std::uint16_t) * kKvHeads * kBlockPositions;
  static constexpr int kNoRows = -1;

  // Blocks that one step can write whole.
  static std::size_t whole_blocks(int max_step_tokens) {
    return static_cast<std::size_t>(max_step_tokens / kBlockPositions);
  }

  // On the host. Of create(), for checks before anything is allocated.
  static std::size_t bytes_needed(const ModelConfig& config, const KvConfig& kv,
                                  Numbering numbering);
  static Result<TieredPlanes> create(const ModelConfig& config, const KvConfig& kv,
                                     int max_step_tokens, Numbering numbering);
  // Units that a layer's arena has with Numbering::layer: what the layers of its group can hold at
  // most, while all layers together hold no more than kv.units.
  static int units_of_layer(const ModelConfig& config, const KvConfig& kv, LayerGroup group);

  const KvPolicy& policy() const { return policy_; }
  int layers() const { return static_cast<int>(group_of_layer_.size()); }
  int blocks() const { return static_cast<int>(held_.size()); }
  // Of the arena, or of the arenas of all layers.
  int free_units() const;
  PlaneBits held(BlockId block) const { return held_[static_cast<std::size_t>(block)]; }
  // Every plane that has layers.
  PlaneBits all_planes() const { return all_planes_; }
  LayerGroup group(int layer) const {
    return static_cast<LayerGroup>(group_of_layer_[static_cast<std::size_t>(layer)]);
  }
  bool has(BlockId block, int layer, kvquant::Side side, kvquant::Plane plane) const {
    return (held(block) & plane_bit(group(layer), side, plane)) != 0;
  }
  bool has_codes(BlockId block, int layer, kvquant::Side side) const;
  // Of a plane that is held, in the order above.
  std::span<const Unit> units(BlockId block, int layer, kvquant::Side side,
                              kvquant::Plane plane) const;
  // All of a block's units of one layer: [side][kUnitsOfSide]; those not held mean nothing.
  std::span<const Unit> units(BlockId block, int layer) const;

  // As Backend's hold_planes and move_planes. A plane for which no units are left is not held.
  void hold(std::span<const PlaneChange> changes);
  // Returns the planes that were moved: those that `from` held and `to` did not.
  PlaneBits move(BlockId from, BlockId to, PlaneBits planes);

  // Refuses a step some reader or writer of which misses a plane, and gives the blocks that need
  // it a place for their rows. Valid until the next begin_step(), as is what follows.
  Result<void> begin_step(const StepPlan& step);
  // Blocks whose last position this step writes.
  std::span<const BlockId> completed() const { return completed_; }
  // The place among whole_blocks() where a block that is written whole has its rows, or kNoRows.
  int rows_place(BlockId block) const { return step_rows_of_[static_cast<std::size_t>(block)]; }

  // Widths at which queries of block `query` read block `key` <= query, both counted in positions /
  // kBlockPositions. BF16 where they are equal.
  kvquant::Tier tier(int layer, int query, int key) const {
    return tiers_[static_cast<std::size_t>(group(layer))].tier(query * kBlockPositions,
                                                               key * kBlockPositions);
  }

  // Parameters of a block: FP16 [layer][side][range, fitted where int2 is read][scale, offset]
  // [head][position].
  std::size_t parameter_bytes() const { return parameter_bytes_; }
  std::size_t pairs(kvquant::Side side) const;
  // Where those of a side begin.
  std::size_t parameters_of(int layer, kvquant::Side side) const;

  // The largest magnitude that kvquant codes, and what a store says where it found more.
  float largest_value(kvquant::Side side) const;
  Error refusal(const RefusedValue& value) const;

  // Bytes of a block that holds these planes: the planes in the order of their bits, each layer by
  // layer in the units above, then all parameters; those of codes that are not there are zero.
  std::size_t block_bytes(PlaneBits planes) const;
  Result<void> check(BlockId block, std::size_t bytes) const;
  // Calls visit(side, plane, layer) for the parts of these planes in the order of a block's bytes.
  template <class Visit>
  void for_each_part(PlaneBits planes, const Visit& visit) const {
    for (const PlaneBit& p : planes_) {
      if ((planes & p.bit) == 0) continue;
      for (int layer = 0; layer < layers(); ++layer) {
        if (group(layer) == p.group) visit(p.side, p.plane, layer);
      }
    }
  }

 private:
  // Of one plane of one side in the layers of one group.
  struct PlaneBit {
    kvquant::Side side;
    kvquant::Plane plane;
    LayerGroup group;
    PlaneBits bit;
    int units;  // of a block
  };
  // Where units come from.
  struct Arena {
    HugeBuffer freed;  // Unit[units]: a stack of free_count units that came back
    int units = 0;
    int touched = 0;  // units ever handed out: those below
    int free_count = 0;

    int free() const { return free_count + (units - touched); }
    Unit take();
    void give_back(Unit unit);
  };
  // Layers that share their units' numbers.
  struct Table {
    LayerGroup group;
    std::size_t arena;
  };

  std::span<Unit> units_of_table(std::size_t table, BlockId block, kvquant::Side side,
                                 kvquant::Plane plane) const;
  template <class Visit>
  void for_each_table(LayerGroup group, const Visit& visit) const;
  int units_in_arena(const PlaneBit& plane) const;
  Result<void> check_reads(const StepPlan& step, int item, int index, int first_query,
                           int last_query) const;
  Result<void> check_write(int item, BlockId block, int begin, int end) const;

  KvPolicy policy_;
  kvquant::TieredKvPolicy tiers_[kLayerGroups];  // of policy_
  PlaneBits planes_of_band_[kvquant::kBands] = {};
  PlaneBits all_planes_ = 0;
  PlaneBits bf16_planes_ = 0;
  std::vector<PlaneBit> planes_;  // that have layers, by bit
  std::vector<std::uint8_t> group_of_layer_;
  std::vector<std::uint32_t> table_of_layer_;
  std::size_t parameter_bytes_ = 0;

  std::vector<Table> tables_;
  std::vector<Arena> arenas_;
  // Unit[tables][blocks][sides][kUnitsOfSide]: attention goes through the blocks of one layer, and
  // with the layers inside would miss the cache at every block.
  HugeBuffer units_;
  std::vector<PlaneBits> held_;  // [blocks]

  // Of the step.
  std::vector<int> step_rows_of_;  // [blocks] which place, or kNoRows
  std::vector<BlockId> completed_;
};

}  // namespace kipp
