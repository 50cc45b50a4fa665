// Keys and values of all layers as bit planes in the host's memory, for the backends that compute
// there. Which planes a block holds and where is TieredPlanes' business; units lie in one arena,
// scales and offsets beside it, by block, and are always there.
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
#include "backend/tiered_planes.h"
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

  const KvPolicy& policy() const { return planes_.policy(); }
  int blocks() const { return planes_.blocks(); }
  int free_units() const { return planes_.free_units(); }
  PlaneBits held(BlockId block) const { return planes_.held(block); }
  PlaneBits all_planes() const { return planes_.all_planes(); }

  // As Backend's hold_planes, move_planes and copy_blocks. A plane for which no units are left is
  // not held. A copy is of the planes that both blocks hold.
  void hold(std::span<const PlaneChange> changes) { planes_.hold(changes); }
  void move(BlockId from, BlockId to, PlaneBits planes);
  void copy(std::span<const BlockCopy> copies);

  // Refuses a step some reader or writer of which misses a plane, and gives the blocks that need
  // them memory for their rows. Valid until the next begin_step(), as is what follows.
  Result<void> begin_step(const StepPlan& step) { return planes_.begin_step(step); }
  // Blocks whose last position this step writes. Once all rows of a layer are written, and before
  // any are read, their codes are to be made.
  std::span<const BlockId> completed() const { return planes_.completed(); }

  kvquant::Tier tier(int layer, int query, int key) const {
    return planes_.tier(layer, query, key);
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

  // As TieredPlanes::block_bytes(), and the bytes.
  std::size_t block_bytes(PlaneBits planes) const { return planes_.block_bytes(planes); }
  Result<void> read(BlockId block, std::span<std::byte> out) const;
  Result<void> write(BlockId block, std::span<const std::byte> in);

 private:
  using Unit = TieredPlanes::Unit;
  // Which parameters: those of the range, or the pair fitted for int2.
  enum class Pair : std::uint8_t { range = 0, fitted = 1 };

  explicit TieredKv(TieredPlanes planes) : planes_(std::move(planes)) {}
  std::byte* memory(Unit unit) const {
    return arena_.bytes().data() + std::size_t{unit} * kKvUnitBytes;
  }
  // The run of one head in a plane that is held.
  std::byte* head_at(kvquant::Side side, kvquant::Plane plane, BlockId block, int layer,
                     int head) const;
  std::byte* params(BlockId block) const;
  std::byte* params_of_side(BlockId block, int layer, kvquant::Side side) const {
    return params(block) + planes_.parameters_of(layer, side);
  }
  // Scales, and behind them by kPartBytes offsets.
  std::byte* params_of_head(BlockId block, int layer, kvquant::Side side, Pair pair,
                            int head) const;
  Error refusal(BlockId block, int layer, int head, const EncodeScratch& scratch,
                const kvquant::Status& status) const;

  TieredPlanes planes_;
  kvquant::BlockLayout head_layout_;  // of one head alone
  HugeBuffer arena_;                  // [units][kKvUnitBytes]
  HugeBuffer parameters_;             // [blocks][TieredPlanes::parameter_bytes()]
  HugeBuffer step_rows_;              // BF16 [whole_blocks][sides][heads][positions][kHeadDim]
};

}  // namespace kipp
