#include "backend/webgpu/device_weights.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "backend/webgpu/gpu_error.h"

namespace kipp::webgpu {

namespace {

constexpr int kTile = 8;                                     // rows
constexpr std::size_t kPiece = 16;                           // bytes of a row that lie together
constexpr std::size_t kUploadBytes = std::size_t{32} << 20;  // that the driver holds twice

std::size_t as_size(int n) { return static_cast<std::size_t>(n); }

// Bytes of codes of one row, and words of scales.
std::size_t code_bytes(Scheme scheme, int cols) {
  switch (scheme) {
    case Scheme::bf16:
      return as_size(cols) * 2;
    case Scheme::q8_0:
      return as_size(cols);
    case Scheme::affine4_gs32:
    case Scheme::scale4_gs32:
      break;
  }
  return as_size(cols) / 2;
}

std::size_t scale_words(Scheme scheme, int cols) {
  const std::size_t blocks = as_size(cols) / kQuantBlock;
  switch (scheme) {
    case Scheme::bf16:
      return 0;
    case Scheme::affine4_gs32:
      return blocks;
    case Scheme::q8_0:
    case Scheme::scale4_gs32:
      break;
  }
  return (blocks + 1) / 2;
}

// One row of the artifact into its place in a tile of codes and a tile of scales.
void pack_row(const MatrixView& from, int row, std::byte* codes, std::uint32_t* scales, int lane) {
  const std::byte* bytes = from.row(row).data();
  const auto piece_at = [&](std::size_t piece) {
    return codes + (piece * kTile + as_size(lane)) * kPiece;
  };
  if (from.scheme == Scheme::bf16) {
    const std::size_t pieces = code_bytes(from.scheme, from.cols) / kPiece;
    for (std::size_t p = 0; p < pieces; ++p) {
      std::memcpy(piece_at(p), bytes + p * kPiece, kPiece);
    }
    return;
  }
  const std::size_t blocks = as_size(from.cols) / kQuantBlock;
  const std::size_t block_bytes = row_bytes(from.scheme, kQuantBlock);
  const bool affine = from.scheme == Scheme::affine4_gs32;
  const std::size_t parameters = affine ? 4 : 2;
  const std::size_t pieces = (block_bytes - parameters) / kPiece;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::byte* block = bytes + b * block_bytes;
    std::uint32_t word = 0;
    std::memcpy(&word, block, parameters);
    if (affine) {
      scales[b * kTile + as_size(lane)] = word;
    } else {
      std::uint32_t& pair = scales[b / 2 * kTile + as_size(lane)];
      pair = b % 2 == 0 ? word : pair | word << 16;
    }
    for (std::size_t p = 0; p < pieces; ++p) {
      std::memcpy(piece_at(b * pieces + p), block + parameters + p * kPiece, kPiece);
    }
  }
}

// Packs pieces of matrices and hands them to the device, which is waited for now and then: what was
// written and not yet submitted, the driver holds in memory of the host.
class Upload {
 public:
  Upload(gpu::Device& device, ThreadPool& pool, const LoadProgress& progress, std::uint64_t total)
      : device_(device), pool_(pool), progress_(progress), total_(total) {
    report(0);
  }

  Result<void> matrix(const DeviceMatrix& to, std::span<const MatrixView> parts) {
    const std::size_t tile_bytes = code_bytes(to.scheme, to.cols) * kTile;
    const std::size_t tile_words = scale_words(to.scheme, to.cols) * kTile;
    std::size_t first = 0;  // tile
    for (const MatrixView& part : parts) {
      assert(part.rows % kTile == 0);
      const int at_once = static_cast<int>(std::max<std::size_t>(
          1, kUploadBytes / (tile_bytes + tile_words * sizeof(std::uint32_t))));
      const int tiles = part.rows / kTile;
      for (int t = 0; t < tiles; t += at_once) {
        const int n = std::min(at_once, tiles - t);
        codes_.resize(as_size(n) * tile_bytes);
        scales_.resize(as_size(n) * tile_words);
        pool_.parallel_tasks(n, [&](int tile, int) {
          for (int lane = 0; lane < kTile; ++lane) {
            pack_row(part, (t + tile) * kTile + lane, codes_.data() + as_size(tile) * tile_bytes,
                     scales_.data() + as_size(tile) * tile_words, lane);
          }
        });
        const std::size_t at = first + as_size(t);
        device_.write(to.codes, at * tile_bytes, codes_);
        if (tile_words > 0) {
          device_.write(to.scales, at * tile_words * sizeof(std::uint32_t),
                        std::as_bytes(std::span(scales_)));
        }
        KIPP_TRY(engine_result(device_.submit(device_.record())));
        KIPP_TRY(engine_result(device_.wait()));
        report(as_size(n) * kTile * row_bytes(part.scheme, part.cols));
      }
      first += as_size(tiles);
    }
    return {};
  }

