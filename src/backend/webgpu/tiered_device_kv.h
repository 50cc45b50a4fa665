// Keys and values as bit planes in a device's memory: what TieredKv is on the host. Which planes a
// block holds and in which units TieredPlanes knows; a layer's buffer is
//   [units of kKvUnitBytes][parameters of blocks]
// and units have the same numbers in all layers of a group, so that one table of a block's units
// serves them all. Blocks are read at the widths that the policy asks for, codes as they are
// (wgsl/tiered.wgsl); they are made with kvquant's own shaders.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/tiered_planes.h"
#include "backend/webgpu/device_kv.h"

namespace kipp::webgpu {

class TieredDeviceKv final : public DeviceKv {
 public:
  static std::size_t bytes_needed(const ModelConfig& config, const KvConfig& kv,
                                  const Limits& limits);
  static Result<std::unique_ptr<DeviceKv>> create(gpu::Device& device, const ModelConfig& config,
                                                  const KvConfig& kv, const Limits& limits,
                                                  const Activations& activations,
                                                  std::span<const LayerNorms> norms);

  Result<void> begin_step(const StepPlan& step) override;
  void append(gpu::Recorder& recorder, int layer) const override;
  void attend(gpu::Recorder& recorder, int layer) const override;
  Result<void> finish_step() override;
  Result<void> copy_blocks(std::span<const BlockCopy> copies) override;
  void hold_planes(std::span<const PlaneChange> changes) override;
  Result<void> move_planes(BlockId from, BlockId to, PlaneBits planes) override;
  using DeviceKv::block_bytes;
  std::size_t block_bytes(PlaneBits planes) const override { return planes_.block_bytes(planes); }
  Result<void> read_block(BlockId block, std::span<std::byte> out) override;
  Result<void> write_block(BlockId block, std::span<const std::byte> in) override;

 private:
  struct Layer {
    gpu::Buffer cache;
    gpu::Buffer place;  // uniform
    gpu::Arguments append, encode, narrow, wide;
  };
  static constexpr std::size_t kPlaceWords = 24;  // struct Place of wgsl/tiered.wgsl

  // Memory within a layer.
  struct Piece {
    std::size_t layer, at, bytes;
  };

  TieredDeviceKv(gpu::Device& device, const ModelConfig& config, const KvConfig& kv,
                 const Limits& limits, const Shape& shape, TieredPlanes planes);
  std::array<std::uint32_t, kPlaceWords> place_of(int layer) const;
  Result<void> create_kernels();
  Result<void> create_layers(const Activations& activations, std::span<const LayerNorms> norms);
  std::size_t parameter_bytes_of_layer() const;
  Piece parameters(BlockId block, int layer, kvquant::Side side) const;
  std::vector<Piece> units(BlockId block, PlaneBits planes) const;
  Result<void> copy_pieces(std::span<const Piece> to, std::span<const Piece> from);
  void write_table(BlockId block);
  std::size_t table_at(LayerGroup group, BlockId block) const;

  TieredPlanes planes_;
  std::size_t work_rows_at_ = 0;  // bytes: where the rows of a step begin in work_
  gpu::Kernel append_, encode_, narrow_, wide_;
  std::vector<Layer> layers_;
  gpu::Buffer tables_;  // [groups][blocks][sides][kUnitsOfSide] units
  gpu::Buffer
      work_;  // turned queries [rows][query heads][kHeadDim + 4], then rows of blocks written whole
  gpu::Buffer refused_;  // wgsl/encode_planes.wgsl
  gpu::Buffer bounce_;   // one block: copies are between buffers, not within one
  std::vector<AttentionPlan::Completed> completed_;  // of the step
};

}  // namespace kipp::webgpu
