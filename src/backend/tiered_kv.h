// Keys and values of all layers as bit planes, for the backends that compute on the host. Planes
// are made of units of kKvUnitBytes from one arena with one free list, so that nothing fragments;
// scales and offsets lie beside it, by block, and are always there. Which planes a block holds its
// caller decides (backend.h: hold_planes); this file refuses a step that would need others.
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
//
// One thread calls what is not const; encode() of distinct blocks or heads may run side by side.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/huge_buffer.h"
#include "kvquant/kv_backend.h"
#include "model/config.h"
#include "model/step_plan.h"

namespace kipp {

// One side of one head of a complete block, as a read at `width` sees it. With the codes of one
// position, x[c] = offset + scale * level, where level is
//   int8   the code, hi2 * 64 + mid2 * 16 + low4
//   int4   (hi2 * 4 + mid2) * 16 + 7.5
//   int2   hi2
// and x is turned by the Hadamard transform where the policy rotates.
struct CodeHead {
  const std::uint8_t* hi2 = nullptr;       // [kBlockPositions][32]
  const std::uint8_t* mid2 = nullptr;      // [kBlockPositions][32]; null at int2
  const std::uint8_t* low4 = nullptr;      // [kBlockPositions][64]; null below int8
  const std::uint16_t* scales = nullptr;   // [kBlockPositions] FP16; at int2 the fitted ones
  const std::uint16_t* offsets = nullptr;  // [kBlockPositions] FP16; likewise
  kvquant::BitWidth width = kvquant::BitWidth::int8;
};

// What encode() works in, 61 KB; one for each thread.
struct EncodeScratch {
  static constexpr std::size_t kRows = std::size_t{kBlockPositions} * kHeadDim;
  // Codes and the parameters behind them, of one head.
  static constexpr std::size_t kPlane = kRows / 2 + 2 * 64;
  alignas(64) float rows[kvquant::kSides][kRows];
  alignas(64) std::uint8_t bf16[kvquant::kSides][kRows * 2];
  alignas(64) std::uint8_t codes[kvquant::kSides][kvquant::kPlanes - 1][kPlane];
};

class TieredKv {
 public:
  // Of create(), for checks before anything is allocated.
  static std::size_t bytes_needed(const ModelConfig& config, const KvConfig& kv,
                                  int max_step_tokens);
  static Result<TieredKv> create(const ModelConfig& config, const KvConfig& kv,
                                 int max_step_tokens);

  const KvPolicy& policy() const { return policy_; }
  int blocks() const { return static_cast<int>(held_.size()); }
  int free_units() const { return free_count_ + (units_ - touched_); }
  PlaneBits held(BlockId block) const { return held_[static_cast<std::size_t>(block)]; }
  // Every plane that has layers.
  PlaneBits all_planes() const { return all_planes_; }

  // As Backend's hold_planes, move_planes and copy_blocks. A plane for which no units are left is
  // not held. A copy is of the planes that both blocks hold.
  void hold(std::span<const PlaneChange> changes);
  void move(BlockId from, BlockId to, PlaneBits planes);
  void copy(std::span<const BlockCopy> copies);

  // Refuses a step some reader or writer of which misses a plane, and gives the blocks that need
  // them memory for their rows. Valid until the next begin_step(), as is what follows.
  Result<void> begin_step(const StepPlan& step);
  // Blocks whose last position this step writes. Once all rows of a layer are written, and before
  // any are read, their codes are to be made.
  std::span<const BlockId> completed() const { return completed_; }

  // Widths at which queries of block `query` read block `key` <= query, both counted in positions /
  // kBlockPositions. BF16 where they are equal.
  kvquant::Tier tier(int layer, int query, int key) const {
    return tiers_[group(layer)].tier(query * kBlockPositions, key * kBlockPositions);
  }

  // [kBlockPositions][kHeadDim] BF16; of blocks that hold them or are written whole in this step.
  std::uint16_t* rows(kvquant::Side side, BlockId block, int layer, int head) {
    return const_cast<std::uint16_t*>(std::as_const(*this).rows(side, block, layer, head));
  }
  const std::uint16_t* rows(kvquant::Side side, BlockId block, int layer, int head) const;

  // `width` is not bf16, and its planes are held.
  CodeHead codes(kvquant::Side side, BlockId block, int layer, int head,
                 kvquant::BitWidth width) const;

