#include "backend/tiered_planes.h"

#include <algorithm>
#include <bit>
#include <string>

#include "kvquant/codec.h"

namespace kipp {

using kvquant::Band;
using kvquant::BitWidth;
using kvquant::Plane;
using kvquant::Side;

namespace {

constexpr Side kSides[] = {Side::key, Side::value};
constexpr Plane kCodePlanes[] = {Plane::hi2, Plane::mid2, Plane::low4};
constexpr LayerGroup kGroups[] = {LayerGroup::common, LayerGroup::apart};

std::size_t index(BlockId block) { return static_cast<std::size_t>(block); }

std::string name_of(Side side, Plane plane) {
  return fmt::format("{} plane {}", kvquant::name_of(side), kvquant::name_of(plane));
}

int layers_of(const ModelConfig& config, const KvPolicy& policy, LayerGroup group) {
  int layers = 0;
  for (int layer = 0; layer < config.layers; ++layer) {
    if (policy.group_of(layer, config.layers) == group) ++layers;
  }
  return layers;
}

}  // namespace

int TieredPlanes::units_of_layer(const ModelConfig& config, const KvConfig& kv, LayerGroup group) {
  const int layers = layers_of(config, kv.policy, group);
  if (layers == 0) return 0;
  const auto most = static_cast<std::int64_t>(kv.blocks) * kvquant::kSides *
                    static_cast<std::int64_t>(kUnitsOfSide);
  return static_cast<int>(std::min<std::int64_t>(kv.units / layers, most));
}

std::size_t TieredPlanes::bytes_needed(const ModelConfig& config, const KvConfig& kv,
                                       Numbering numbering) {
  std::size_t tables = 0, units = 0;
  for (const LayerGroup group : kGroups) {
    const auto layers = static_cast<std::size_t>(layers_of(config, kv.policy, group));
    if (layers == 0) continue;
    tables += numbering == Numbering::cache ? layers : 1;
    units += static_cast<std::size_t>(units_of_layer(config, kv, group));
  }
  if (numbering == Numbering::cache) units = static_cast<std::size_t>(kv.units);
  const std::size_t of_block =
      tables * kvquant::kSides * kUnitsOfSide * sizeof(Unit) + sizeof(PlaneBits) + sizeof(int);
  return units * sizeof(Unit) + static_cast<std::size_t>(kv.blocks) * of_block;
}

Result<TieredPlanes> TieredPlanes::create(const ModelConfig& config, const KvConfig& kv,
                                          int max_step_tokens, Numbering numbering) {
  if (kv.units < 1) {
    return fail(ErrorCode::invalid, "kv.units: expected at least 1, found {}", kv.units);
  }
  KIPP_TRY(kv.policy.check_layers(config));

  TieredPlanes all;
  all.policy_ = kv.policy;
  all.parameter_bytes_ = kv.policy.parameter_bytes(config);
  const std::vector<int> units = kv.policy.units_by_plane(config);
  for (const LayerGroup group : kGroups) {
    all.tiers_[static_cast<std::size_t>(group)] = kv.policy.tiers(group);
    for (const Side side : kSides) {
      for (int p = 0; p < kvquant::kPlanes; ++p) {
        const auto plane = static_cast<Plane>(p);
        const PlaneBits bit = plane_bit(group, side, plane);
        const int n = units[static_cast<std::size_t>(std::countr_zero(bit))];
        if (n == 0) continue;
        all.planes_.push_back({side, plane, group, bit, n});
        all.all_planes_ |= bit;
        if (plane == Plane::bf16) all.bf16_planes_ |= bit;
      }
    }
  }
  for (int band = 0; band < kvquant::kBands; ++band) {
    all.planes_of_band_[band] = kv.policy.planes(static_cast<Band>(band)) & all.all_planes_;
  }

  std::size_t table_of_group[kLayerGroups] = {};
  if (numbering == Numbering::layer) {
    for (const LayerGroup group : kGroups) {
      const int n = units_of_layer(config, kv, group);
      if (n == 0) continue;
      table_of_group[static_cast<std::size_t>(group)] = all.tables_.size();
      all.tables_.push_back({group, all.arenas_.size()});
      all.arenas_.push_back({.freed = {}, .units = n});
    }
  } else {
    all.arenas_.push_back({.freed = {}, .units = kv.units});
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    const LayerGroup group = kv.policy.group_of(layer, config.layers);
    all.group_of_layer_.push_back(static_cast<std::uint8_t>(group));
    std::size_t table = table_of_group[static_cast<std::size_t>(group)];
    if (numbering == Numbering::cache) {
      table = all.tables_.size();
      all.tables_.push_back({group, 0});
    }
    all.table_of_layer_.push_back(static_cast<std::uint32_t>(table));
  }

  const auto blocks = static_cast<std::size_t>(kv.blocks);
  for (Arena& arena : all.arenas_) {
    KIPP_TRY_ASSIGN(freed,
                    HugeBuffer::create(static_cast<std::size_t>(arena.units) * sizeof(Unit)));
    arena.freed = std::move(freed);
  }
  KIPP_TRY_ASSIGN(table, HugeBuffer::create(all.tables_.size() * blocks * kvquant::kSides *
                                            kUnitsOfSide * sizeof(Unit)));
  all.units_ = std::move(table);
  all.held_.assign(blocks, 0);
  all.step_rows_of_.assign(blocks, kNoRows);
  all.completed_.reserve(static_cast<std::size_t>(max_step_tokens));
  return all;
}

// --- where things are

int TieredPlanes::free_units() const {
  if (arenas_.size() == 1 && tables_.size() > 1) return arenas_.front().free();
  int free = 0;
  for (const std::uint32_t table : table_of_layer_) free += arenas_[tables_[table].arena].free();
  return free;
}

bool TieredPlanes::has_codes(BlockId block, int layer, Side side) const {
  return std::ranges::any_of(kCodePlanes,
                             [&](Plane plane) { return has(block, layer, side, plane); });
}

std::span<TieredPlanes::Unit> TieredPlanes::units_of_table(std::size_t table, BlockId block,
                                                           Side side, Plane plane) const {
  const std::size_t of_side =
      (table * held_.size() + index(block)) * 2 + static_cast<std::size_t>(side);
  auto* const units = reinterpret_cast<Unit*>(units_.bytes().data());
  return {units + of_side * kUnitsOfSide + first_unit(plane),
          static_cast<std::size_t>(units_of(plane))};
}

std::span<const TieredPlanes::Unit> TieredPlanes::units(BlockId block, int layer, Side side,
                                                        Plane plane) const {
  return units_of_table(table_of_layer_[static_cast<std::size_t>(layer)], block, side, plane);
}

std::span<const TieredPlanes::Unit> TieredPlanes::units(BlockId block, int layer) const {
  const auto first = units(block, layer, Side::key, Plane::hi2);
  return {first.data(), kvquant::kSides * kUnitsOfSide};
}

std::size_t TieredPlanes::pairs(Side side) const {
  const kvquant::QuantScheme& scheme = policy_.scheme().side(side);
  if (scheme.bits == BitWidth::bf16) return 0;
  return kvquant::has_fitted_pair(scheme) ? 2 : 1;
}

std::size_t TieredPlanes::parameters_of(int layer, Side side) const {
  const std::size_t keys = pairs(Side::key);
  const std::size_t before = static_cast<std::size_t>(layer) * (keys + pairs(Side::value)) +
                             (side == Side::value ? keys : 0);
  return before * 2 * kPartBytes;
}

float TieredPlanes::largest_value(Side side) const {
  return kvquant::largest_value(policy_.scheme().side(side), kHeadDim);
}

Error TieredPlanes::refusal(const RefusedValue& v) const {
  return {ErrorCode::invalid,
          fmt::format("kv: {} in layer {}, head {}, position {} of block {}: expected a finite "
                      "number of magnitude at most {}, found {}",
                      kvquant::name_of(v.side), v.layer, v.head, v.position, v.block,
                      largest_value(v.side), v.found)};
}

// --- which planes there are

TieredPlanes::Unit TieredPlanes::Arena::take() {
  if (free_count == 0) return static_cast<Unit>(touched++);
  return reinterpret_cast<const Unit*>(freed.bytes().data())[--free_count];
}

void TieredPlanes::Arena::give_back(Unit unit) {
  reinterpret_cast<Unit*>(freed.bytes().data())[free_count++] = unit;
}

template <class Visit>
void TieredPlanes::for_each_table(LayerGroup group, const Visit& visit) const {
  for (std::size_t table = 0; table < tables_.size(); ++table) {
    if (tables_[table].group == group) visit(table);
  }
}

// What a plane of a block takes from the arena that its tables draw on.
int TieredPlanes::units_in_arena(const PlaneBit& plane) const {
  int tables = 0;
  for_each_table(plane.group, [&](std::size_t) { ++tables; });
  return tables * units_of(plane.plane);
}

void TieredPlanes::hold(std::span<const PlaneChange> changes) {
  for (const PlaneChange& change : changes) {
    PlaneBits& now = held_[index(change.block)];
    for (const PlaneBit& p : planes_) {
      if ((now & ~change.planes & p.bit) == 0) continue;
      for_each_table(p.group, [&](std::size_t table) {
        Arena& arena = arenas_[tables_[table].arena];
        for (const Unit unit : units_of_table(table, change.block, p.side, p.plane)) {
          arena.give_back(unit);
        }
      });
    }
    now &= change.planes;
    for (const PlaneBit& p : planes_) {
      if ((change.planes & ~now & p.bit) == 0) continue;
      bool room = true;
      for_each_table(p.group, [&](std::size_t table) {
        room = room && units_in_arena(p) <= arenas_[tables_[table].arena].free();
      });
      if (!room) continue;
      for_each_table(p.group, [&](std::size_t table) {
        Arena& arena = arenas_[tables_[table].arena];
        for (Unit& unit : units_of_table(table, change.block, p.side, p.plane)) unit = arena.take();
      });
      now |= p.bit;
    }
  }
}

PlaneBits TieredPlanes::move(BlockId from, BlockId to, PlaneBits planes) {
  const PlaneBits moved = planes & held(from) & ~held(to);
  for (const PlaneBit& p : planes_) {
    if ((moved & p.bit) == 0) continue;
    for_each_table(p.group, [&](std::size_t table) {
      std::ranges::copy(units_of_table(table, from, p.side, p.plane),
                        units_of_table(table, to, p.side, p.plane).begin());
    });
  }
  held_[index(from)] &= ~moved;
  held_[index(to)] |= moved;
  return moved;
}

// --- a step

Result<void> TieredPlanes::begin_step(const StepPlan& step) {
  for (const BlockId block : completed_) step_rows_of_[index(block)] = kNoRows;
  completed_.clear();
  int whole = 0;
  for (int row = 0; row < step.rows();) {
    const int item = step.item_of_row[static_cast<std::size_t>(row)];
    const int pos = step.positions[static_cast<std::size_t>(row)];
    const auto table = step.table(item);
    while (row < step.rows() && step.item_of_row[static_cast<std::size_t>(row)] == item) ++row;
    const int end = step.positions[static_cast<std::size_t>(row) - 1] + 1;
    const int first_query = pos / kBlockPositions;
    const int last_query = (end - 1) / kBlockPositions;
    for (int key = 0; key <= last_query; ++key) {
      KIPP_TRY(check_reads(step, item, key, std::max(first_query, key + 1), last_query));
      if (key < first_query) continue;
      const BlockId block = table[static_cast<std::size_t>(key)];
      const int begins = key * kBlockPositions;
      const int ends = begins + kBlockPositions;
      const bool holds_rows = (held(block) & bf16_planes_) == bf16_planes_;
      if (pos <= begins && end >= ends) {
        if (!holds_rows) step_rows_of_[index(block)] = whole++;
      } else if (!holds_rows) {
        KIPP_TRY(check_write(item, block, std::max(pos, begins), std::min(end, ends)));
      }
      if (end >= ends) completed_.push_back(block);
    }
  }
  return {};
}

// Every plane that queries of these blocks read of the item's block `key`.
Result<void> TieredPlanes::check_reads(const StepPlan& step, int item, int key, int first_query,
                                       int last_query) const {
  const BlockId block = step.table(item)[static_cast<std::size_t>(key)];
  for (int query = first_query; query <= last_query; ++query) {
    const Band band = tiers_[0].band(query * kBlockPositions, key * kBlockPositions);
    const PlaneBits needed = planes_of_band_[static_cast<std::size_t>(band)];
    const PlaneBits missing = needed & ~held(block);
    if (missing == 0) continue;
    const auto p = std::ranges::find_if(
        planes_, [&](const PlaneBit& plane) { return (plane.bit & missing) != 0; });
    return fail(ErrorCode::invalid,
                "items[{}].blocks[{}]: expected block {} to hold its {}, which positions from {} "
                "on read, found it without",
                item, key, block, name_of(p->side, p->plane), query * kBlockPositions);
  }
  return {};
}

Result<void> TieredPlanes::check_write(int item, BlockId block, int begin, int end) const {
  for (const PlaneBit& p : planes_) {
    if (p.plane != Plane::bf16 || (held(block) & p.bit) != 0) continue;
    return fail(ErrorCode::invalid,
                "items[{}]: expected block {} to hold its {}, of which positions {} to {} are "
                "written, found it without",
                item, block, name_of(p.side, p.plane), begin, end - 1);
  }
  return {};
}

// --- a block as bytes

std::size_t TieredPlanes::block_bytes(PlaneBits planes) const {
  std::size_t units = 0;
  for (const PlaneBit& p : planes_) {
    if ((planes & p.bit) != 0) units += static_cast<std::size_t>(p.units);
  }
  return units * kKvUnitBytes + parameter_bytes_;
}

Result<void> TieredPlanes::check(BlockId block, std::size_t bytes) const {
  if (block < 0 || block >= blocks()) {
    return fail(ErrorCode::invalid, "block: expected one from 0 to {}, found {}", blocks() - 1,
                block);
  }
  if (bytes != block_bytes(held(block))) {
    return fail(ErrorCode::invalid,
                "block {}: expected {} bytes, those of its plane set 0x{:04x}, found {}", block,
                block_bytes(held(block)), held(block), bytes);
  }
  return {};
}

}  // namespace kipp
