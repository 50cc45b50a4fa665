// Which planes of a block are in memory, who needs them, and what goes when memory runs short.
//
// A block's keys and values are planes (PlaneBits), each so many units of memory; all units come
// from one arena. A query reads of a block the planes that the band of their distance asks for:
//
//     query block - block          band     planes
//     0                            open     open: the rows as they came, to be written and read
//     any, block < sink_blocks     sink     sink
//     1 .. recent_blocks           recent   recent
//     .. + mid_blocks              mid      mid
//     beyond                       far      far
//
// Planes are made when a block's last position is written and can never be made again without
// evaluating its tokens. So a block holds from the beginning what farther bands will read, and
// needed() is the union over all distances from this one on: it can only shrink as a reader moves
// away.
//
//     base     what the farthest band needs: a complete block holds it as long as it exists
//     extra    held beyond the base: counted by the readers that need it; with none, a plane that
//              some band reads is idle, kept while nobody needs its memory, dropped in the order
//              in which planes became idle; one that no band reads is dropped at once
//
// One clock tells when planes became idle here and when blocks did in the pool, so that memory is
// taken from what was used least recently of both: a block's planes before the block, and neither
// before what is older. Were all idle planes dropped first, then in a busy pool no prefix could be
// read any more, since its last blocks are read at full width, and cached blocks would be in vain.
//
// Numbers only; the bytes are the backend's, which is told of every change in order. One thread,
// the engine's. All memory but that of undrained changes is taken by the constructor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/types.h"

namespace kipp {

inline constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

struct PlanePlan {
  std::array<int, kMaxPlanes> units = {1};  // of each plane of one block; 0: of no layer
  int total_units = 0;                      // of all planes of all blocks
  int sink_blocks = 0;
  int recent_blocks = 0;
  int mid_blocks = 0;
  // The most blocks that begin and are complete within one step, all sequences together: tokens of
  // the largest step / kBlockPositions. They are read in that step, each by the one after it, so
  // their extras are set aside once, for everybody's steps.
  int step_blocks = 0;
  // What the band reads. `open` is what a block that is not complete holds.
  PlaneBits open = 1;
  PlaneBits sink = 1;
  PlaneBits recent = 1;
  PlaneBits mid = 1;
  PlaneBits far = 1;

  // Of complete blocks, by their place in a sequence.
  PlaneBits base(int block) const { return block < sink_blocks ? sink : far; }
  // What queries in `query_block` and all later ones read of an earlier block.
  PlaneBits needed(int query_block, int block) const;
  // What a sequence of so many positions holds of `block` between two steps.
  PlaneBits at_rest(int positions, int block) const {
    return block == positions / kBlockPositions ? open : needed(positions / kBlockPositions, block);
  }
  // Those that some band of complete blocks reads.
  PlaneBits cached() const;

  int units_of(PlaneBits planes) const;
  int base_units() const { return units_of(far); }
  // The most that a sequence of so many blocks holds beyond base_units() for each: its window of
  // recent and mid blocks, the block that is completed while that window is still read, two open
  // blocks (the one a step begins in and the one it ends in), and what sinks have more than others.
  int quota(int blocks) const;
  int step_units() const { return step_blocks * extra_units(1); }

 private:
  // Of a block that is no sink, so many blocks before the query.
  PlaneBits at_distance(int distance) const;
  int extra_units(int distance) const {
    return units_of(static_cast<PlaneBits>(at_distance(distance) & ~far));
  }
};

class PlaneLedger {
 public:
  // For block ids 0 .. blocks - 1, which hold nothing. `records`: whether changes are kept for
  // drain(); not, where blocks are whole and nobody asks.
  PlaneLedger(const PlanePlan& plan, int blocks, bool records);

