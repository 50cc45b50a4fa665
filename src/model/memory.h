// Bytes a backend needs for one checkpoint, known before anything is allocated, so that a context
// that does not fit is refused with numbers instead of being killed later.
#pragma once

#include <cstddef>

#include "base/types.h"
#include "model/config.h"

namespace kipp {

// Floats per row of each activation buffer of forward(). Backends allocate from this, so that the
// figures below cannot drift from what is allocated.
struct StepWidths {
  int x = 0;        // the residual stream
  int h = 0;        // normed input of a projection
  int qkv = 0;      // queries, keys, values
  int ctx = 0;      // attention output
  int gate_up = 0;  // both halves of the gated feed-forward
  int act = 0;      // silu(gate) * up
  int last = 0;     // the rows of x whose logits are asked for
  int logits = 0;
};

constexpr StepWidths step_widths(const ModelConfig& config) {
  return {.x = config.hidden,
          .h = config.hidden,
          .qkv = config.attention_width() + 2 * kKvWidth,
          .ctx = config.attention_width(),
          .gate_up = 2 * config.intermediate,
          .act = config.intermediate,
          .last = config.hidden,
          .logits = kVocabRows};
}

// One block of kBlockPositions positions: keys and values of every layer.
constexpr std::size_t kv_block_bytes(const ModelConfig& config, std::size_t element_bytes) {
  return static_cast<std::size_t>(config.layers) * 2 * kKvWidth * kBlockPositions * element_bytes;
}

struct MemoryNeed {
  std::size_t kv_bytes = 0;       // all blocks
  std::size_t scratch_bytes = 0;  // activations of the largest step, its logits included
  std::size_t weight_bytes = 0;   // weights copied out of the artifact
  std::size_t total() const { return kv_bytes + scratch_bytes + weight_bytes; }
};

MemoryNeed memory_needed(const ModelConfig& config, int kv_blocks, std::size_t element_bytes,
                         int max_step_tokens, int max_logit_rows);

// What the operating system says it can hand out without swapping; 0 when it does not say.
std::size_t available_memory();

// Refuses a need above `available` (0: not known, accepted) and names both.
Result<void> check_memory(const MemoryNeed& need, int kv_blocks, std::size_t available);

}  // namespace kipp
