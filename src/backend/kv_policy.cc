#include "backend/kv_policy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

namespace kipp {
namespace {

using kvquant::Band;
using kvquant::BitWidth;
using kvquant::Plane;
using kvquant::Side;
using kvquant::Tier;
using kvquant::TieredKvPolicy;

struct Preset {
  std::string_view name;
  std::string_view words;
};

constexpr std::array<Preset, 4> kPresets = {{
    {.name = "bf16", .words = "sink=0:bf16,recent=0:bf16,mid=0:bf16,far=bf16"},
    {.name = "int8", .words = "sink=0:int8,recent=0:int8,mid=0:int8,far=int8"},
    {.name = "tiered", .words = "sink=1:int8,recent=8:int8,mid=8:int8/int4,far=int4"},
    {.name = "tiered-max", .words = "sink=1:int8,recent=8:int8,mid=24:int4,far=int4/int2"},
}};

constexpr std::array<std::string_view, kPresets.size()> kPresetNames = {"bf16", "int8", "tiered",
                                                                        "tiered-max"};
constexpr int kMostBandBlocks = 1 << 20;  // bands are added up
constexpr Tier kBf16 = {BitWidth::bf16, BitWidth::bf16};

std::pair<std::string_view, std::string_view> cut(std::string_view text, char at) {
  const auto place = text.find(at);
  if (place == std::string_view::npos) return {text, {}};
  return {text.substr(0, place), text.substr(place + 1)};
}

std::optional<int> parse_int(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return {};
  return value;
}

Result<BitWidth> parse_width(std::string_view band, std::string_view text) {
  for (const BitWidth width : {BitWidth::bf16, BitWidth::int8, BitWidth::int4, BitWidth::int2}) {
    if (text == kvquant::name_of(width)) return width;
  }
  return fail(ErrorCode::invalid, "kv: {}: expected bf16, int8, int4 or int2, found \"{}\"", band,
              text);
}

Result<Tier> parse_tier(std::string_view band, std::string_view text) {
  const auto [keys, values] = cut(text, '/');
  KIPP_TRY_ASSIGN(key, parse_width(band, keys));
  if (text.find('/') == std::string_view::npos) return Tier{key, key};
  KIPP_TRY_ASSIGN(value, parse_width(band, values));
  return Tier{key, value};
}

struct Banded {
  int blocks;
  Tier tier;
};

Result<Banded> parse_banded(std::string_view band, std::string_view text) {
  const auto [count, width] = cut(text, ':');
  const auto blocks = parse_int(count);
  if (!blocks || *blocks < 0) {
    return fail(ErrorCode::invalid, "kv: {}: expected blocks:width, as in {}=8:int8, found \"{}\"",
                band, band, text);
  }
  if (*blocks > kMostBandBlocks) {
    return fail(ErrorCode::invalid, "kv: {}: expected at most {} blocks, found {}", band,
                kMostBandBlocks, *blocks);
  }
  KIPP_TRY_ASSIGN(tier, parse_tier(band, width));
  return Banded{*blocks, tier};
}

Result<std::vector<int>> parse_layers(std::string_view field, std::string_view text) {
  std::vector<int> layers;
  for (std::string_view rest = text; !rest.empty();) {
    const auto [layer, more] = cut(rest, '+');
    const auto number = parse_int(layer);
    if (!number) {
      return fail(ErrorCode::invalid, "kv: {}: expected layers, as in {}=0+1+-1, found \"{}\"",
                  field, field, text);
    }
    layers.push_back(*number);
    rest = more;
  }
  return layers;
}

// The widest reading of both, side by side.
Tier wider(Tier a, Tier b) { return {std::max(a.key, b.key), std::max(a.value, b.value)}; }

TieredKvPolicy one_tier_up(const TieredKvPolicy& tiers) {
  TieredKvPolicy up = tiers;
  up.far = wider(tiers.far, tiers.mid);
  up.mid = wider(tiers.mid, tiers.recent);
  return up;
}

BitWidth narrowest(const TieredKvPolicy (&tiers)[kLayerGroups], Side side) {
  BitWidth least = BitWidth::bf16;
  for (const TieredKvPolicy& t : tiers) {
    for (const Tier tier : {t.sink, t.recent, t.mid, t.far})
      least = std::min(least, tier.side(side));
  }
  return least;
}

// Codes of the sides that are ever read as such.
kvquant::QuantScheme codes(BitWidth read_at, bool rotate) {
  kvquant::QuantScheme scheme;
  if (read_at == BitWidth::bf16) {
    scheme.bits = BitWidth::bf16;
    return scheme;
  }
  scheme.bits = BitWidth::int8;
  scheme.group_size = kHeadDim;
  scheme.hadamard = rotate;
  // What int8 codes are read at must not be above their narrowest width.
  scheme.narrowest = read_at;
  return scheme;
}

}  // namespace

KvPolicy::KvPolicy() {
  for (TieredKvPolicy& tiers : tiers_) {
    tiers = {.sink_blocks = 0,
             .recent_blocks = 0,
             .mid_blocks = 0,
             .sink = kBf16,
             .recent = kBf16,
             .mid = kBf16,
             .far = kBf16};
  }
  scheme_ = {.key = codes(BitWidth::bf16, true), .value = codes(BitWidth::bf16, true)};
}

std::span<const std::string_view> KvPolicy::preset_names() { return kPresetNames; }

Result<KvPolicy> KvPolicy::parse(std::string_view text) {
  KvPolicy policy;
  policy.name_ = text;
  std::string_view words = text;
  for (const Preset& preset : kPresets) {
    if (text == preset.name) words = preset.words;
  }
  if (words.find('=') == std::string_view::npos) {
    return fail(ErrorCode::invalid, "kv: expected {}, or a policy as in {}; found \"{}\"",
                fmt::join(kPresetNames, ", "), kPresets[2].words, text);
  }
  TieredKvPolicy& common = policy.tiers_[0];
  bool rotate = true, up = false, has_mid = false;
  std::optional<std::string_view> listed;
  for (std::string_view rest = words; !rest.empty();) {
    const auto [word, more] = cut(rest, ',');
    rest = more;
    const auto [field, value] = cut(word, '=');
    if (field == "sink" || field == "recent" || field == "mid") {
      KIPP_TRY_ASSIGN(band, parse_banded(field, value));
      has_mid |= field == "mid";
      (field == "sink" ? common.sink : field == "recent" ? common.recent : common.mid) = band.tier;
      (field == "sink"     ? common.sink_blocks
       : field == "recent" ? common.recent_blocks
                           : common.mid_blocks) = band.blocks;
    } else if (field == "far") {
      KIPP_TRY_ASSIGN(tier, parse_tier(field, value));
      common.far = tier;
    } else if (field == "up" || field == "exempt") {
      if (listed) return fail(ErrorCode::invalid, "kv: expected up or exempt once, found another");
      listed = field;
      up = field == "up";
      KIPP_TRY_ASSIGN(layers, parse_layers(field, value));
      policy.apart_ = std::move(layers);
    } else if (field == "rotate") {
      if (value != "on" && value != "off") {
        return fail(ErrorCode::invalid, "kv: rotate: expected on or off, found \"{}\"", value);
      }
      rotate = value == "on";
    } else {
      return fail(ErrorCode::invalid,
                  "kv: expected sink, recent, mid, far, up, exempt or rotate, found \"{}\"", field);
    }
  }
  if (!has_mid) common.mid = common.recent;  // of no blocks; one tier up from far is recent
  TieredKvPolicy& apart = policy.tiers_[1];
  apart = up ? one_tier_up(common) : common;
  if (listed && !up) apart.sink = apart.recent = apart.mid = apart.far = kBf16;
  policy.scheme_ = {.key = codes(narrowest(policy.tiers_, Side::key), rotate),
                    .value = codes(narrowest(policy.tiers_, Side::value), rotate)};
  for (const TieredKvPolicy& tiers : policy.tiers_) {
    if (const auto status = validate(tiers, policy.scheme_); !status.ok()) {
      return fail(ErrorCode::invalid, "kv: {}", status.message());
    }
  }
  return policy;
}

bool KvPolicy::all_bf16() const {
  return scheme_.key.bits == BitWidth::bf16 && scheme_.value.bits == BitWidth::bf16;
}

Result<void> KvPolicy::check_layers(const ModelConfig& config) const {
  for (const int layer : apart_) {
    if (layer < -config.layers || layer >= config.layers) {
      return fail(ErrorCode::invalid, "kv: expected layers from {} to {}, found {}", -config.layers,
                  config.layers - 1, layer);
    }
  }
  return {};
}

LayerGroup KvPolicy::group_of(int layer, int layers) const {
  const bool apart = std::ranges::find(apart_, layer) != apart_.end() ||
                     std::ranges::find(apart_, layer - layers) != apart_.end();
  return apart ? LayerGroup::apart : LayerGroup::common;
}

PlaneBits KvPolicy::planes(Band band) const {
  unsigned bits = 0;
  for (const LayerGroup group : {LayerGroup::common, LayerGroup::apart}) {
    for (const Side side : {Side::key, Side::value}) {
      const auto planes = kvquant::planes_for(tiers(group).of(band).side(side));
      for (int p = 0; p < kvquant::kPlanes; ++p) {
        const auto plane = static_cast<Plane>(p);
        if (planes.has(plane)) bits |= plane_bit(group, side, plane);
      }
    }
  }
  return static_cast<PlaneBits>(bits);
}

PlaneBits KvPolicy::planes_needed(int query, int key) const {
  return planes(tiers_[0].band(query * kBlockPositions, key * kBlockPositions));
}

std::vector<int> KvPolicy::units_by_plane(const ModelConfig& config) const {
  std::vector<int> units(kMaxPlanes, 0);
  for (int layer = 0; layer < config.layers; ++layer) {
    const int group = static_cast<int>(group_of(layer, config.layers));
    for (int i = 0; i < kvquant::kSides * kvquant::kPlanes; ++i) {
      units[static_cast<std::size_t>(group * kvquant::kSides * kvquant::kPlanes + i)] +=
          units_of(static_cast<Plane>(i % kvquant::kPlanes));
    }
  }
  return units;
}

int KvPolicy::units(PlaneBits planes, const ModelConfig& config) const {
  const auto by_plane = units_by_plane(config);
  int sum = 0;
  for (int i = 0; i < kMaxPlanes; ++i) {
    if ((planes >> i & 1) != 0) sum += by_plane[static_cast<std::size_t>(i)];
  }
  return sum;
}

std::size_t KvPolicy::parameter_bytes(const ModelConfig& config) const {
  constexpr std::size_t kPair = std::size_t{2} * sizeof(std::uint16_t) * kKvHeads * kBlockPositions;
  std::size_t pairs = 0;
  for (const Side side : {Side::key, Side::value}) {
    const auto& codes = scheme_.side(side);
    if (codes.bits == BitWidth::bf16) continue;
    pairs += codes.narrowest == BitWidth::int2 ? 2 : 1;
  }
  return pairs * kPair * static_cast<std::size_t>(config.layers);
}

}  // namespace kipp