  const PlanePlan& plan() const { return plan_; }
  PlaneBits held(BlockId block) const { return at(block).held; }
  int free_units() const { return plan_.total_units - held_units_; }
  int idle_units() const { return idle_units_; }
  // Blocks that hold a plane, by plane.
  const std::array<int, kMaxPlanes>& holders() const { return holders_; }
  std::uint64_t demotions() const { return demotions_; }  // idle planes dropped for their memory

  PlaneBits base(BlockId block) const { return at(block).base; }
  // Of a block that holds nothing: these will never be idle, and readers of them are not counted.
  void set_base(BlockId block, PlaneBits base);
  // The block holds these too, which it did not hold and for which there are free units.
  void add(BlockId block, PlaneBits planes);
  // One reader more or less of planes that the block holds.
  void pin(BlockId block, PlaneBits planes);
  void unpin(BlockId block, PlaneBits planes);
  // Planes without readers, base or not.
  void drop(BlockId block, PlaneBits planes);
  // Everything; no plane has readers.
  void release(BlockId block) { drop(block, at(block).held); }
  // When the plane that has been idle for longest became so; kNever when none is idle.
  std::uint64_t oldest_idle() const {
    return oldest_ == kNone ? kNever : links_[static_cast<std::size_t>(oldest_)].since;
  }
  // Drops that one.
  void drop_oldest();
  std::uint64_t tick() { return ++clock_; }
  // Planes that `from` holds, without readers, and `to`, a complete block, does not.
  void move(BlockId from, BlockId to, PlaneBits planes);

  // Hands over what has changed since the last call, in order: hold(std::span<const PlaneChange>)
  // and move(from, to, planes).
  template <class Hold, class Move>
  void drain(Hold&& hold, Move&& move) {
    std::size_t done = 0;
    const std::span<const PlaneChange> changes(changes_);
    for (const Moved& m : moves_) {
      if (m.at > done) hold(changes.subspan(done, m.at - done));
      move(m.from, m.to, m.planes);
      done = m.at;
    }
    if (changes.size() > done) hold(changes.subspan(done));
    changes_.clear();
    moves_.clear();
  }

  int readers(BlockId block, int plane) const { return counts_[node(block, plane)]; }
  // Whether units add up, exactly the cached planes without readers are idle, and nothing is held
  // that nobody could need.
  Result<void> check() const;

 private:
  static constexpr std::int32_t kNone = -1;
  struct Block {
    PlaneBits held = 0;
    PlaneBits base = 0;  // of these, never idle
    PlaneBits idle = 0;
  };
  struct Links {
    std::int32_t older = kNone;
    std::int32_t newer = kNone;
    std::uint64_t since = 0;
  };
  struct Moved {
    std::size_t at = 0;  // changes before it
    BlockId from = 0;
    BlockId to = 0;
    PlaneBits planes = 0;
  };

  const Block& at(BlockId block) const { return blocks_[static_cast<std::size_t>(block)]; }
  Block& at(BlockId block) { return blocks_[static_cast<std::size_t>(block)]; }
  static std::size_t node(BlockId block, int plane) {
    return static_cast<std::size_t>(block) * kMaxPlanes + static_cast<std::size_t>(plane);
  }
  void set_held(BlockId block, PlaneBits held);
  void record(BlockId block);
  void make_idle(BlockId block, int plane);
  void make_busy(BlockId block, int plane);

  PlanePlan plan_;
  bool records_;
  std::vector<Block> blocks_;         // [blocks]
  std::vector<std::int32_t> counts_;  // [blocks, kMaxPlanes] readers of extras
  std::vector<Links> links_;          // [blocks, kMaxPlanes] neighbours in the list of idle planes
  std::int32_t oldest_ = kNone;       // its ends
  std::int32_t newest_ = kNone;
  int held_units_ = 0;
  int idle_units_ = 0;
  std::array<int, kMaxPlanes> holders_ = {};
  std::uint64_t clock_ = 0;
  std::uint64_t demotions_ = 0;
  std::vector<PlaneChange> changes_;  // undrained
  std::vector<Moved> moves_;
};

}  // namespace kipp
