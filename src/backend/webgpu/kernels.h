// The shaders of a step as kernels of one device. Those of a step with one row or two are made at
// load, so that a driver that does not take them refuses the load; the cut of a product that no
// step had yet is made when the first one has it, and its failure is that step's.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "base/types.h"
#include "gpu/device.h"
#include "model/scheme.h"

namespace kipp::webgpu {

inline constexpr int kRowOuts = 8;

// What a product of one row does to its input first (wgsl/matmul_row.wgsl).
enum class RowInput : std::uint8_t { plain = 0, normed = 1, gated = 2 };

// How a product of some rows is cut. All cuts give the same bits (wgsl/matmul.wgsl).
struct MatmulCut {
  const gpu::Kernel* kernel = nullptr;
  int outs = 0;  // of a workgroup
  int rows = 0;  // of a workgroup
};

class Kernels {
 public:
  // The device outlives the kernels.
  static Result<Kernels> create(gpu::Device& device);

  // For the product of one row, kRowOuts outputs of it in a workgroup. The kernels live as long as
  // this.
  Result<const gpu::Kernel*> matmul_row(Scheme scheme, int cols, RowInput input);
  // For two rows or more.
  Result<MatmulCut> matmul(Scheme scheme, int outs, int cols, int rows);

  const gpu::Kernel& embed() const { return embed_; }
  const gpu::Kernel& rms_norm() const { return rms_norm_; }
  const gpu::Kernel& silu_mul() const { return silu_mul_; }

 private:
  // Scheme, and two numbers that the shader knows.
  using MatmulKey = std::tuple<Scheme, int, int>;

  explicit Kernels(gpu::Device& device) : device_(&device) {}
  Result<const gpu::Kernel*> made(std::map<MatmulKey, gpu::Kernel>& kernels, const MatmulKey& key,
                                  std::string_view name, const char* first, const char* second);

  gpu::Device* device_;
  gpu::Kernel embed_, rms_norm_, silu_mul_;
  std::map<MatmulKey, gpu::Kernel> one_row_;    // input, threads that share an output
  std::map<MatmulKey, gpu::Kernel> few_rows_;   // rows of a workgroup, threads likewise
  std::map<MatmulKey, gpu::Kernel> many_rows_;  // rows and outputs of a thread
  bool wide_ = false;  // the device has the workgroup memory for 64 x 64 and 64 x 128
};

}  // namespace kipp::webgpu
