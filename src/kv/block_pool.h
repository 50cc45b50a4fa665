// Which physical block holds what, for all sequences of a model. Token ids, numbers and reference
// counts; the bytes are the backend's. Everything here happens on one thread, the engine's.
//
// A block is in exactly one state:
//
//             take               publish             last unpin
//     free ----------> private ----------> pinned <============> evictable
//      ^                |   ^                          pin           |
//      +-- give_back ---+   +--------- take, when none is free ------+
//
//   free       holds nothing
//   private    one table writes it
//   published  full and immutable; found by the tokens it holds and all before them. Pinned while
//              tables use it, else evictable: still found, until somebody needs the memory
//
// The least recently used evictable block goes first, and never before those that continue it. That
// order costs nothing to keep: a table pins a block together with all blocks before it and unpins
// from its end, so of a block and its continuations the latter become evictable first; the list of
// evictable blocks in the order of their last unpin is the order of eviction.
//
// Admission reserves the worst case: a table is made only when every block that it can ever need is
// free, evictable or already found. So a running sequence never runs out, and what does not fit now
// waits. What is promised and not taken, `reserved`, never exceeds free + evictable.
//
// In a tiered pool a block's memory is planes (kv/plane_ledger.h), and a promise is in units: the
// base of every block, as above, and in the table's own name a quota for what it holds beyond
// (PlanePlan::quota), whoever shares its blocks. So extras in use never exceed the sum of quotas
// and the extras set aside for steps, and
//
//     committed = quotas + step_units + base_units x (blocks in use + reserved) <= total units.
//
// Memory for a plane comes from what is free, then from what was used least recently: a plane that
// nobody needs now, or an evictable block. Changes are recorded for drain().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/types.h"
#include "kv/plane_ledger.h"
#include "kv/prefix_index.h"

namespace kipp {

// How a table holds a published block.
//
//   shared   Instead of a block of its own. Tables of many requests share one block's memory, and
//            whoever leaves it must not count on another.
//   insured  Spends one reserved block, which unpin returns, whoever else uses the block by then.
//            A table that holds all its blocks so can leave any of them at any time and replace it
//            by a private one. Ten such tables over one block keep ten blocks promised.
//
// A block's memory is charged to its shared pins if there are any, else to one insured pin; all
// other insured pins' blocks stay promised.
enum class Pin : std::uint8_t { shared, insured };

struct PoolStats {
  int total = 0;  // = free + private_blocks + pinned + evictable
  int free = 0;
  int private_blocks = 0;
  int pinned = 0;     // published and in use
  int evictable = 0;  // published and not in use
  int reserved = 0;   // promised and not taken; at most free + evictable
  // Since the start.
  std::uint64_t lookups = 0;        // prompts whose prefix was looked for
  std::uint64_t lookup_tokens = 0;  // tokens of these prompts that were not at hand
  std::uint64_t hit_tokens = 0;     // tokens that were found and need no evaluation
  std::uint64_t published = 0;      // blocks
  std::uint64_t deduplicated = 0;   // blocks given back on publishing: an equal one was there
  std::uint64_t evictions = 0;
  // Tiered: units. total = in use + idle + free. Idle: planes that nobody needs now and all of
  // evictable blocks. Promised: committed and not in use; found in what is idle or free.
  int total_units = 0;
  int used_units = 0;
  int idle_units = 0;
  int free_units = 0;
  int promised_units = 0;
  std::array<int, kMaxPlanes> plane_holders = {};  // blocks that hold a plane, by plane
  std::uint64_t demotions = 0;                     // planes dropped because their memory was needed
  std::uint64_t shortened_hits = 0;  // prefixes of which more was found than could be read
  std::uint64_t shortened_tokens = 0;
};

// What admission found and set aside.
struct Admission {
  std::vector<BlockId> blocks;  // published ones that hold the first tokens of the prompt, pinned
  int reserved = 0;             // how often take() may be called
  int quota = 0;                // units
};

// Tables (kv/block_table.h) are its only users; they keep to the conditions stated here.
class BlockPool {
 public:
  // Blocks 0 .. blocks - 1, all free.
  explicit BlockPool(int blocks, PrefixHash hash = prefix_hash);
  // Tiered: the ids are a second limit beside plan.total_units; as many as have room for their base
  // are enough.
  BlockPool(int blocks, const PlanePlan& plan, PrefixHash hash = prefix_hash);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  int total() const { return static_cast<int>(blocks_.size()); }
  bool tiered() const { return tiered_; }
  const PlanePlan& plan() const { return ledger_.plan(); }
  // Blocks that can still be promised, quotas apart.
  int available() const;
  // Whether so many blocks for one table, and its quota, can be promised now.
  bool can_promise(int blocks) const { return fits(blocks, plan().quota(blocks)); }
  // Positions of the longest sequence that could be promised if nobody else were there.
  int max_positions() const;

  // Tiered: hands over what has changed since the last call, in order. hold(changes) and move(from,
  // to, planes) do what Backend::hold_planes and move_planes say. Before the backend reads or
  // writes any block, and before a copy that a table has returned.
  template <class Hold, class Move>
  void drain(Hold&& hold, Move&& move) {
    ledger_.drain(std::forward<Hold>(hold), std::forward<Move>(move));
  }
  PlaneBits held(BlockId block) const { return ledger_.held(block); }
  int readers(BlockId block, int plane) const { return ledger_.readers(block, plane); }

