#include "kvquant/wgpu_backend.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kvquant/codec.h"
#include "kvquant/wgpu_codec.h"
#include "kvquant/wgpu_shader.h"

namespace kvquant {
namespace {

constexpr Side kBothSides[] = {Side::key, Side::value};
constexpr Plane kCodePlanes[] = {Plane::hi2, Plane::mid2, Plane::low4};
constexpr Plane kEveryPlane[] = {Plane::bf16, Plane::hi2, Plane::mid2, Plane::low4};

constexpr std::uint32_t kTile = 4096;           // elements, of codec_tile.wgsl
constexpr std::uint32_t kThreads = 256;         // of a workgroup
constexpr std::uint32_t kThreadsOfGroups = 64;  // of one of fit_groups

enum class Groups : std::uint32_t { within_head, across_heads, per_channel };

// Of wgsl/backend.wgsl, word for word.
struct Job {
  std::uint32_t heads, width, position, count;
  std::uint32_t bits, symmetric, fitted, clip_percent;
  std::uint32_t rotated, group_size, groups;
  Groups grouping;
  std::uint32_t read_bits, bf16, hi2, mid2;
  std::uint32_t low4, range_scales, range_offsets, fitted_scales;
  std::uint32_t fitted_offsets, rows, values, unused;
};
static_assert(sizeof(Job) == 96);

std::uint32_t u32(std::size_t value) { return static_cast<std::uint32_t>(value); }
std::uint32_t u32(int value) { return static_cast<std::uint32_t>(value); }
std::uint32_t divided_up(std::uint32_t value, std::uint32_t by) { return (value + by - 1) / by; }

Status status_of(const gpu::Error& error) {
  const Code code =
      error.kind == gpu::ErrorKind::out_of_memory ? Code::out_of_memory : Code::unavailable;
  return Status::fail(code, "wgpu: %s", error.message.c_str());
}

// Where the planes of both sides lie in device memory, all that the layout has: bytes.
struct Places {
  std::size_t at[kSides][kPlanes] = {};
  std::size_t bytes = 0;

  explicit Places(const BlockLayout& layout) {
    for (const Side side : kBothSides) {
      for (const Plane plane : kEveryPlane) {
        at[static_cast<int>(side)][static_cast<int>(plane)] = bytes;
        bytes += layout.plane(side, plane).bytes;
      }
    }
  }
  std::size_t of(Side side, Plane plane) const {
    return at[static_cast<int>(side)][static_cast<int>(plane)];
  }
};

std::size_t elements_of(const BlockLayout& layout) {
  return static_cast<std::size_t>(kBlockPositions) * static_cast<std::size_t>(layout.shape().row());
}

// One group is one head's row: what codec_tile.wgsl encodes in one go.
bool group_is_row(const BlockLayout& layout, Side side) {
  const QuantScheme& scheme = layout.scheme().side(side);
  return scheme.grouping == Grouping::per_token && scheme.group_size == layout.shape().head_width;
}

Job job_of(const BlockLayout& layout, const Places& places, Side side) {
  const KvShape& shape = layout.shape();
  const QuantScheme& scheme = layout.scheme().side(side);
  Job job = {};
  job.heads = u32(shape.kv_heads);
  job.width = u32(shape.head_width);
  job.bf16 = u32(places.of(side, Plane::bf16) / 4);
  const std::size_t of_side = side == Side::key ? 0 : elements_of(layout);
  job.rows = u32(of_side);
  job.values = u32(of_side);
  if (scheme.bits == BitWidth::bf16) return job;
  job.bits = u32(static_cast<int>(scheme.bits));
  job.symmetric = scheme.symmetric ? 1 : 0;
  job.fitted = has_fitted_pair(scheme) ? 1 : 0;
  job.clip_percent = u32(scheme.clip_percent);
  job.rotated = scheme.hadamard ? 1 : 0;
  job.group_size = u32(scheme.group_size);
  job.groups = u32(layout.groups(side));
  job.grouping = scheme.grouping == Grouping::per_channel    ? Groups::per_channel
                 : shape.head_width % scheme.group_size == 0 ? Groups::within_head
                                                             : Groups::across_heads;
  job.hi2 = u32(places.of(side, Plane::hi2) / 4);
  job.mid2 = u32(places.of(side, Plane::mid2) / 4);
  job.low4 = u32(places.of(side, Plane::low4) / 4);
  const auto part = [&](Plane plane, std::size_t PlaneLayout::*begin) {
    return u32((places.of(side, plane) + layout.plane(side, plane).*begin) / 4);
  };
  const Plane range = layout.range_plane(side);
  job.range_scales = part(range, &PlaneLayout::scales);
  job.range_offsets = part(range, &PlaneLayout::offsets);
  job.fitted_scales = part(Plane::hi2, &PlaneLayout::scales);
  job.fitted_offsets = part(Plane::hi2, &PlaneLayout::offsets);
  return job;
}

std::span<const std::byte> bytes_of(const Job& job) { return std::as_bytes(std::span(&job, 1)); }

}  // namespace

struct WgpuBackend::State {
  std::unique_ptr<gpu::Device> own;
  gpu::Device* device = nullptr;

