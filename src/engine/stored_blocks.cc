#include "engine/stored_blocks.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "engine/kv_plan.h"

namespace kipp {

bool BlockSaver::save_one() {
  const PoolStats stats = pool_.stats();
  if (const auto now = std::pair(stats.published, stats.evictions); now != seen_) {
    look();
    seen_ = now;
  }
  return store_.has_room() && save_next();
}

void BlockSaver::save_all() {
  look();
  const std::size_t most =
      store_.stats().budget / std::max<std::size_t>(backend_.block_bytes(pool_.plan().far), 1);
  if (wanted_.size() > most) wanted_.resize(most);
  do {
    store_.wait_for_room();
  } while (save_next());
}

// Every block before those that continue it, so that what is written can be found.
void BlockSaver::look() {
  wanted_.clear();
  const PrefixIndex& index = pool_.index();
  std::unordered_map<BlockId, std::uint64_t> chain;
  std::vector<BlockId> path;
  for (const BlockId block : pool_.published()) {
    path.clear();
    for (std::optional<BlockId> at = block; at && !chain.contains(*at); at = index.parent(*at)) {
      path.push_back(*at);
    }
    std::ranges::reverse(path);
    for (const BlockId next : path) {
      const auto parent = index.parent(next);
      const std::uint64_t hash =
          prefix_hash(parent ? chain.at(*parent) : index.salt(next), index.tokens(next));
      chain.emplace(next, hash);
      if (store_.wants(hash, pool_.held(next))) wanted_.push_back(next);
    }
  }
}

bool BlockSaver::save_next() {
  if (wanted_.empty()) return false;
  const BlockId block = wanted_.front();
  wanted_.pop_front();
  hand_over_planes(pool_, backend_);
  const PrefixIndex& index = pool_.index();
  std::vector<BlockId> path;
  for (std::optional<BlockId> at = block; at; at = index.parent(*at)) path.push_back(*at);
  std::vector<Token> tokens;
  tokens.reserve(path.size() * kBlockPositions);
  std::ranges::reverse(path);
  for (const BlockId at : path) {
    const BlockTokens held = index.tokens(at);
    tokens.insert(tokens.end(), held.begin(), held.end());
  }
  const PlaneBits planes = pool_.held(block);
  std::vector<std::byte> bytes(backend_.block_bytes(planes));
  if (backend_.read_block(block, bytes)) {
    store_.save(std::move(tokens), index.salt(block), planes, std::move(bytes));
  }
  return true;
}

std::optional<BlockRestore> BlockRestore::begin(SessionStore& store, const BlockPool& pool,
                                                const BlockTable& table,
                                                std::span<const Token> prompt, CacheSalt salt) {
  const PlanePlan& plan = pool.plan();
  const auto usable = [&plan](int end, int i, PlaneBits planes) {
    const bool readable = (plan.at_rest(end * kBlockPositions, i) & ~planes) == 0;
    return readable && (planes & ~plan.cached()) == 0;
  };
  auto prefix = store.find(prompt, salt, table.published_positions() / kBlockPositions, usable);
  if (!prefix) return std::nullopt;
  return BlockRestore(store, std::move(prefix));
}

BlockRestore::State BlockRestore::go_on(BlockPool& pool, Backend& backend, BlockTable& table,
                                        std::size_t& bytes) {
  State state = State::waiting;
  while (next_ < prefix_->end() && (state == State::waiting || bytes > 0)) {
    const StoredPrefix::State there = prefix_->state();
    if (there == StoredPrefix::State::failed) return State::failed;
    if (there == StoredPrefix::State::loading) return state;
    const SessionFile& file = prefix_->front();
    const auto planes = static_cast<PlaneBits>(file.part(0).planes);
    const BlockId block = table.grow_restored(positions(), planes);
    hand_over_planes(pool, backend);
    if (!backend.write_block(block, file.block(0))) {
      prefix_->reject();
      return State::failed;
    }
    bytes -= std::min(bytes, file.block(0).size());
    prefix_->pop();
    ++next_;
    state = State::working;
  }
  if (next_ < prefix_->end()) return state;
  store_->count_restored(static_cast<std::uint64_t>(prefix_->end() - prefix_->first()));
  return State::done;
}

}  // namespace kipp
