#include "backend/cuda/device_weights.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

namespace kipp::cuda {

namespace {

// Of each of the two buffers on the way: large enough that one copy runs at the full speed of the
// bus, small enough to be on its way soon.
constexpr std::size_t kStagingBytes = std::size_t{32} << 20;
constexpr std::size_t kAlignment = 256;  // of every matrix and norm

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool is_tied(const Qwen3Weights<StackedMatrix>& weights) {
  return weights.lm_head.parts[0].data == weights.embed.data;
}

// Hands out a memory piece by piece; without one it counts.
class Shelf {
 public:
  explicit Shelf(std::byte* memory) : memory_(memory) {}

  std::uint8_t* take(std::size_t bytes) {
    std::byte* at = memory_ == nullptr || bytes == 0 ? nullptr : memory_ + used_;
    used_ += aligned(bytes);
    return reinterpret_cast<std::uint8_t*>(at);
  }
  DeviceMatrix matrix(Scheme scheme, int rows, int cols) {
    std::uint8_t* codes = take(packed_weight_bytes(scheme, rows, cols));
    std::uint8_t* scales = take(packed_scale_bytes(scheme, rows, cols));
    return {.weights = codes, .scales = scales, .scheme = scheme, .rows = rows, .cols = cols};
  }
  DeviceMatrix matrix(const StackedMatrix& like) {
    return matrix(like.parts[0].scheme, like.rows(), like.cols());
  }
  std::span<const float> norm(std::size_t floats) {
    return {reinterpret_cast<const float*>(take(floats * sizeof(float))), floats};
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

// Where everything lies, in the order in which a step reads it.
Qwen3Weights<DeviceMatrix> lay_out(const Qwen3Weights<StackedMatrix>& from, Shelf& shelf) {
  Qwen3Weights<DeviceMatrix> to;
  const DeviceMatrix table = shelf.matrix(from.embed.scheme, from.embed.rows, from.embed.cols);
  to.embed = {.data = reinterpret_cast<const std::byte*>(table.weights),
              .scheme = table.scheme,
              .rows = table.rows,
              .cols = table.cols};
  for (const LayerWeights<StackedMatrix>& layer : from.layers) {
    LayerWeights<DeviceMatrix>& l = to.layers.emplace_back();
    l.attn_norm = shelf.norm(layer.attn_norm.size());
    l.qkv = shelf.matrix(layer.qkv);
    l.q_norm = shelf.norm(layer.q_norm.size());
    l.k_norm = shelf.norm(layer.k_norm.size());
    l.attn_out = shelf.matrix(layer.attn_out);
    l.mlp_norm = shelf.norm(layer.mlp_norm.size());
    l.gate_up = shelf.matrix(layer.gate_up);
    l.down = shelf.matrix(layer.down);
  }
  to.final_norm = shelf.norm(from.final_norm.size());
  to.lm_head = is_tied(from) ? table : shelf.matrix(from.lm_head);
  return to;
}

// Copies the artifact's bytes to the device by way of two buffers that take turns.
class Upload {
 public:
  static Result<Upload> create(Device& device, ThreadPool& pool, std::uint64_t total,
                               const LoadProgress& progress) {
    Upload upload(device, pool, total, progress);
    for (Slot& slot : upload.slots_) {
      KIPP_TRY_ASSIGN(pinned, device.allocate_pinned(kStagingBytes, "weights on their way"));
      slot.pinned = std::move(pinned);
      KIPP_TRY_ASSIGN(staged, device.allocate(kStagingBytes, "weights on their way"));
      slot.staged = std::move(staged);
      KIPP_TRY_ASSIGN(free, Event::create(device));
      slot.free.emplace(std::move(free));
    }
    upload.report(0);
    return upload;
  }

  Result<void> matrix(const DeviceMatrix& to, std::span<const MatrixView> parts) {
    int first = 0;
    for (const MatrixView& part : parts) {
      const std::size_t bytes_per_row = row_bytes(part.scheme, part.cols);
      const int at_once = static_cast<int>(std::max<std::size_t>(1, kStagingBytes / bytes_per_row));
      for (int r = 0; r < part.rows; r += at_once) {
        const int n = std::min(at_once, part.rows - r);
        const std::size_t bytes = static_cast<std::size_t>(n) * bytes_per_row;
        KIPP_TRY_ASSIGN(slot, send({part.row(r).data(), bytes}));
        KIPP_TRY(device_.launched(
            pack_rows(device_.stream(), to, first + r, n, slot->staged.data()), kWhat));
        KIPP_TRY(slot->free->record(kWhat));
        report(bytes);
      }
      first += part.rows;
    }
    return {};
  }

  Result<void> norm(std::span<const float> to, std::span<const float> from) {
    const auto bytes = std::as_bytes(from);
    KIPP_TRY_ASSIGN(slot, send(bytes));
    KIPP_TRY(device_.copy_within(const_cast<float*>(to.data()), slot->staged.data(), bytes.size(),
                                 kWhat));
    KIPP_TRY(slot->free->record(kWhat));
    report(bytes.size());
    return {};
  }

 private:
  static constexpr std::string_view kWhat = "uploading weights";
  // A page fault or a copy of less is not worth a thread.
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

  struct Slot {
    PinnedMemory pinned;
    DeviceMemory staged;
    std::optional<Event> free;  // recorded behind the last reader of `staged`
    bool used = false;
  };

  Upload(Device& device, ThreadPool& pool, std::uint64_t total, const LoadProgress& progress)
      : device_(device), pool_(pool), progress_(&progress), total_(total) {}

  // Enqueues the copy of `bytes`, at most kStagingBytes, into a slot that nobody reads any more.
  Result<Slot*> send(std::span<const std::byte> bytes) {
    Slot& slot = slots_[next_];
    next_ = 1 - next_;
    if (slot.used) KIPP_TRY(slot.free->wait(kWhat));
    slot.used = true;
    const auto pieces = static_cast<int>((bytes.size() + kPieceBytes - 1) / kPieceBytes);
    pool_.parallel_tasks(pieces, [&](int piece, int) {
      const std::size_t at = static_cast<std::size_t>(piece) * kPieceBytes;
      const std::size_t n = std::min(kPieceBytes, bytes.size() - at);
      std::memcpy(slot.pinned.data() + at, bytes.data() + at, n);
    });
    KIPP_TRY(device_.copy_to_device(slot.staged.data(), {slot.pinned.data(), bytes.size()}, kWhat));
    return &slot;
  }

  void report(std::size_t bytes) {
    done_ += bytes;
    if (*progress_) (*progress_)(done_, total_);
  }

  Device& device_;
  ThreadPool& pool_;
  const LoadProgress* progress_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::array<Slot, 2> slots_;
  std::size_t next_ = 0;
};

std::uint64_t bytes_of(std::span<const MatrixView> parts) {
  std::uint64_t bytes = 0;
  for (const MatrixView& part : parts) {
    bytes += static_cast<std::uint64_t>(part.rows) * row_bytes(part.scheme, part.cols);
  }
  return bytes;
}

// Calls matrix(to, parts) and norm(to, from) for all that is uploaded, in the order of lay_out();
// stops at the first error.
template <class Matrix, class Norm>
Result<void> for_each(const Qwen3Weights<StackedMatrix>& from, const Qwen3Weights<DeviceMatrix>& to,
                      const Matrix& matrix, const Norm& norm) {
  const DeviceMatrix table = {
      .weights = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(to.embed.data)),
      .scheme = to.embed.scheme,
      .rows = to.embed.rows,
      .cols = to.embed.cols};
  KIPP_TRY(matrix(table, std::span(&from.embed, 1)));
  for (std::size_t l = 0; l < from.layers.size(); ++l) {
    const LayerWeights<StackedMatrix>& layer = from.layers[l];
    const LayerWeights<DeviceMatrix>& there = to.layers[l];
    KIPP_TRY(norm(there.attn_norm, layer.attn_norm));
    KIPP_TRY(matrix(there.qkv, layer.qkv.views()));
    KIPP_TRY(norm(there.q_norm, layer.q_norm));
    KIPP_TRY(norm(there.k_norm, layer.k_norm));
    KIPP_TRY(matrix(there.attn_out, layer.attn_out.views()));
    KIPP_TRY(norm(there.mlp_norm, layer.mlp_norm));
    KIPP_TRY(matrix(there.gate_up, layer.gate_up.views()));
    KIPP_TRY(matrix(there.down, layer.down.views()));
  }
  KIPP_TRY(norm(to.final_norm, from.final_norm));
  if (!is_tied(from)) KIPP_TRY(matrix(to.lm_head, from.lm_head.views()));
  return {};
}

}  // namespace

std::size_t DeviceWeights::bytes_needed(const Qwen3Weights<StackedMatrix>& weights) {
  Shelf shelf(nullptr);
  lay_out(weights, shelf);
  return shelf.used();
}

std::size_t DeviceWeights::staging_bytes() { return 2 * kStagingBytes; }

Result<DeviceWeights> DeviceWeights::upload(Device& device,
                                            const Qwen3Weights<StackedMatrix>& weights,
                                            ThreadPool& pool, const LoadProgress& progress) {
  const std::size_t bytes = bytes_needed(weights);
  DeviceWeights made;
  KIPP_TRY_ASSIGN(memory, device.allocate(bytes, "weights"));
  made.memory_ = std::move(memory);
  // The last tile of a matrix may be wider than the matrix.
  KIPP_TRY(device.zero(made.memory_.data(), bytes, "uploading weights"));
  Shelf shelf(made.memory_.data());
  made.weights_ = lay_out(weights, shelf);

  std::uint64_t total = 0;
  KIPP_TRY(for_each(
      weights, made.weights_,
      [&](const DeviceMatrix&, std::span<const MatrixView> parts) -> Result<void> {
        total += bytes_of(parts);
        return {};
      },
      [&](std::span<const float>, std::span<const float> from) -> Result<void> {
        total += from.size_bytes();
        return {};
      }));
  KIPP_TRY_ASSIGN(upload, Upload::create(device, pool, total, progress));
  const Result<void> sent = for_each(
      weights, made.weights_,
      [&](const DeviceMatrix& to, std::span<const MatrixView> parts) {
        return upload.matrix(to, parts);
      },
      [&](std::span<const float> to, std::span<const float> from) {
        return upload.norm(to, from);
      });
  // Also after an error: the buffers may not go before the copies have read them.
  const Result<void> arrived = device.wait("uploading weights");
  KIPP_TRY(sent);
  KIPP_TRY(arrived);
  return made;
}

}  // namespace kipp::cuda
