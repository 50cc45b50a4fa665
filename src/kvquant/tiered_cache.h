// The keys and values of one sequence, at the precision that each position deserves.
//
// Rows are appended in order, any number at a time. The open block holds them as BF16; when its
// 32nd position arrives its codes are made, once. Nothing is freed behind the caller's back:
// demote() says that no query before a position will come again, and frees what no later one reads.
// Until then every block keeps its BF16 rows, so truncate() may go back into it and earlier queries
// may still be asked.
//
// What a read returns depends on the rows, the scheme and the two positions alone: not on how rows
// were batched, on what was freed or truncated in between, or on the backend.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "kvquant/kv_backend.h"
#include "kvquant/plane_arena.h"

namespace kvquant {

struct CacheConfig {
  KvShape shape;
  KvScheme scheme;
  TieredKvPolicy policy;
  int max_positions = 0;

  // The most positions appended between two calls of demote(length()) that memory is set aside for;
  // what a block takes before it is demoted is several times what it keeps. 0: all of them.
  int undemoted_positions = 0;
};

// Dequantized rows for an attention kernel, [position][head][channel] in FP32. The memory is the
// caller's.
struct AttentionInput {
  std::span<float> k, v;
};

struct MemoryReport {
  struct Part {
    int blocks = 0;
    std::size_t bytes = 0;  // of the planes they hold now
  };
  Part bands[kBands];  // by Band, as the query at the next position would read them
  std::size_t held = 0;
  std::size_t reserved = 0;     // taken from the system when the cache was made
  double bits_per_element = 0;  // held, over the elements appended; 0 for an empty cache
};

// What does not depend on the backend's type. Use TieredKvCache.
class TieredCacheCore {
 public:
  const BlockLayout& layout() const { return layout_; }
  const CacheConfig& config() const { return config_; }
  int length() const { return length_; }  // positions held
  // Block i of the blocks that length() touches, to store or to read planes from directly.
  const KvBlock& block(int index) const { return blocks_[static_cast<std::size_t>(index)]; }

  // Frees every plane that no query at `query_position` or later reads. length() is the next
  // query's position.
  Status demote(int query_position);

  // Forgets positions from `length` on. It may lie in a block that still has its BF16 rows, or at
  // the start of any block.
  Status truncate(int length);

  MemoryReport memory() const;

  // Bytes that create() would take for planes.
  static Expected<std::size_t> bytes_needed(const CacheConfig& config);

 protected:
  Status init(const CacheConfig& config);
  Status append(KvBackend& backend, std::span<const float> k, std::span<const float> v);
  Status dequantize(KvBackend& backend, int query_position, int first, int count,
                    const AttentionInput& out) const;

 private:
  static PlaneArena::Counts plane_counts(const CacheConfig& config);
  Status check_block_read(int query_position, int index) const;
  Status take_planes(int index, Side side, PlaneSet planes);
  void free_planes(int index, Side side, PlaneSet keep);
  void cut(int length, int touched);

  CacheConfig config_;
  BlockLayout layout_;
  PlaneArena arena_;
  std::unique_ptr<KvBlock[]> blocks_;
  int length_ = 0;
  int settled_ = 0;  // blocks from the first that demote() has brought to their last band
};

// A cache moves in constant time; one moved from may only be destroyed or assigned to.
template <class Backend>
class TieredKvCache : public TieredCacheCore {
 public:
  // The only call that allocates.
  static Expected<TieredKvCache> create(Backend backend, const CacheConfig& config) {
    TieredKvCache cache(std::move(backend));
    if (Status status = cache.init(config); !status.ok()) return status;
    return cache;
  }

  // Rows as [position][head][channel]. On an error the cache is as it was.
  Status append(std::span<const float> k, std::span<const float> v) {
    return TieredCacheCore::append(backend_, k, v);
  }

  // Positions [first, first + count) as the query at `query_position` reads them: not before the
  // last of them. Blocks are read where their tiers differ, so any range will do. A refused read
  // writes nothing.
  Status dequantize(int query_position, int first, int count, const AttentionInput& out) {
    return TieredCacheCore::dequantize(backend_, query_position, first, count, out);
  }
  // The whole sequence, as the query at the next position reads it.
  Status dequantize(const AttentionInput& out) { return dequantize(length(), 0, length(), out); }

  Backend& backend() { return backend_; }

 private:
  explicit TieredKvCache(Backend backend) : backend_(std::move(backend)) {}

  Backend backend_;
};

}  // namespace kvquant
