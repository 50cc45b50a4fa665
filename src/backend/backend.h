// The seam to a device: a step, not an op. The engine hands over eval items; what a device fuses is
// its own affair. Prefill, decode, chunk, speculation and scoring are the same item with other
// numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/kv_policy.h"
#include "base/types.h"
#include "model/artifact.h"
#include "model/config.h"
#include "model/eval_item.h"

namespace kipp {

// Logits of a step: [rows, vocab], in item order and within an item in position order.
// The data belongs to the backend and is valid until its next eval.
struct LogitsView {
  const float* data = nullptr;
  int rows = 0;
  int vocab = kVocabRows;

  std::span<const float> row(int i) const {
    return {data + static_cast<std::size_t>(i) * static_cast<std::size_t>(vocab),
            static_cast<std::size_t>(vocab)};
  }
};

// How keys and values are kept. f32 exists for the gate that measures what rounding to BF16 costs.
enum class KvStore : std::uint8_t {
  bf16,
  f32,
  tiered,  // bit planes, read at the width that the distance to the query asks for
};

struct KvConfig {
  int blocks = 0;  // physical blocks of kBlockPositions positions, shared by all sequences
  KvStore store = KvStore::bf16;
  // tiered: who reads what, and how many units of kKvUnitBytes all planes of all blocks share.
  KvPolicy policy = {};
  int units = 0;
};

// Where the weights of the projections and the head live while a backend runs.
enum class WeightStore : std::uint8_t {
  packed,  // copied at load into the order its kernels read
  mapped,  // left in the artifact's mapping: half the memory, slower
};

std::string_view to_string(WeightStore store);
Result<WeightStore> parse_weight_store(std::string_view name);

// Bytes of weights made ready, of how many.
using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// What a backend has no use for it ignores: `reference` computes on one thread from the mapping.
struct LoadOptions {
  int threads = 0;  // 0: one per core
  WeightStore weights = WeightStore::packed;
  LoadProgress progress = {};
  // A sequence has the same bits alone and in any batch, in any chunks, found in the cache or not,
  // after a restart, with speculation or without. cuda alone has a faster way, whose precision
  // depends on the size of a step; the others are always so.
  bool deterministic = true;
  // webgpu: which GPU, by its index or a part of its name in `kipp devices`; empty: the best there
  // is.
  std::string adapter = {};
};

struct BackendInfo {
  std::string_view name;
  // What a saved session names, because its bits depend on it: `name` where there is one way only.
  std::string_view arithmetic = name;
  int max_step_tokens = 0;  // the most tokens one eval takes, all items together
  int max_logit_rows = 0;   // the most rows of logits one eval returns, all items together
  int threads = 1;          // that compute, once loaded
  bool on_host = true;      // this machine's processor and memory are what it computes with
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendInfo& info() const = 0;
  // Called once, before any eval. The artifact must outlive the backend.
  virtual Result<void> load(const Artifact& artifact, const KvConfig& kv,
                            const LoadOptions& options = {}) = 0;
  // All or nothing: on an error no block has changed its meaning. Items of one step name distinct
  // sequences.
  virtual Result<LogitsView> eval(std::span<const EvalItem> items) = 0;
  virtual void copy_blocks(std::span<const BlockCopy> copies) = 0;
  // Tiered stores: the planes of these blocks, in order. The caller keeps the sum of all units
  // within KvConfig::units. What a plane that was not there before holds is undefined until it is
  // written. Before eval() every block must hold what its readers read and its writer writes: a
  // step that finds less is refused.
  virtual void hold_planes(std::span<const PlaneChange> /*changes*/) {}
  // `from` gives these planes to `to`, which does not hold them and whose tokens are the same.
  virtual void move_planes(BlockId /*from*/, BlockId /*to*/, PlaneBits /*planes*/) {}
  // A block's bytes in the layout shared by all devices, for saving and restoring.
  virtual std::size_t block_bytes() const = 0;
  // Of a tiered block that holds these planes, which read_block and write_block then exchange; a
  // block is to hold the planes of `in` before it is written.
  virtual std::size_t block_bytes(PlaneBits /*planes*/) const { return block_bytes(); }
  virtual Result<void> read_block(BlockId block, std::span<std::byte> out) = 0;
  virtual Result<void> write_block(BlockId block, std::span<const std::byte> in) = 0;
};

}  // namespace kipp
