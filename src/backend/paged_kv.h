// Keys and values of all layers in physical blocks of kBlockPositions positions. Block b's bytes
// are contiguous:
//   [layer][k, v][kv_head][position][head_dim], BF16 or F32, little-endian
// which is also what read and write exchange (docs/BACKENDS.md). Memory comes zeroed and is touched
// only when written, so a large cache costs what is used of it. Shared by the backends that compute
// on the host.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "base/huge_buffer.h"
#include "model/config.h"
#include "model/memory.h"

namespace kipp {

constexpr std::size_t element_bytes(KvStore store) { return store == KvStore::bf16 ? 2 : 4; }

class PagedKv {
 public:
  static Result<PagedKv> create(const ModelConfig& config, const KvConfig& kv) {
    PagedKv cache;
    cache.store_ = kv.store;
    cache.blocks_ = kv.blocks;
    cache.block_bytes_ = kv_block_bytes(config, element_bytes(kv.store));
    auto memory = HugeBuffer::create(static_cast<std::size_t>(kv.blocks) * cache.block_bytes_);
    if (!memory) {
      return fail(ErrorCode::exhausted,
                  "memory: the operating system refused {} KV blocks of {} bytes", kv.blocks,
                  cache.block_bytes_);
    }
    cache.memory_ = *std::move(memory);
    return cache;
  }

  KvStore store() const { return store_; }
  int blocks() const { return blocks_; }
  std::size_t block_bytes() const { return block_bytes_; }
  std::span<std::byte> block(BlockId id) {
    return memory_.bytes().subspan(static_cast<std::size_t>(id) * block_bytes_, block_bytes_);
  }

  void copy(std::span<const BlockCopy> copies) {
    for (const BlockCopy& c : copies) {
      assert(c.from >= 0 && c.from < blocks_ && c.to >= 0 && c.to < blocks_);
      std::ranges::copy(block(c.from), block(c.to).begin());
    }
  }
  Result<void> read(BlockId id, std::span<std::byte> out) {
    KIPP_TRY(check(id, out.size()));
    std::ranges::copy(block(id), out.begin());
    return {};
  }
  Result<void> write(BlockId id, std::span<const std::byte> in) {
    KIPP_TRY(check(id, in.size()));
    std::ranges::copy(in, block(id).begin());
    return {};
  }

  // The positions of one head in one block: [kBlockPositions, kHeadDim] of T, the type store()
  // names.
  template <class T>
  T* keys(BlockId id, int layer, int kv_head) {
    return head<T>(id, layer, 0, kv_head);
  }
  template <class T>
  T* values(BlockId id, int layer, int kv_head) {
    return head<T>(id, layer, 1, kv_head);
  }

 private:
  Result<void> check(BlockId id, std::size_t bytes) const {
    if (id < 0 || id >= blocks_) {
      return fail(ErrorCode::invalid, "block: expected one from 0 to {}, found {}", blocks_ - 1,
                  id);
    }
    if (bytes != block_bytes_) {
      return fail(ErrorCode::invalid, "block {}: expected {} bytes, found {}", id, block_bytes_,
                  bytes);
    }
    return {};
  }

  template <class T>
  T* head(BlockId id, int layer, int k_or_v, int kv_head) {
    constexpr std::size_t kHeadElements = std::size_t{kBlockPositions} * kHeadDim;
    const auto heads_before = static_cast<std::size_t>((layer * 2 + k_or_v) * kKvHeads + kv_head);
    return reinterpret_cast<T*>(block(id).data()) + heads_before * kHeadElements;
  }

  KvStore store_ = KvStore::bf16;
  int blocks_ = 0;
  std::size_t block_bytes_ = 0;
  HugeBuffer memory_;
};

}  // namespace kipp
