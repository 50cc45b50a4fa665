#include "engine/kv_plan.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "model/memory.h"

namespace kipp {
namespace {

// Checkpoints and the policies whose gate they have passed, docs/KV.md.
struct Proven {
  std::string_view checkpoint;
  std::string_view policy;
};
constexpr std::array kProven = {Proven{"kipp-demo", "int8"}, Proven{"kipp-demo", "tiered"},
                                Proven{"kipp-demo", "tiered-max"}};

constexpr std::uint64_t kMostBlocks = 1 << 26;
constexpr std::uint64_t kMostUnits = (std::uint64_t{1} << 31) - 1;  // counted in an int

PlanePlan plane_plan(const KvPolicy& policy, const ModelConfig& config, int max_step_tokens) {
  using kvquant::Band;
  const kvquant::TieredKvPolicy& tiers = policy.tiers(LayerGroup::common);
  PlanePlan plan;
  std::ranges::copy(policy.units_by_plane(config), plan.units.begin());
  plan.sink_blocks = tiers.sink_blocks;
  plan.recent_blocks = tiers.recent_blocks;
  plan.mid_blocks = tiers.mid_width();
  plan.step_blocks = max_step_tokens / kBlockPositions;
  plan.open = policy.planes(Band::open);
  plan.sink = policy.planes(Band::sink);
  plan.recent = policy.planes(Band::recent);
  plan.mid = policy.planes(Band::mid);
  plan.far = policy.planes(Band::far);
  return plan;
}

Result<KvPlan> plan_whole(KvStore store, const ModelConfig& config, const KvRoom& room) {
  const std::uint64_t block = kv_block_bytes(config, store == KvStore::f32 ? 4 : 2);
  const std::uint64_t blocks = room.bytes == 0
                                   ? static_cast<std::uint64_t>(std::max(room.blocks, 0))
                                   : std::min(room.bytes / block, kMostBlocks);
  if (blocks == 0) {
    return fail(ErrorCode::invalid, "KV cache: expected at least {} bytes, one block, found {}",
                block, room.bytes);
  }
  KvPlan plan;
  plan.cache = {.blocks = static_cast<int>(blocks), .store = store};
  plan.planes.total_units = plan.cache.blocks;
  plan.bytes = blocks * block;
  return plan;
}

}  // namespace

std::uint64_t far_block_bytes(const KvPolicy& policy, const ModelConfig& config) {
  return static_cast<std::uint64_t>(policy.units(policy.planes(kvquant::Band::far), config)) *
             kKvUnitBytes +
         policy.parameter_bytes(config);
}

Result<KvPlan> plan_kv(const KvPolicy& policy, KvStore whole, const ModelConfig& config,
                       int max_step_tokens, const KvRoom& room) {
  KIPP_TRY(policy.check_layers(config));
  if (policy.all_bf16()) return plan_whole(whole, config, room);

  KvPlan plan;
  plan.planes = plane_plan(policy, config, max_step_tokens);
  const std::uint64_t parameters = policy.parameter_bytes(config);
  const auto base = static_cast<std::uint64_t>(plan.planes.base_units());
  const auto set_aside = [&](int blocks, int sequences) {
    return static_cast<std::uint64_t>(plan.planes.step_units()) +
           static_cast<std::uint64_t>(plan.planes.quota(blocks)) *
               static_cast<std::uint64_t>(sequences);
  };
  const std::uint64_t least = (base + set_aside(1, 1)) * kKvUnitBytes + parameters;
  std::uint64_t blocks = 0, units = 0;
  if (room.bytes == 0) {
    blocks = static_cast<std::uint64_t>(std::max(room.blocks, 1));
    units = base * blocks + set_aside(static_cast<int>(blocks), room.sequences);
  } else {
    if (room.bytes < least) {
      return fail(ErrorCode::invalid,
                  "KV cache: expected at least {} bytes, one block of a sequence with {}, found {}",
                  least, policy.name(), room.bytes);
    }
    blocks = std::min(room.bytes / (base * kKvUnitBytes + parameters), kMostBlocks);
    units = (room.bytes - blocks * parameters) / kKvUnitBytes;
  }
  if (units > kMostUnits) {
    return fail(ErrorCode::invalid, "KV cache: expected at most {} bytes, found {}",
                kMostUnits * kKvUnitBytes, units * kKvUnitBytes);
  }
  plan.planes.total_units = static_cast<int>(units);
  plan.cache = {.blocks = static_cast<int>(blocks),
                .store = KvStore::tiered,
                .policy = policy,
                .units = static_cast<int>(units)};
  plan.bytes = units * kKvUnitBytes + blocks * parameters;
  return plan;
}

void hand_over_planes(BlockPool& pool, Backend& backend) {
  pool.drain(
      [&](std::span<const PlaneChange> changes) { backend.hold_planes(changes); },
      [&](BlockId from, BlockId to, PlaneBits planes) { backend.move_planes(from, to, planes); });
}

PlaneName name_of_plane(int bit) {
  const int of_group = bit % (kvquant::kSides * kvquant::kPlanes);
  return {.side = kvquant::name_of(static_cast<kvquant::Side>(of_group / kvquant::kPlanes)),
          .plane = kvquant::name_of(static_cast<kvquant::Plane>(of_group % kvquant::kPlanes)),
          .layers = bit == of_group ? "common" : "apart"};
}

Result<void> check_proven(const KvPolicy& policy, std::string_view checkpoint) {
  if (policy.all_bf16()) return {};
  std::vector<std::string_view> proven = {"bf16"};
  for (const Proven& p : kProven) {
    if (p.checkpoint == checkpoint) proven.push_back(p.policy);
  }
  if (std::ranges::find(proven, policy.name()) != proven.end()) return {};
  return fail(ErrorCode::refused,
              "kv: expected {}, what is proven for {}, found {}, which --kv-unproven accepts",
              fmt::join(proven, ", "), checkpoint, policy.name());
}

}  // namespace kipp
