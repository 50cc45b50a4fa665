// How much memory a KV policy takes: from a policy and a number of bytes, or of positions, to what
// the backend allocates and the block pool counts. Also where it stands which policies a
// checkpoint's gate has passed.
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/backend.h"
#include "backend/kv_policy.h"
#include "base/types.h"
#include "kv/block_pool.h"
#include "kv/plane_ledger.h"
#include "model/config.h"

namespace kipp {

// Room for keys and values: bytes, or what so many sequences need that hold so many blocks
// together.
struct KvRoom {
  std::uint64_t bytes = 0;  // 0: by blocks
  int blocks = 0;
  int sequences = 1;
};

struct KvPlan {
  KvConfig cache;           // for the backend
  PlanePlan planes;         // for the pool; whole blocks where the policy is all BF16
  std::uint64_t bytes = 0;  // all of it
};

// Refuses layers that are not there and less room than one sequence of one block needs. `whole`:
// the store of a policy that is all BF16. max_step_tokens: the backend's.
Result<KvPlan> plan_kv(const KvPolicy& policy, KvStore whole, const ModelConfig& config,
                       int max_step_tokens, const KvRoom& room);

// Bytes of one block as it stays when the sequence has gone on: what far bands read.
std::uint64_t far_block_bytes(const KvPolicy& policy, const ModelConfig& config);

// Tells the backend which planes of which blocks it is to hold by now: before it evaluates or
// copies.
void hand_over_planes(BlockPool& pool, Backend& backend);

// What a bit of PlaneBits is called, for counters: "key" or "value"; "hi2", "mid2", "low4" or
// "bf16"; "common" or "apart".
struct PlaneName {
  const char* side;
  const char* plane;
  const char* layers;
};
PlaneName name_of_plane(int bit);

// Refuses a policy that was not measured on the checkpoint, or measured and found wanting
// (docs/KV.md).
Result<void> check_proven(const KvPolicy& policy, std::string_view checkpoint);

}  // namespace kipp
