#include "backend/reference/paged_kv.h"

#include "model/memory.h"

namespace kipp::reference {

Result<PagedKv> PagedKv::create(const ModelConfig& config, const KvConfig& kv) {
  PagedKv cache;
  cache.store_ = kv.store;
  cache.blocks_ = kv.blocks;
  cache.block_bytes_ = kv_block_bytes(config, element_bytes(kv.store));
  const auto blocks = static_cast<std::size_t>(kv.blocks);
  cache.data_.reset(static_cast<std::byte*>(std::calloc(blocks, cache.block_bytes_)));
  if (cache.data_ == nullptr) {
    return fail(ErrorCode::exhausted,
                "memory: the operating system refused {} KV blocks of {} bytes", kv.blocks,
                cache.block_bytes_);
  }
  return cache;
}

}  // namespace kipp::reference
