#include "backend/webgpu/tiered_device_kv.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "backend/webgpu/gpu_error.h"
#include "backend/webgpu/shaders.h"
#include "backend/webgpu/subgroups.h"
#include "base/float16.h"
#include "kvquant/codec.h"
#include "kvquant/wgpu_codec.h"

namespace kipp::webgpu {

using kvquant::BitWidth;
using kvquant::Plane;
using kvquant::Side;

namespace {

using gpu::Access;
using Numbering = TieredPlanes::Numbering;

constexpr Access kRead = Access::read;
constexpr Access kWrite = Access::read_write;
constexpr int kVectors = 2;
constexpr std::size_t kBlockUnits = kvquant::kSides * TieredPlanes::kUnitsOfSide;
constexpr std::uint32_t kInStep = 0x80000000u;  // wgsl/tiered.wgsl
constexpr std::size_t kTurnedBytes = (kHeadDim + 4) * sizeof(float);
constexpr std::size_t kStepBlockBytes =
    std::size_t{kvquant::kSides} * kKvHeads * kBlockPositions * kHeadDim * sizeof(std::uint16_t);
// Of wgsl/encode_planes.wgsl: a head of keys or values of a completed block.
constexpr std::size_t kNoteWords = 4;
constexpr std::size_t kNotesOfBlock = kvquant::kSides * kKvHeads;
constexpr LayerGroup kGroups[] = {LayerGroup::common, LayerGroup::apart};

constexpr std::uint32_t kNarrowStride = 8 * 33;  // of a head's weights

// Of attend_narrow_tiered: query heads of a workgroup, as PagedDeviceKv's but at most five, whose
// sums of values fit into registers; and blocks whose sums lie in workgroup memory at once.
struct NarrowShape {
  std::uint32_t heads, slots;