  void report(std::uint64_t bytes) {
    done_ += bytes;
    if (progress_) progress_(done_, total_);
  }

 private:
  gpu::Device& device_;
  ThreadPool& pool_;
  const LoadProgress& progress_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::vector<std::byte> codes_;
  std::vector<std::uint32_t> scales_;
};

bool is_tied(const Qwen3Weights<StackedMatrix>& weights) {
  return weights.lm_head.parts[0].data == weights.embed.data;
}

StackedMatrix stacked(const MatrixView& view) { return {.parts = {view, {}, {}}, .n_parts = 1}; }

// All matrices in the order in which a step reads them.
std::vector<StackedMatrix> matrices_of(const Qwen3Weights<StackedMatrix>& from) {
  std::vector<StackedMatrix> all = {stacked(from.embed)};
  for (const LayerWeights<StackedMatrix>& layer : from.layers) {
    all.insert(all.end(), {layer.qkv, layer.attn_out, layer.gate_up, layer.down});
  }
  if (!is_tied(from)) all.push_back(from.lm_head);
  return all;
}

std::vector<std::span<const float>> norms_of(const Qwen3Weights<StackedMatrix>& from) {
  std::vector<std::span<const float>> all = {from.final_norm};
  for (const LayerWeights<StackedMatrix>& layer : from.layers) {
    all.insert(all.end(), {layer.attn_norm, layer.q_norm, layer.k_norm, layer.mlp_norm});
  }
  return all;
}

std::uint64_t aligned(std::uint64_t bytes) {
  constexpr std::uint64_t kAlignment = DeviceWeights::kNormAlignment;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t bytes_of(const StackedMatrix& m, std::size_t bytes_per_row) {
  return as_size(m.rows()) * bytes_per_row;
}

}  // namespace

Result<DeviceWeights> DeviceWeights::upload(gpu::Device& device,
                                            const Qwen3Weights<StackedMatrix>& weights,
                                            ThreadPool& pool, const LoadProgress& progress) {
  DeviceWeights made;
  const std::vector<StackedMatrix> matrices = matrices_of(weights);
  std::uint64_t total = 0;
  for (const StackedMatrix& m : matrices) {
    const Scheme scheme = m.parts[0].scheme;
    total += bytes_of(m, row_bytes(scheme, m.cols()));
    auto& to = made.matrices_.emplace_back(std::make_unique<DeviceMatrix>());
    *to = {.codes = {}, .scales = {}, .scheme = scheme, .rows = m.rows(), .cols = m.cols()};
    KIPP_TRY_ASSIGN(codes, engine_result(device.create_buffer(
                               bytes_of(m, code_bytes(scheme, m.cols())), "weights")));
    to->codes = std::move(codes);
    if (const std::size_t words = scale_words(scheme, m.cols()); words > 0) {
      KIPP_TRY_ASSIGN(scales, engine_result(device.create_buffer(
                                  bytes_of(m, words * sizeof(std::uint32_t)), "weights")));
      to->scales = std::move(scales);
    }
  }
  std::uint64_t norm_bytes = 0;
  const auto norms = norms_of(weights);
  for (const auto& norm : norms) {
    made.norm_offsets_.emplace_back(norm.data(), norm_bytes);
    norm_bytes += aligned(norm.size_bytes());
  }
  KIPP_TRY_ASSIGN(norm_memory, engine_result(device.create_buffer(norm_bytes, "weights")));
  made.norms_ = std::move(norm_memory);
  for (std::size_t i = 0; i < norms.size(); ++i) {
    device.write(made.norms_, made.norm_offsets_[i].second, std::as_bytes(norms[i]));
  }
  std::ranges::sort(made.norm_offsets_);

  Upload upload(device, pool, progress, total);
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    KIPP_TRY(upload.matrix(*made.matrices_[i], matrices[i].views()));
  }
  auto next = made.matrices_.begin();
  made.weights_.embed = weights.embed;
  ++next;
  for (const LayerWeights<StackedMatrix>& layer : weights.layers) {
    made.weights_.layers.push_back({.attn_norm = layer.attn_norm,
                                    .qkv = (*next++).get(),
                                    .q_norm = layer.q_norm,
                                    .k_norm = layer.k_norm,
                                    .attn_out = (*next++).get(),
                                    .mlp_norm = layer.mlp_norm,
                                    .gate_up = (*next++).get(),
                                    .down = (*next++).get()});
  }
  made.weights_.final_norm = weights.final_norm;
  made.weights_.lm_head = made.matrices_[is_tied(weights) ? 0 : made.matrices_.size() - 1].get();
  return made;
}

std::uint64_t DeviceWeights::norm_offset(std::span<const float> norm) const {
  const auto found = std::ranges::lower_bound(norm_offsets_, norm.data(), {},
                                              &std::pair<const float*, std::uint64_t>::first);
  assert(found != norm_offsets_.end() && found->first == norm.data());
  return found->second;
}

}  // namespace kipp::webgpu