  // Finds the longest published prefix of `prompt` that leaves at least its last token to evaluate
  // (of none, nothing) and holds what that reads, pins it (shared), and reserves what `positions`
  // positions need beyond it.
  // Nothing, and nothing changed, when that is more than the pool can promise now. positions >=
  // prompt.size().
  std::optional<Admission> admit(std::span<const Token> prompt, int positions, CacheSalt salt = 0);

  // So many blocks and units promised, or false and nothing changed.
  bool reserve(int blocks, int quota = 0);
  void give_back_reservation(int blocks, int quota = 0);

  // The longest chain of published blocks that hold the first of `tokens`, following `parent`, and
  // leave at least the last of them. Pins nothing: valid until the next call that is not const.
  std::vector<BlockId> find(std::optional<BlockId> parent, std::span<const Token> tokens,
                            CacheSalt salt = 0) const;

  // Of blocks that follow each other from position 0 on: the most, from the first one on, that a
  // query in the block after them can read as they are now.
  int readable(std::span<const BlockId> first, std::span<const BlockId> then) const;

  // One reserved block, private from now on: a free one, else the least recently used evictable
  // one. What the evicted block held stays in it until it is written. Tiered: it becomes the
  // `index`th block of a sequence and holds nothing yet.
  BlockId take(int index = 0);
  // Tiered: one table needs the planes `after` of a block in use in place of `before`, and within
  // its quota; what is missing is made there.
  void need(BlockId block, PlaneBits before, PlaneBits after);
  // Tiered: a private block holds at most these from now on; nobody needs others.
  void shed(BlockId block, PlaneBits all_but);
  // A private block, free again and promised to the table that held it.
  void give_back(BlockId block);

  // The private block is full: it holds `tokens` after `parent`, a block that the caller has pinned
  // (none: from position 0 on). Returns the block to use from now on, pinned: this one, or one
  // published earlier with equal tokens, in which case this one is free again, and that one has got
  // the planes that it had lost. No table needs() planes of the private block any more.
  BlockId publish(BlockId block, std::optional<BlockId> parent, BlockTokens tokens, Pin how,
                  CacheSalt salt = 0);

  // Once more; the caller has pinned the block's parent. An insured pin spends one reserved block.
  // A shared pin that is the first shared one takes one block from what is available, which the
  // caller has just given back.
  void pin(BlockId published, Pin how);
  // Once less; the caller has no pin on what continues the block.
  void unpin(BlockId published, Pin how);

  // For those who look for a prefix elsewhere than in admit().
  void count_lookup(std::size_t tokens);
  void count_hit(std::size_t tokens) { counters_.hit_tokens += tokens; }
  void count_shortened(std::size_t blocks);  // found, and not readable

  // Published blocks, those used last first: pinned ones, then evictable ones. What they hold says
  // index().
  std::vector<BlockId> published() const;
  const PrefixIndex& index() const { return index_; }

  PoolStats stats() const;

  // Whether every block is in exactly one state, counts and units agree, parents outlive what
  // continues them, eviction takes the latter first, and every published block is found; the first
  // thing that does not hold, for tests. Takes time in proportion to the pool.
  Result<void> check() const;

 private:
  static constexpr BlockId kNone = -1;
  enum class State : std::uint8_t { free, owned, published };  // owned: `private` is taken

  struct Block {
    State state = State::free;
    std::array<int, 2> pins = {0, 0};  // by Pin
    BlockId older = kNone;             // neighbours in the list of evictable blocks
    BlockId newer = kNone;
    std::uint64_t since = 0;  // when it became evictable

    bool pinned() const { return pins[0] + pins[1] > 0; }
    // Whether the memory is charged to an insured pin.
    bool insured() const { return pins[0] == 0 && pins[1] > 0; }
  };

  static const char* name(State state);
  const Block& at(BlockId block) const { return blocks_[static_cast<std::size_t>(block)]; }
  Block& at(BlockId block) { return blocks_[static_cast<std::size_t>(block)]; }
  BlockPool(int blocks, const PlanePlan& plan, bool tiered, PrefixHash hash);
  bool fits(int blocks, int quota) const;
  int spare_blocks() const;  // that can still be promised, by their ids
  int spare_units() const;   // and what has not been committed
  int committed_units() const;
  void make_room(int units);
  void change_pins(BlockId block, Pin how, int by);
  void release(BlockId block);
  void evict();
  void append_evictable(BlockId block);
  void remove_evictable(BlockId block);
  Result<void> check_block(BlockId block) const;
  Result<void> check_lists() const;
  Result<void> check_planes() const;

  const bool tiered_;
  PlaneLedger ledger_;
  std::vector<Block> blocks_;
  std::vector<BlockId> free_;  // taken from the end: what was given back last is used first
  PrefixIndex index_;
  BlockId oldest_ = kNone;  // ends of the list of evictable blocks, in the order of last unpin
  BlockId newest_ = kNone;
  int n_private_ = 0;
  int n_evictable_ = 0;
  int reserved_ = 0;
  int quotas_ = 0;  // units
  int evictable_base_units_ = 0;
  PoolStats counters_;  // only what counts since the start
};

}  // namespace kipp
