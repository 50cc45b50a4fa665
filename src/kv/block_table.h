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

  // Takes the blocks that positions [0, positions) need; positions <= capacity().
  void grow(int positions);
  // The blocks that cover positions [0, positions), which grow() or the past has taken.
  std::span<const BlockId> covering(int positions) const;

  // Gives the blocks past `positions` back to the reservation. Only an insured table can go back to
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
  // `positions`: full blocks are published and shared; the open one is copied, before either
  // sequence writes. Nothing, and nothing changed, when the pool cannot promise the room. positions
  // >= tokens.size().
  struct Fork;
  std::optional<Fork> fork(std::span<const Token> tokens, int positions);

 private:
  BlockTable(BlockPool& pool, CacheSalt salt, Pin how) : pool_(&pool), salt_(salt), how_(how) {}

  struct Reusable {
    int kept = 0;                // positions that the table and the prompt have in common
    int whole = 0;               // blocks that hold them alone
    std::vector<BlockId> found;  // published ones that go on from there; pinned by nobody
  };
  Reusable reusable(std::span<const Token> tokens, std::span<const Token> prompt) const;
  std::optional<BlockId> last_published() const;
  void add_pinned(BlockId published);
  void drop_last();
  void clear();

  BlockPool* pool_;
  CacheSalt salt_;
  Pin how_;
  std::vector<BlockId> blocks_;
  int n_published_ = 0;  // of blocks_, the first ones
  int reserved_ = 0;     // blocks that may still be taken
};

struct BlockTable::Fork {
  BlockTable table;
  std::optional<BlockCopy> copy;
};

}  // namespace kipp