  gpu::Kernel append_rows, encode_rows, prepare_rows, fit_groups, pack_codes, read_rows;
  gpu::Buffer jobs[kSides], rows, planes, values;
  // Of each kernel, in the order above: bind groups are made of a kernel's layout.
  std::array<gpu::Arguments, 6> arguments[kSides];
  std::vector<std::byte> host;  // what came back

  std::array<const gpu::Kernel*, 6> kernels() const {
    return {&append_rows, &encode_rows, &prepare_rows, &fit_groups, &pack_codes, &read_rows};
  }

  gpu::Expected<void> create_kernels() {
    const std::string text = std::string(wgpu_codec()) + std::string(wgpu_codec_tile()) +
                             std::string(wgpu_backend_shader());
    const std::pair<gpu::Kernel*, const char*> entries[] = {
        {&append_rows, "append_rows"},   {&encode_rows, "encode_rows"},
        {&prepare_rows, "prepare_rows"}, {&fit_groups, "fit_groups"},
        {&pack_codes, "pack_codes"},     {&read_rows, "read_rows"}};
    for (const auto& [kernel, entry] : entries) {
      using enum gpu::Access;
      auto created =
          device->create_kernel({.name = std::string("kvquant ") + entry,
                                 .wgsl = text,
                                 .entry = entry,
                                 .bindings = {uniform, read_write, read_write, read_write}});
      if (!created) return tl::unexpected(std::move(created).error());
      *kernel = *std::move(created);
    }
    for (gpu::Buffer& job : jobs) {
      auto created = device->create_uniform(sizeof(Job), "a side of a block");
      if (!created) return tl::unexpected(std::move(created).error());
      job = *std::move(created);
    }
    return {};
  }

  // Buffers for a block of this layout, both sides.
  gpu::Expected<void> reserve(const BlockLayout& layout, const Places& places) {
    const std::size_t floats = 2 * elements_of(layout) * sizeof(float);
    if (rows.bytes() >= floats && planes.bytes() >= places.bytes) return {};
    const std::size_t more_rows = std::max<std::size_t>(floats, rows.bytes());
    const std::size_t more_planes = std::max<std::size_t>(places.bytes, planes.bytes());
    auto new_rows = device->create_buffer(more_rows, "rows of a block");
    if (!new_rows) return tl::unexpected(std::move(new_rows).error());
    auto new_values = device->create_buffer(more_rows, "values of a block");
    if (!new_values) return tl::unexpected(std::move(new_values).error());
    auto new_planes = device->create_buffer(more_planes, "planes of a block");
    if (!new_planes) return tl::unexpected(std::move(new_planes).error());
    std::array<gpu::Arguments, 6> new_arguments[kSides];
    for (std::size_t side = 0; side < kSides; ++side) {
      for (std::size_t i = 0; i < kernels().size(); ++i) {
        const gpu::Binding bindings[] = {{.buffer = &jobs[side]},
                                         {.buffer = &*new_rows},
                                         {.buffer = &*new_planes},
                                         {.buffer = &*new_values}};
        auto bound = device->bind(*kernels()[i], bindings);
        if (!bound) return tl::unexpected(std::move(bound).error());
        new_arguments[side][i] = *std::move(bound);
      }
    }
    rows = *std::move(new_rows);
    values = *std::move(new_values);
    planes = *std::move(new_planes);
    std::move(new_arguments, new_arguments + kSides, arguments);
    host.resize(std::max(more_rows, more_planes));
    return {};
  }

  void dispatch(gpu::Recorder& recorder, std::size_t kernel, Side side, std::uint32_t workgroups) {
    recorder.dispatch(*kernels()[kernel], arguments[static_cast<int>(side)][kernel], workgroups);
  }

  void write_plane(const BlockLayout& layout, const Places& places, const KvBlock& block, Side side,
                   Plane plane) {
    const std::span bytes(block.plane(side, plane), layout.plane(side, plane).bytes);
    device->write(planes, places.of(side, plane), std::as_bytes(bytes));
  }