  std::uint32_t workgroup_bytes() const {
    const std::uint32_t pool =
        std::max({4 * (heads * 128 + 8), 2 * heads * kNarrowStride, slots * 4 * 136});
    return 4 *
           (8 * 8 + 3 * 8 + heads * kNarrowStride + pool + heads * 8 * 128 + 5 * 8 * heads + 512);
  }
};

NarrowShape narrow_shape(std::uint32_t group, std::uint32_t bytes) {
  constexpr std::uint32_t kMostHeads = 5;
  for (std::uint32_t heads = std::min(group, kMostHeads); heads > 0; --heads) {
    for (const std::uint32_t slots : {8u, 4u}) {
      const NarrowShape shape = {heads, slots};
      if (group % heads == 0 && shape.workgroup_bytes() <= bytes) return shape;
    }
  }
  return {1, 2};
}

// Queries of a tile of attend_wide_tiered: 32 in 16 KiB, 64 in 23.5.
std::uint32_t wide_queries(std::uint32_t threads, std::uint32_t bytes) {
  constexpr std::uint32_t kQueries = 64;
  constexpr std::uint32_t kBytes =
      512 * 16 + 32 * (kQueries / 4 + 1) * 16 + 4 * kQueries * 16 + kQueries * (8 + 16) + 32 * 16;
  return kBytes <= bytes && 4 * kQueries <= threads ? kQueries : 32;
}

std::size_t turned_bytes(const ModelConfig& config, int max_step_tokens) {
  constexpr std::size_t kAlignment = 256;  // the most that a binding's offset needs
  const std::size_t bytes = static_cast<std::size_t>(max_step_tokens) *
                            static_cast<std::size_t>(config.query_heads) * kTurnedBytes;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t work_bytes(const ModelConfig& config, int max_step_tokens) {
  // At least one block, since a buffer of nothing cannot be bound.
  return turned_bytes(config, max_step_tokens) +
         std::max<std::size_t>(1, TieredPlanes::whole_blocks(max_step_tokens)) * kStepBlockBytes;
}

std::size_t refused_bytes(int max_step_tokens) {
  return (kNoteWords + static_cast<std::size_t>(max_step_tokens) * kNotesOfBlock * kNoteWords) *
         sizeof(std::uint32_t);
}

std::size_t tables_bytes(const KvConfig& kv) {
  return kLayerGroups * static_cast<std::size_t>(kv.blocks) * kBlockUnits * sizeof(std::uint32_t);
}

std::size_t layer_bytes(const ModelConfig& config, const KvConfig& kv, LayerGroup group) {
  const auto units = static_cast<std::size_t>(TieredPlanes::units_of_layer(config, kv, group));
  return units * kKvUnitBytes + static_cast<std::size_t>(kv.blocks) *
                                    kv.policy.parameter_bytes(config) /
                                    static_cast<std::size_t>(config.layers);
}

std::span<const std::byte> bytes_of(std::span<const std::uint32_t> words) {
  return std::as_bytes(words);
}

}  // namespace

std::size_t TieredDeviceKv::bytes_needed(const ModelConfig& config, const KvConfig& kv,
                                         const Limits& limits) {
  std::size_t layers = 0;
  for (int layer = 0; layer < config.layers; ++layer) {
    layers += layer_bytes(config, kv, kv.policy.group_of(layer, config.layers));
  }
  const std::size_t block = static_cast<std::size_t>(config.layers) * kBlockUnits * kKvUnitBytes +
                            kv.policy.parameter_bytes(config);
  return layers + block + tables_bytes(kv) + work_bytes(config, limits.max_step_tokens) +
         refused_bytes(limits.max_step_tokens) + common_bytes(config, kv, limits, kVectors);
}

Result<std::unique_ptr<DeviceKv>> TieredDeviceKv::create(gpu::Device& device,
                                                         const ModelConfig& config,
                                                         const KvConfig& kv, const Limits& limits,
                                                         const Activations& activations,
                                                         std::span<const LayerNorms> norms) {
  KIPP_TRY_ASSIGN(planes,
                  TieredPlanes::create(config, kv, limits.max_step_tokens, Numbering::layer));
  const std::uint32_t bytes = workgroup_bytes(device, limits);
  const NarrowShape narrow =
      narrow_shape(static_cast<std::uint32_t>(config.queries_per_kv_head()), bytes);
  const Shape shape = {
      .vectors = kVectors,
      .tiles_end_at_blocks = true,
      .narrow_heads = narrow.heads,
      .narrow_batch = narrow.slots * static_cast<std::uint32_t>(kBlockPositions),
      .wide_queries = wide_queries(device.adapter().limits.max_workgroup_threads, bytes)};
  std::unique_ptr<TieredDeviceKv> cache(
      new TieredDeviceKv(device, config, kv, limits, shape, std::move(planes)));
  cache->work_rows_at_ = turned_bytes(config, limits.max_step_tokens);
  KIPP_TRY(cache->create_common());
  KIPP_TRY(cache->create_kernels());
  const auto allocate = [&](gpu::Buffer& buffer, std::size_t size,
                            const char* what) -> Result<void> {
    KIPP_TRY_ASSIGN(memory, cache->make_buffer(size, what));
    buffer = std::move(memory);
    return {};
  };
  KIPP_TRY(allocate(cache->tables_, tables_bytes(kv), "tables of planes"));
  KIPP_TRY(allocate(cache->work_, work_bytes(config, limits.max_step_tokens),
                    "queries and rows of a step"));
  KIPP_TRY(allocate(cache->refused_, refused_bytes(limits.max_step_tokens), "refused rows"));
  KIPP_TRY(allocate(cache->bounce_, cache->block_bytes(), "a block on its way"));
  KIPP_TRY(cache->create_layers(activations, norms));
  return cache;
}

TieredDeviceKv::TieredDeviceKv(gpu::Device& device, const ModelConfig& config, const KvConfig& kv,
                               const Limits& limits, const Shape& shape, TieredPlanes planes)
    : DeviceKv(device, config, kv, limits, shape), planes_(std::move(planes)) {}

// Struct Place of wgsl/tiered.wgsl.
std::array<std::uint32_t, TieredDeviceKv::kPlaceWords> TieredDeviceKv::place_of(int layer) const {
  const LayerGroup group = planes_.group(layer);
  const kvquant::TieredKvPolicy& tiers = planes_.policy().tiers(group);
  const kvquant::KvScheme& scheme = planes_.policy().scheme();
  const auto word = [](auto value) { return static_cast<std::uint32_t>(value); };
  const auto limit = [&](Side side) {
    return std::bit_cast<std::uint32_t>(planes_.largest_value(side)) >> 16;
  };
  const auto units = static_cast<std::size_t>(TieredPlanes::units_of_layer(config_, kv_, group));
  constexpr std::size_t kWord = sizeof(std::uint32_t);
  return {word(layer),
          word(table_at(group, 0) / kWord),
          word(units * kKvUnitBytes / kWord),
          word(work_rows_at_ / kWord),
          word(tiers.sink_blocks),
          word(tiers.recent_blocks),
          word(tiers.recent_blocks + tiers.mid_width()),
          0,
          word(tiers.sink.key),
          word(tiers.recent.key),
          word(tiers.mid.key),
          word(tiers.far.key),
          word(tiers.sink.value),
          word(tiers.recent.value),
          word(tiers.mid.value),
          word(tiers.far.value),
          word(planes_.pairs(Side::key)),
          word(planes_.pairs(Side::value)),
          limit(Side::key),
          limit(Side::value),
          word(scheme.key.hadamard || scheme.value.hadamard),
          1 + word(group)};
}

Result<void> TieredDeviceKv::create_kernels() {
  const std::string_view tiered = shader("tiered"), codes = shader("attend_codes");
  constexpr Access kPlace = Access::uniform;
  KIPP_TRY_ASSIGN(shuffles, neighbours_shuffle(device()));
  const std::string lanes(shader(shuffles ? "lanes_subgroups" : "lanes_plain"));
  const auto with_place = [](int binding) { return fmt::format("const PLACE = {};\n", binding); };
  KIPP_TRY_ASSIGN(append,
                  make_kernel({"kv_append_tiered", {tiered, shader("head_row")}}, with_place(8),
                              {kRead, kRead, kRead, kRead, kWrite, kWrite, kRead, kWrite, kPlace}));
  KIPP_TRY_ASSIGN(
      encode,
      make_kernel({"encode_planes", {tiered, kvquant::wgpu_codec(), kvquant::wgpu_codec_tile()}},
                  with_place(5), {kRead, kWrite, kRead, kRead, kWrite, kPlace}));
  KIPP_TRY_ASSIGN(narrow,
                  make_kernel({"attend_narrow_tiered", {tiered, codes}},
                              with_place(8) + narrow_constants() + lanes,
                              {kRead, kRead, kRead, kRead, kRead, kRead, kWrite, kWrite, kPlace}));
  KIPP_TRY_ASSIGN(wide,
                  make_kernel({"attend_wide_tiered", {tiered}}, with_place(8) + wide_constants(),
                              {kRead, kRead, kRead, kRead, kRead, kRead, kWrite, kWrite, kPlace}));
  KIPP_TRY_ASSIGN(merge, make_kernel({"attend_merge", {tiered, codes}}, with_place(3),
                                     {kRead, kRead, kWrite, kPlace}));
  append_ = std::move(append);
  encode_ = std::move(encode);
  narrow_ = std::move(narrow);
  wide_ = std::move(wide);
  merge_ = std::move(merge);
  return {};
}

Result<void> TieredDeviceKv::create_layers(const Activations& activations,
                                           std::span<const LayerNorms> norms) {
  const gpu::Binding step = {&step_}, qkv = {&activations.qkv}, ctx = {&activations.ctx},
                     states = {&states_}, tables = {&tables_}, work = {&work_},
                     refused = {&refused_};
  const gpu::Binding turned = {&work_, 0, work_rows_at_};
  const gpu::Binding step_rows = {&work_, work_rows_at_};
  for (int index = 0; index < config_.layers; ++index) {
    const LayerNorms& of_layer = norms[static_cast<std::size_t>(index)];
    Layer layer;
    KIPP_TRY_ASSIGN(memory, make_buffer(layer_bytes(config_, kv_, planes_.group(index)),
                                        fmt::format("planes of {} blocks in a layer", kv_.blocks)));
    KIPP_TRY_ASSIGN(
        place, engine_result(device().create_uniform(sizeof(place_of(index)), "a layer's place")));
    layer.cache = std::move(memory);
    layer.place = std::move(place);
    device().write(layer.place, 0, bytes_of(place_of(index)));
    const gpu::Binding cache = {&layer.cache}, of_place = {&layer.place};
    KIPP_TRY_ASSIGN(
        append,
        bind(append_,
             {step, {&rope_}, of_layer.query, of_layer.key, qkv, cache, tables, work, of_place}));
    KIPP_TRY_ASSIGN(encode, bind(encode_, {step, cache, tables, step_rows, refused, of_place}));
    KIPP_TRY_ASSIGN(
        narrow, bind(narrow_, {step, qkv, cache, cache, tables, turned, states, ctx, of_place}));
    KIPP_TRY_ASSIGN(
        wide, bind(wide_, {step, qkv, cache, tables, step_rows, turned, states, ctx, of_place}));
    layer.append = std::move(append);
    layer.encode = std::move(encode);
    layer.narrow = std::move(narrow);
    layer.wide = std::move(wide);
    layers_.push_back(std::move(layer));
  }
  KIPP_TRY_ASSIGN(merge, bind(merge_, {step, states, ctx, {&layers_.front().place}}));
  merge_arguments_ = std::move(merge);
  return {};
}

// --- a step

Result<void> TieredDeviceKv::begin_step(const StepPlan& step) {
  KIPP_TRY(planes_.begin_step(step));
  completed_.clear();
  for (const BlockId block : planes_.completed()) {
    AttentionPlan::Completed entry = {.block = block};
    constexpr int kBits = kvquant::kSides * kvquant::kPlanes;
    for (int group = 0; group < kLayerGroups; ++group) {
      entry.planes[group] = (static_cast<std::uint32_t>(planes_.held(block)) >> (group * kBits)) &
                            ((1u << kBits) - 1);
    }
    completed_.push_back(entry);
    if (planes_.rows_place(block) != TieredPlanes::kNoRows) write_table(block);
  }
  begin_tables(step, completed_);
  return {};
}

void TieredDeviceKv::append(gpu::Recorder& recorder, int layer) const {
  const Layer& l = layers_[static_cast<std::size_t>(layer)];
  recorder.dispatch(append_, l.append, rows(), append_heads());
  recorder.dispatch(encode_, l.encode, static_cast<std::uint32_t>(completed_.size()),
                    kNotesOfBlock);
}

void TieredDeviceKv::attend(gpu::Recorder& recorder, int layer) const {
  const Layer& l = layers_[static_cast<std::size_t>(layer)];
  dispatch(
      recorder,
      {.narrow = narrow_, .wide = wide_, .narrow_arguments = l.narrow, .wide_arguments = l.wide});
}

Result<void> TieredDeviceKv::finish_step() {
  if (completed_.empty()) return {};
  std::uint32_t any = 0;
  KIPP_TRY(engine_result(
      device().read(refused_, 0, std::as_writable_bytes(std::span<std::uint32_t>(&any, 1)))));
  if (any == 0) return {};
  std::vector<std::uint32_t> words(kNoteWords + completed_.size() * kNotesOfBlock * kNoteWords);
  const auto bytes = std::as_writable_bytes(std::span(words));
  KIPP_TRY(engine_result(device().read(refused_, 0, bytes)));
  // The one that the host's stores meet first: by layer, block, head and side.
  std::array<std::size_t, 4> first = {};
  RefusedValue value;
  for (std::size_t i = 0; i < completed_.size() * kNotesOfBlock; ++i) {
    const auto* note = words.data() + kNoteWords + i * kNoteWords;
    if (note[0] == 0) continue;
    const std::size_t row = i % kNotesOfBlock;
    const std::array<std::size_t, 4> order = {note[0], i / kNotesOfBlock, row % kKvHeads,
                                              row / kKvHeads};
    if (first[0] != 0 && order > first) continue;
    first = order;
    value = {.side = row < kKvHeads ? Side::key : Side::value,
             .layer = static_cast<int>(note[0]) - 1,
             .head = static_cast<int>(row % kKvHeads),
             .position = static_cast<int>(note[1]) / kHeadDim,
             .block = completed_[i / kNotesOfBlock].block,
             .found = bf16_to_f32(static_cast<std::uint16_t>(note[2]))};
  }
  std::ranges::fill(words, 0);
  device().write(refused_, 0, bytes);
  return tl::unexpected(planes_.refusal(value));
}

// --- planes and their bytes

std::size_t TieredDeviceKv::table_at(LayerGroup group, BlockId block) const {
  const std::size_t blocks_before =
      static_cast<std::size_t>(group) * static_cast<std::size_t>(kv_.blocks) +
      static_cast<std::size_t>(block);
  return blocks_before * kBlockUnits * sizeof(std::uint32_t);
}

// A block's units, in a step that writes it whole with those of its rows there.
void TieredDeviceKv::write_table(BlockId block) {
  const int place = planes_.rows_place(block);
  for (const LayerGroup group : kGroups) {
    int layer = 0;
    while (layer < config_.layers && planes_.group(layer) != group) ++layer;
    if (layer == config_.layers) continue;
    std::array<std::uint32_t, kBlockUnits> units = {};
    std::ranges::copy(planes_.units(block, layer), units.begin());
    for (const Side side : {Side::key, Side::value}) {
      if (place == TieredPlanes::kNoRows || planes_.has(block, layer, side, Plane::bf16)) continue;
      const auto s = static_cast<std::size_t>(side);
      for (std::size_t head = 0; head < kKvHeads; ++head) {
        const std::size_t unit =
            (static_cast<std::size_t>(place) * kvquant::kSides + s) * kKvHeads + head;
        units[s * TieredPlanes::kUnitsOfSide + TieredPlanes::first_unit(Plane::bf16) + head] =
            kInStep | static_cast<std::uint32_t>(unit);
      }
    }
    device().write(tables_, table_at(group, block), bytes_of(units));
  }
}

std::size_t TieredDeviceKv::parameter_bytes_of_layer() const {
  return planes_.parameter_bytes() / static_cast<std::size_t>(config_.layers);
}

TieredDeviceKv::Piece TieredDeviceKv::parameters(BlockId block, int layer, Side side) const {
  const auto units =
      static_cast<std::size_t>(TieredPlanes::units_of_layer(config_, kv_, planes_.group(layer)));
  return {.layer = static_cast<std::size_t>(layer),
          .at = units * kKvUnitBytes +
                static_cast<std::size_t>(block) * parameter_bytes_of_layer() +
                planes_.parameters_of(0, side),
          .bytes = planes_.pairs(side) * 2 * TieredPlanes::kPartBytes};
}

std::vector<TieredDeviceKv::Piece> TieredDeviceKv::units(BlockId block, PlaneBits planes) const {
  std::vector<Piece> pieces;
  planes_.for_each_part(planes, [&](Side side, Plane plane, int layer) {
    for (const TieredPlanes::Unit unit : planes_.units(block, layer, side, plane)) {
      pieces.push_back({.layer = static_cast<std::size_t>(layer),
                        .at = std::size_t{unit} * kKvUnitBytes,
                        .bytes = kKvUnitBytes});
    }
  });
  return pieces;
}

Result<void> TieredDeviceKv::copy_pieces(std::span<const Piece> to, std::span<const Piece> from) {
  gpu::Recorder recorder = device().record();
  std::size_t at = 0;
  for (const Piece& piece : from) {
    recorder.copy(bounce_, at, layers_[piece.layer].cache, piece.at, piece.bytes);
    at += piece.bytes;
  }
  at = 0;
  for (const Piece& piece : to) {
    recorder.copy(layers_[piece.layer].cache, piece.at, bounce_, at, piece.bytes);
    at += piece.bytes;
  }
  return engine_result(device().submit(std::move(recorder)));
}

void TieredDeviceKv::hold_planes(std::span<const PlaneChange> changes) {
  planes_.hold(changes);
  for (const PlaneChange& change : changes) write_table(change.block);
}

Result<void> TieredDeviceKv::move_planes(BlockId from, BlockId to, PlaneBits planes) {
  const PlaneBits moved = planes_.move(from, to, planes);
  write_table(to);
  std::vector<Piece> before, after;
  planes_.for_each_part(moved, [&](Side side, Plane plane, int layer) {
    if (plane == Plane::bf16) return;
    after.push_back(parameters(to, layer, side));
    if (std::ranges::any_of(std::span(after).first(after.size() - 1), [&](const Piece& piece) {
          return piece.layer == after.back().layer && piece.at == after.back().at;
        })) {
      after.pop_back();
      return;
    }
    before.push_back(parameters(from, layer, side));
  });
  return copy_pieces(after, before);
}

Result<void> TieredDeviceKv::copy_blocks(std::span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) {
    const PlaneBits both = planes_.held(copy.from) & planes_.held(copy.to);
    std::vector<Piece> from = units(copy.from, both), to = units(copy.to, both);
    for (int layer = 0; layer < config_.layers; ++layer) {
      for (const Side side : {Side::key, Side::value}) {
        if (planes_.pairs(side) == 0) continue;
        from.push_back(parameters(copy.from, layer, side));
        to.push_back(parameters(copy.to, layer, side));
      }
    }
    KIPP_TRY(copy_pieces(to, from));
  }
  return {};
}

Result<void> TieredDeviceKv::read_block(BlockId block, std::span<std::byte> out) {
  KIPP_TRY(planes_.check(block, out.size()));
  gpu::Recorder recorder = device().record();
  std::size_t at = 0;
  const auto append = [&](const Piece& piece) {
    recorder.copy(bounce_, at, layers_[piece.layer].cache, piece.at, piece.bytes);
    at += piece.bytes;
  };
  for (const Piece& piece : units(block, planes_.held(block))) append(piece);
  for (int layer = 0; layer < config_.layers; ++layer) {
    for (const Side side : {Side::key, Side::value}) {
      const Piece piece = parameters(block, layer, side);
      if (piece.bytes == 0) continue;
      if (planes_.has_codes(block, layer, side)) {
        append(piece);
      } else {
        recorder.clear(bounce_, at, piece.bytes);
        at += piece.bytes;
      }
    }
  }
  return engine_result(device().submit_and_read(std::move(recorder), bounce_, 0, out));
}

Result<void> TieredDeviceKv::write_block(BlockId block, std::span<const std::byte> in) {
  KIPP_TRY(planes_.check(block, in.size()));
  const auto take = [&](const Piece& piece) {
    device().write(layers_[piece.layer].cache, piece.at, in.first(piece.bytes));
    in = in.subspan(piece.bytes);
  };
  for (const Piece& piece : units(block, planes_.held(block))) take(piece);
  for (int layer = 0; layer < config_.layers; ++layer) {
    for (const Side side : {Side::key, Side::value}) take(parameters(block, layer, side));
  }
  return {};
}

}  // namespace kipp::webgpu
