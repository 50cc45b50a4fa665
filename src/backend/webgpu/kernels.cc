#include "backend/webgpu/kernels.h"

#include <algorithm>
#include <array>
#include <string>

#include "backend/webgpu/gpu_error.h"
#include "backend/webgpu/shaders.h"

namespace kipp::webgpu {

namespace {

using gpu::Access;

constexpr std::array<int, 3> kFewRows = {2, 4, 8};  // rows of a workgroup
// Up to here several such workgroups, which find the weights in the cache, are faster than tiles:
// on an H200, 4096 x 1024 in BF16, 8 rows take 14 us and 16 rows 57 us as a tile of 16.
constexpr int kMostFewRows = 32;
// Rows and outputs of a thread, of 16 x 16, and what they take of workgroup memory.
struct Tile {
  int rows, outs;
  std::uint32_t bytes() const {
    return static_cast<std::uint32_t>(8 * (16 * rows + 1) + 32 * 16 * outs / 4) * 16;
  }
};
constexpr Tile kNarrow = {2, 4};  // 12 KiB: within what every device has
constexpr Tile kSquare = {4, 4};
constexpr Tile kWide = {4, 8};
// A GPU is busy with so many workgroups of wide tiles; with fewer, smaller ones finish earlier.
constexpr int kBusyGroups = 256;

constexpr int kChunk = 64;  // columns, as in wgsl/matmul.wgsl

// Threads that share an output: as many as have a chunk, and few enough that none waits in a last
// round of chunks.
int lanes_for(int cols) {
  const int chunks = (cols + kChunk - 1) / kChunk;
  if (chunks % 32 == 0 || chunks >= 128) return 32;
  return chunks >= 16 ? 16 : 8;
}

Result<gpu::Kernel> make(gpu::Device& device, std::string_view name, std::string wgsl,
                         std::vector<Access> bindings) {
  return engine_result(device.create_kernel(
      {.name = std::string(name), .wgsl = std::move(wgsl), .bindings = std::move(bindings)}));
}

Result<gpu::Kernel> make_matmul(gpu::Device& device, Scheme scheme, std::string_view name,
                                const std::string& constants) {
  std::string text = fmt::format("const SCHEME = {}u;\n{}", static_cast<int>(scheme), constants);
  for (const char* part : {"step", "matmul", "bf16", "weights"}) text += shader(part);
  if (name == "matmul_row") text += shader("squares");
  text += shader(name);
  return make(device, name, std::move(text),
              {Access::uniform, Access::uniform, Access::read, Access::read, Access::read,
               Access::read_write, Access::read});
}

}  // namespace

Result<Kernels> Kernels::create(gpu::Device& device) {
  Kernels kernels(device);
  kernels.wide_ = device.adapter().limits.max_workgroup_bytes >= kWide.bytes();
  KIPP_TRY_ASSIGN(embed,
                  make(device, "embed", std::string(shader("bf16")) + std::string(shader("embed")),
                       {Access::uniform, Access::read, Access::read, Access::read_write}));
  kernels.embed_ = std::move(embed);
  KIPP_TRY_ASSIGN(norm, make(device, "rms_norm",
                             std::string(shader("squares")) + std::string(shader("rms_norm")),
                             {Access::uniform, Access::read, Access::read, Access::read,
                              Access::read_write, Access::read_write}));
  kernels.rms_norm_ = std::move(norm);
  KIPP_TRY_ASSIGN(silu, make(device, "silu_mul", std::string(shader("silu_mul")),
                             {Access::uniform, Access::read, Access::read_write}));
  kernels.silu_mul_ = std::move(silu);
  return kernels;
}

// The kernel for `key`, whose two numbers the shader knows by the names `first` and `second`.
Result<const gpu::Kernel*> Kernels::made(std::map<MatmulKey, gpu::Kernel>& kernels,
                                         const MatmulKey& key, std::string_view name,
                                         const char* first, const char* second) {
  gpu::Kernel& kernel = kernels[key];
  if (!kernel) {
    const auto& [scheme, one, other] = key;
    KIPP_TRY_ASSIGN(fresh, make_matmul(*device_, scheme, name,
                                       fmt::format("const {} = {}u;\nconst {} = {}u;\n", first, one,
                                                   second, other)));
    kernel = std::move(fresh);
  }
  return &kernel;
}

Result<const gpu::Kernel*> Kernels::matmul_row(Scheme scheme, int cols, RowInput input) {
  return made(one_row_, {scheme, static_cast<int>(input), lanes_for(cols)}, "matmul_row", "INPUT",
              "LANES");
}

Result<MatmulCut> Kernels::matmul(Scheme scheme, int outs, int cols, int rows) {
  if (rows <= kMostFewRows) {
    const int at_once = *std::ranges::lower_bound(kFewRows, std::min(rows, kFewRows.back()));
    KIPP_TRY_ASSIGN(kernel, made(few_rows_, {scheme, at_once, lanes_for(cols)}, "matmul_rows",
                                 "ROWS", "LANES"));
    return MatmulCut{kernel, 8, at_once};
  }
  const auto count = [](int n, int of) { return (n + of - 1) / of; };
  const bool busy = count(rows, 16 * kWide.rows) * count(outs, 16 * kWide.outs) >= kBusyGroups;
  const Tile tile = !wide_ ? kNarrow : busy ? kWide : kSquare;
  KIPP_TRY_ASSIGN(kernel,
                  made(many_rows_, {scheme, tile.rows, tile.outs}, "matmul_tile", "TM", "TN"));
  return MatmulCut{kernel, 16 * tile.outs, 16 * tile.rows};
}

}  // namespace kipp::webgpu
