#include "model/memory.h"

#include <fstream>
#include <string>

namespace kipp {

namespace {

double gib(std::size_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0); }

}  // namespace

MemoryNeed memory_needed(const ModelConfig& config, int kv_blocks, std::size_t element_bytes,
                         int max_step_tokens, int max_logit_rows) {
  const StepWidths w = step_widths(config);
  const auto row = static_cast<std::size_t>(w.x + w.h + w.qkv + w.ctx + w.gate_up + w.act +
                                            kHeadDim);  // kHeadDim: RoPE's cos and sin
  const auto logit_row = static_cast<std::size_t>(w.last + w.logits);
  const auto positions = static_cast<std::size_t>(kv_blocks) * kBlockPositions;
  const auto scores = static_cast<std::size_t>(config.queries_per_kv_head()) * positions;
  return {.kv_bytes = static_cast<std::size_t>(kv_blocks) * kv_block_bytes(config, element_bytes),
          .scratch_bytes = (static_cast<std::size_t>(max_step_tokens) * row +
                            static_cast<std::size_t>(max_logit_rows) * logit_row + scores) *
                           sizeof(float)};
}

std::size_t available_memory() {
  std::ifstream meminfo("/proc/meminfo");
  std::string field;
  std::size_t kib = 0;
  for (std::string line; meminfo >> field >> kib && std::getline(meminfo, line);) {
    if (field == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

Result<void> check_memory(const MemoryNeed& need, int kv_blocks, std::size_t available) {
  if (available != 0 && need.total() > available) {
    const std::string weights =
        need.weight_bytes == 0 ? "" : fmt::format(", {:.1f} for weights", gib(need.weight_bytes));
    return fail(
        ErrorCode::exhausted,
        "memory: {:.1f} GiB needed ({:.1f} for {} cached positions, {:.1f} for one step{}), "
        "{:.1f} GiB available; ask for a shorter context{}",
        gib(need.total()), gib(need.kv_bytes),
        static_cast<std::size_t>(kv_blocks) * kBlockPositions, gib(need.scratch_bytes), weights,
        gib(available), need.weight_bytes == 0 ? "" : " or for mapped weights");
  }
  return {};
}

}  // namespace kipp
