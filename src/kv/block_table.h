// One sequence's blocks: logical block i holds positions [32 i, 32 i + 32).
//
//     | published, pinned | private ... | reserved, not taken ...
//     0                   published_positions()                  capacity()
//
// Private blocks are taken when positions need them, so that what is promised to a sequence and not
// reached by it still serves as cache. The table owns its pins, its private blocks and its
// reservation and gives all back to the pool, which must outlive it. One thread, the engine's.
//
// Two ways to begin. Requests are admit()ted: what is found published spares them memory, and in
// return they never go back into it. A timeline that may be cut anywhere and led elsewhere insures
// its whole capacity with insure(), whatever it shares meanwhile.
//
// Whoever publishes hands the block over: nobody ever writes it again. Tokens must be final: a
// speculating sequence publishes after acceptance.
//
// In a tiered pool the table also needs, of each of its blocks, the planes that its next query
// reads, and no others from then on. A step begins with grow(begin, end), and the pool's changes
// are drained before the backend sees it; afterwards publish(), advance() or truncate() says where
// the sequence stands, whether the step succeeded or not, before the next step of anybody.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/types.h"
#include "kv/block_pool.h"

namespace kipp {

class BlockTable {
 public:
  // Room for `positions` positions, beginning with whatever of `prompt` is published, at least its
  // last token excepted; nothing of an empty one. Nothing, and nothing changed, when the pool
  // cannot promise that now: the caller waits. positions >= prompt.size().
  static std::optional<BlockTable> admit(BlockPool& pool, std::span<const Token> prompt,
                                         int positions, CacheSalt salt = 0);
  // Room for `positions` positions of its own.
  static std::optional<BlockTable> insure(BlockPool& pool, int positions, CacheSalt salt = 0);

  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&& other) noexcept;
  ~BlockTable();

  // Positions promised; a multiple of kBlockPositions.
  int capacity() const;
  // Positions in published blocks, whose keys and values are there; right after admit(): those that
  // were found. A multiple of kBlockPositions.
  int published_positions() const { return n_published_ * kBlockPositions; }

  // Takes the blocks that positions [0, positions) need; positions <= capacity(). Of a pool that is
  // not tiered.
  void grow(int positions);
  // The same, for a step that writes positions [begin, end) behind `begin` evaluated ones: every
  // block gets what is read and written of it, and blocks past `end` go back. Not `final`: the
  // sequence may be truncated to any of these positions and keep what is before; then there are at
  // most kBlockPositions of them.
  void grow(int begin, int end, bool final = true);
  // Positions [0, length) are evaluated and final: what earlier queries read is not needed any
  // more, and after a final step what it did not get to is given back. publish() of as many tokens
  // does that too.
  void advance(int length);
  // The blocks that cover positions [0, positions), which grow() or the past has taken.
  std::span<const BlockId> covering(int positions) const;

  // How many of the first `positions` positions, all evaluated, truncate() can keep: where planes
  // are gone that the next query would read, or the rows of a block that is cut in two, it is less.
  int kept(int positions) const;
  // Gives the blocks past `positions`, = kept(positions), back to the reservation. Only an insured
  // table can go back to
  // less than published_positions(). A published block that `positions` cuts in two is replaced by
  // a private one; the copy to make before anything else is written, if one is needed, is returned.
  std::optional<BlockCopy> truncate(int positions);

  // Publishes every private block that `tokens`, all tokens evaluated so far, fill. Where an equal
  // block is published already, it replaces the private one.
  void publish(std::span<const Token> tokens);

  // How much of `prompt` resume() would find there now, short of its last token; publishes
  // `tokens`, all tokens evaluated so far.
  int match(std::span<const Token> tokens, std::span<const Token> prompt);

  struct Resumed {
    int positions = 0;              // of the prompt whose keys and values are there now
    int found = 0;                  // of these, what this table had not evaluated itself
    std::optional<BlockCopy> copy;  // as of truncate()
  };
  // Publishes `tokens`, all tokens evaluated so far, and makes the table hold as much of `prompt`
  // as there is: what the two have in common, or more if published blocks go on from there; always
  // short of the prompt's last token. A request that has evaluated part of its prompt may so find
  // what others published since it was admitted; unless it is insured, `prompt` must begin with
  // `tokens` and go on.
  Resumed resume(std::span<const Token> tokens, std::span<const Token> prompt);

  // A second sequence with the same `tokens`, all tokens evaluated so far, and room for
  // `positions`: full blocks are published and shared; the open one is copied, after the pool's
  // changes are drained and before either sequence writes. Nothing, and nothing changed, when the
  // pool cannot promise the room. positions
  // >= tokens.size().
  struct Fork;
  std::optional<Fork> fork(std::span<const Token> tokens, int positions);

  // Tiered: appends the next block of a timeline of `positions` positions that is read back from
  // elsewhere, with these planes until the next call; among them those that
  // PlanePlan::at_rest(positions, index) names. publish() follows the last one.
  BlockId grow_restored(int positions, PlaneBits planes);

 private:
  BlockTable(BlockPool& pool, CacheSalt salt, Pin how, int quota)
      : pool_(&pool), salt_(salt), how_(how), quota_(quota) {}

  struct Reusable {
    int common = 0;              // positions that the table and the prompt have in common
    int whole = 0;               // blocks that hold them alone
    std::vector<BlockId> found;  // published ones that go on from there and are of use
    int unreadable = 0;          // published ones that are of none
    int positions = 0;           // in all
  };
  Reusable reusable(std::span<const Token> tokens, std::span<const Token> prompt) const;
  std::optional<BlockId> last_published() const;
  int size() const { return static_cast<int>(blocks_.size()); }
  bool keeps_rows_of(int block) const;
  void take(PlaneBits planes);
  void need(int block, PlaneBits planes);
  void settle(int query_block);
  void rest(int length);
  void add_pinned(BlockId published);
  void drop_last();
  void clear();

  BlockPool* pool_;
  CacheSalt salt_;
  Pin how_;
  int quota_;  // units
  std::vector<BlockId> blocks_;
  std::vector<PlaneBits> needed_;  // of each block, by this table
  int query_block_ = 0;            // for which needed_ was settled; blocks from it on are private
  bool has_drafts_ = false;        // of the last step; they may stay yet
  int n_published_ = 0;            // of blocks_, the first ones
  int reserved_ = 0;               // blocks that may still be taken
};

struct BlockTable::Fork {
  BlockTable table;
  std::optional<BlockCopy> copy;
};

}  // namespace kipp