  // Makes the codes of one layer from its BF16 rows, in the code planes that are held: all heads,
  // or one. Refuses rows that kvquant refuses. Allocates nothing.
  Result<void> encode(BlockId block, int layer, kvquant::KvBackend& backend,
                      EncodeScratch& scratch);
  Result<void> encode_head(BlockId block, int layer, int head, kvquant::KvBackend& backend,
                           EncodeScratch& scratch);

  // Bytes of a block that holds these planes: the planes in the order of their bits, each layer by
  // layer in the units above, then all parameters, in the order of KvPolicy::parameter_bytes();
  // those of codes that are not there are zero.
  std::size_t block_bytes(PlaneBits planes) const;
  Result<void> read(BlockId block, std::span<std::byte> out) const;
  Result<void> write(BlockId block, std::span<const std::byte> in);

 private:
  using Unit = std::uint32_t;
  // Of one side of one layer, in the order of their planes: hi2, mid2, low4, bf16.
  static constexpr std::size_t kUnitsOfSide = 1 + 1 + 2 + 8;
  static constexpr std::size_t kPartBytes = sizeof(std::uint16_t) * kKvHeads * kBlockPositions;
  static constexpr int kNoRows = -1;

  // Of one plane of one side in the layers of one group.
  struct PlaneBit {
    kvquant::Side side;
    kvquant::Plane plane;
    LayerGroup group;
    PlaneBits bit;
    int units;  // of a block
  };
  // Which parameters: those of the range, or the pair fitted for int2.
  enum class Pair : std::uint8_t { range = 0, fitted = 1 };

  std::size_t group(int layer) const { return group_of_layer_[static_cast<std::size_t>(layer)]; }
  bool has(BlockId block, int layer, kvquant::Side side, kvquant::Plane plane) const {
    return (held(block) & plane_bit(static_cast<LayerGroup>(group(layer)), side, plane)) != 0;
  }
  bool has_codes(BlockId block, int layer, kvquant::Side side) const;
  std::span<Unit> units_of_plane(BlockId block, int layer, kvquant::Side side,
                                 kvquant::Plane plane) const;
  std::byte* memory(Unit unit) const {
    return arena_.bytes().data() + std::size_t{unit} * kKvUnitBytes;
  }
  // The run of one head in a plane that is held.
  std::byte* head_at(kvquant::Side side, kvquant::Plane plane, BlockId block, int layer,
                     int head) const;
  std::byte* params(BlockId block) const;
  std::byte* params_of_side(BlockId block, int layer, kvquant::Side side) const;
  // Scales, and behind them by kPartBytes offsets.
  std::byte* params_of_head(BlockId block, int layer, kvquant::Side side, Pair pair,
                            int head) const;
  std::size_t pairs(kvquant::Side side) const;
  Unit take();
  void give_back(Unit unit);
  template <class Visit>
  void for_each_unit(PlaneBits planes, const Visit& visit) const;
  Result<void> check(BlockId block, std::size_t bytes) const;
  Result<void> check_reads(const StepPlan& step, int item, int index, int first_query,
                           int last_query) const;
  Result<void> check_write(int item, BlockId block, int begin, int end) const;
  Error refusal(BlockId block, int layer, int head, const EncodeScratch& scratch,
                const kvquant::Status& status) const;

  KvPolicy policy_;
  kvquant::TieredKvPolicy tiers_[kLayerGroups];  // of policy_
  PlaneBits planes_of_band_[kvquant::kBands] = {};
  PlaneBits all_planes_ = 0;
  PlaneBits bf16_planes_ = 0;
  std::vector<PlaneBit> planes_;  // that have layers, by bit
  std::vector<std::uint8_t> group_of_layer_;
  kvquant::BlockLayout head_layout_;  // of one head alone

  HugeBuffer arena_;       // [units][kKvUnitBytes]
  HugeBuffer parameters_;  // [blocks][KvPolicy::parameter_bytes]
  std::size_t parameter_bytes_ = 0;
  // Unit[layers][blocks][sides][kUnitsOfSide]: attention goes through the blocks of one layer, and
  // with the layers inside would miss the cache at every block.
  HugeBuffer table_;
  HugeBuffer freed_;  // Unit[units]: a stack of free_count_ units that came back
  int units_ = 0;
  int touched_ = 0;  // units ever handed out: those below
  int free_count_ = 0;
  std::vector<PlaneBits> held_;  // [blocks]

  // Of the step.
  HugeBuffer step_rows_;           // BF16 [max_step_tokens / 32][sides][heads][positions][kHeadDim]
  std::vector<int> step_rows_of_;  // [blocks] which of them, or kNoRows
  std::vector<BlockId> completed_;
};

}  // namespace kipp
