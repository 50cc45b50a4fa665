// Between the block pool and the directory of stored prefixes: which published blocks are worth
// writing, and how stored ones come back into a request's table. All of it on the engine's thread;
// what it does at once is bounded by the block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "backend/backend.h"
#include "engine/session_store.h"
#include "kv/block_pool.h"
#include "kv/block_table.h"

namespace kipp {

// Hands published blocks to the store.
class BlockSaver {
 public:
  BlockSaver(BlockPool& pool, Backend& backend, SessionStore& store)
      : pool_(pool), backend_(backend), store_(store) {}

  // One block that the store does not have: of the prefix used last, the first such. False when
  // there is none, or the store has no room now.
  bool save_one();
  // All of them, as many as its budget holds; waits for the store.
  void save_all();

 private:
  void look();
  bool save_next();

  BlockPool& pool_;
  Backend& backend_;
  SessionStore& store_;
  std::pair<std::uint64_t, std::uint64_t> seen_ = {};  // published and evicted blocks, when it
                                                       // looked last
  std::deque<BlockId> wanted_;  // by the store, while nothing is published or evicted
};

// The stored continuation of what a request found in memory, put into its table.
class BlockRestore {
 public:
  // Nothing when nothing is stored. `prompt`: what the table was admitted with.
  static std::optional<BlockRestore> begin(SessionStore& store, const BlockPool& pool,
                                           const BlockTable& table, std::span<const Token> prompt,
                                           CacheSalt salt);

  enum class State : std::uint8_t {
    waiting,  // for the store's thread
    working,
    done,    // the table holds positions(), and publishing them is due
    failed,  // the table is of no use; what is stored of the prompt is less than it seemed
  };
  // Puts blocks in place until `bytes` are used up, at least one that is there.
  State go_on(BlockPool& pool, Backend& backend, BlockTable& table, std::size_t& bytes);
  int positions() const { return prefix_->end() * kBlockPositions; }

 private:
  BlockRestore(SessionStore& store, std::shared_ptr<StoredPrefix> prefix)
      : store_(&store), prefix_(std::move(prefix)), next_(prefix_->first()) {}

  SessionStore* store_;
  std::shared_ptr<StoredPrefix> prefix_;
  int next_;  // block
};

}  // namespace kipp