  // Codes of the BF16 planes on the device.
  void encode(gpu::Recorder& recorder, const BlockLayout& layout, const Places& places, Side side) {
    const std::size_t codes = places.of(side, Plane::hi2);
    recorder.clear(planes, codes,
                   layout.bytes(side, layout.planes(side)) - layout.plane(side, Plane::bf16).bytes);
    const std::uint32_t width = u32(layout.shape().head_width);
    const std::uint32_t all = u32(elements_of(layout)) / width;
    const std::uint32_t tiles = divided_up(all, kTile / width & ~1u);
    if (group_is_row(layout, side)) {
      dispatch(recorder, 1, side, tiles);
      return;
    }
    dispatch(recorder, 2, side, tiles);
    dispatch(recorder, 3, side, divided_up(u32(layout.groups(side)) / 2, kThreadsOfGroups));
    dispatch(recorder, 4, side, divided_up(all * (width / 16), kThreads));
  }
};

WgpuBackend::WgpuBackend(std::unique_ptr<State> state) : state_(std::move(state)) {}
WgpuBackend::WgpuBackend(WgpuBackend&&) noexcept = default;
WgpuBackend& WgpuBackend::operator=(WgpuBackend&&) noexcept = default;
WgpuBackend::~WgpuBackend() = default;

Expected<WgpuBackend> WgpuBackend::make(gpu::Device& device) {
  auto state = std::make_unique<State>();
  state->device = &device;
  if (auto created = state->create_kernels(); !created) return status_of(created.error());
  return WgpuBackend(std::move(state));
}

Expected<WgpuBackend> WgpuBackend::open(std::string_view adapter) {
  auto device = gpu::Device::open({.adapter = std::string(adapter)});
  if (!device) return status_of(device.error());
  Expected<WgpuBackend> made = make(**device);
  if (made.ok()) made.value().state_->own = *std::move(device);
  return made;
}

Status WgpuBackend::quantize_append(const BlockLayout& layout, std::span<const float> k,
                                    std::span<const float> v, KvBlock& block) {
  int count = 0;
  if (Status status = check_append(layout, k, v, block, &count); !status.ok()) return status;
  if (Status status = check_values(layout, Side::key, k, block.positions); !status.ok())
    return status;
  if (Status status = check_values(layout, Side::value, v, block.positions); !status.ok())
    return status;
  if (count == 0) return {};
  const Places places(layout);
  State& s = *state_;
  if (auto room = s.reserve(layout, places); !room) return status_of(room.error());
  const bool completes = block.positions + count == kBlockPositions;
  gpu::Recorder recorder = s.device->record();
  for (const Side side : kBothSides) {
    Job job = job_of(layout, places, side);
    job.position = u32(block.positions);
    job.count = u32(count);
    const std::span<const float> rows = side == Side::key ? k : v;
    s.device->write(s.jobs[static_cast<int>(side)], 0, bytes_of(job));
    s.device->write(s.rows, std::size_t{4} * job.rows, std::as_bytes(rows));
    if (completes) s.write_plane(layout, places, block, side, Plane::bf16);
    s.dispatch(recorder, 0, side, divided_up(u32(rows.size()) / 2, kThreads));
    if (completes && block.plane(side, Plane::hi2) != nullptr)
      s.encode(recorder, layout, places, side);
  }
  const std::span<std::byte> found = std::span(s.host).first(places.bytes);
  if (auto read = s.device->submit_and_read(std::move(recorder), s.planes, 0, found); !read)
    return status_of(read.error());

  for (const Side side : kBothSides) {
    const auto take = [&](Plane plane, std::size_t begin, std::size_t bytes) {
      std::memcpy(block.plane(side, plane) + begin, found.data() + places.of(side, plane) + begin,
                  bytes);
    };
    // Rows that were there are not touched: somebody may be reading them.
    const std::size_t row = layout.plane(side, Plane::bf16).row_bytes;
    for (int head = 0; head < layout.shape().kv_heads; ++head) {
      const auto at = static_cast<std::size_t>(head * kBlockPositions + block.positions);
      take(Plane::bf16, at * row, static_cast<std::size_t>(count) * row);
    }
    if (!completes || block.plane(side, Plane::hi2) == nullptr) continue;
    for (const Plane plane : kCodePlanes) {
      if (block.plane(side, plane) != nullptr) take(plane, 0, layout.plane(side, plane).bytes);
    }
  }
  block.positions += count;
  return {};
}

Status WgpuBackend::dequantize_for_attention(const BlockLayout& layout, const KvBlock& block,
                                             Tier tier, int first, int count, std::span<float> k,
                                             std::span<float> v) {
  if (Status status = check_read(layout, block, tier, first, count, k, v); !status.ok())
    return status;
  if (count == 0) return {};
  const Places places(layout);
  State& s = *state_;
  if (auto room = s.reserve(layout, places); !room) return status_of(room.error());
  gpu::Recorder recorder = s.device->record();
  for (const Side side : kBothSides) {
    Job job = job_of(layout, places, side);
    job.position = u32(first);
    job.count = u32(count);
    job.read_bits = u32(static_cast<int>(tier.side(side)));
    job.rows = side == Side::key ? 0 : u32(k.size());
    s.device->write(s.jobs[static_cast<int>(side)], 0, bytes_of(job));
    for (const Plane plane : kEveryPlane) {
      if (planes_for(tier.side(side)).has(plane)) s.write_plane(layout, places, block, side, plane);
    }
    s.dispatch(recorder, 5, side, divided_up(u32(k.size()) / job.width, kTile / job.width));
  }
  const std::span<std::byte> found = std::span(s.host).first(2 * k.size_bytes());
  if (auto read = s.device->submit_and_read(std::move(recorder), s.rows, 0, found); !read)
    return status_of(read.error());
  std::memcpy(k.data(), found.data(), k.size_bytes());
  std::memcpy(v.data(), found.data() + k.size_bytes(), v.size_bytes());
  return {};
}

}  // namespace kvquant
