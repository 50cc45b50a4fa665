#include "convert/demo_pack.h"

#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/float16.h"
#include "convert/hf_weights.h"
#include "convert/safetensors.h"
#include "convert/sha256.h"
#include "model/artifact_layout.h"

namespace kipp {
namespace {

constexpr std::string_view kLabel = "packed checkpoint";
constexpr unsigned long long kMaxUnpacked = 1ull << 30;
// Within these, code * 2^exponent is a normal BF16 number, or zero.
constexpr int kMinExponent = -100;
constexpr int kMaxExponent = 100;

Result<std::vector<std::byte>> decompress(std::span<const std::byte> packed) {
  const unsigned long long bytes = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (bytes == ZSTD_CONTENTSIZE_ERROR) {
    return fail(ErrorCode::refused, "{}: expected a zstd frame, found other data", kLabel);
  }
  if (bytes == ZSTD_CONTENTSIZE_UNKNOWN || bytes > kMaxUnpacked) {
    return fail(ErrorCode::refused, "{}: expected a stated size of at most {} bytes, found {}",
                kLabel, kMaxUnpacked,
                bytes == ZSTD_CONTENTSIZE_UNKNOWN ? "none" : fmt::format("{}", bytes));
  }
  std::vector<std::byte> plain(static_cast<std::size_t>(bytes));
  const std::size_t n = ZSTD_decompress(plain.data(), plain.size(), packed.data(), packed.size());
  if (ZSTD_isError(n) != 0) {
    return fail(ErrorCode::refused, "{}: expected intact zstd data, found: {}", kLabel,
                ZSTD_getErrorName(n));
  }
  if (n != plain.size()) {
    return fail(ErrorCode::refused, "{}: expected {} bytes, found {}", kLabel, plain.size(), n);
  }
  return plain;
}

// One matrix as it is stored.
struct PackedMatrix {
  std::span<const std::byte> codes;      // [stored rows, cols]
  std::span<const std::byte> exponents;  // [stored rows]
};

class PackedCheckpoint {
 public:
  static Result<std::shared_ptr<const PackedCheckpoint>> open(std::vector<std::byte> plain,
                                                              const ModelConfig& config);

  Result<void> rows(std::string_view name, int first_row, int n_rows, int cols,
                    std::span<std::uint16_t> out) const;

 private:
  Result<const SafetensorsView*> take(const std::string& name, DType dtype,
                                      std::vector<std::int64_t> shape);
  Result<void> take_matrix(const TensorSpec& spec, std::int64_t stored_rows);
  Result<std::int64_t> take_embedding_rows();
  Result<void> check_exponents(const std::string& name, std::span<const std::byte> exponents);

  std::vector<std::byte> plain_;
  Safetensors file_;
  std::size_t taken_ = 0;
  std::unordered_map<std::string, PackedMatrix> matrices_;             // by artifact name
  std::unordered_map<std::string, std::span<const std::byte>> norms_;  // likewise
  std::vector<std::int32_t> stored_row_;  // [kVocabRows]: where a token's embedding is stored
};

Result<const SafetensorsView*> PackedCheckpoint::take(const std::string& name, DType dtype,
                                                      std::vector<std::int64_t> shape) {
  const SafetensorsView* view = file_.find(name);
  if (view == nullptr || view->dtype != dtype || view->shape != shape) {
    return fail(ErrorCode::refused, "{}: {}: expected {} {}, found {}", kLabel, name,
                to_string(dtype), shape_text(shape),
                view == nullptr
                    ? "no such tensor"
                    : fmt::format("{} {}", to_string(view->dtype), shape_text(view->shape)));
  }
  ++taken_;
  return view;
}

Result<void> PackedCheckpoint::check_exponents(const std::string& name,
                                               std::span<const std::byte> exponents) {
  for (std::size_t row = 0; row < exponents.size(); ++row) {
    const int exponent = static_cast<std::int8_t>(exponents[row]);
    if (exponent < kMinExponent || exponent > kMaxExponent) {
      return fail(ErrorCode::refused, "{}: {} row {}: expected an exponent of {} to {}, found {}",
                  kLabel, name, row, kMinExponent, kMaxExponent, exponent);
    }
  }
  return {};
}

Result<void> PackedCheckpoint::take_matrix(const TensorSpec& spec, std::int64_t stored_rows) {
  const std::string name = hf_tensor_name(spec.name);
  KIPP_TRY_ASSIGN(codes, take(name + ".codes", DType::i8, {stored_rows, spec.cols}));
  KIPP_TRY_ASSIGN(exponents, take(name + ".exponents", DType::i8, {stored_rows}));
  KIPP_TRY(check_exponents(name + ".exponents", exponents->bytes));
  matrices_.emplace(spec.name, PackedMatrix{codes->bytes, exponents->bytes});
  return {};
}

// Fills stored_row_ and returns how many rows are stored.
Result<std::int64_t> PackedCheckpoint::take_embedding_rows() {
  const std::string name = hf_tensor_name("token_embd.weight") + ".rows";
  const SafetensorsView* found = file_.find(name);
  const std::int64_t n = found == nullptr || found->shape.size() != 1 ? 0 : found->shape[0];
  KIPP_TRY_ASSIGN(view, take(name, DType::i32, {std::clamp<std::int64_t>(n, 1, kVocabRows + 1)}));
  stored_row_.assign(kVocabRows, static_cast<std::int32_t>(n - 1));
  std::int32_t before = -1;
  for (std::int64_t i = 0; i < n; ++i) {
    std::int32_t id;
    std::memcpy(&id, view->bytes.data() + static_cast<std::size_t>(i) * sizeof(id), sizeof(id));
    const bool last = i == n - 1;
    if (last ? id != -1 : id <= before || id >= kVocabRows) {
      return fail(ErrorCode::refused, "{}: {} element {}: expected {}, found {}", kLabel, name, i,
                  last ? "-1 at the end" : "ascending token ids", id);
    }
    if (!last) stored_row_[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(i);
    before = id;
  }
  return n;
}

Result<std::shared_ptr<const PackedCheckpoint>> PackedCheckpoint::open(std::vector<std::byte> plain,
                                                                       const ModelConfig& config) {
  const auto packed = std::make_shared<PackedCheckpoint>();
  packed->plain_ = std::move(plain);
  KIPP_TRY_ASSIGN(file, Safetensors::from_bytes(packed->plain_, kLabel));
  packed->file_ = std::move(file);
  KIPP_TRY_ASSIGN(embedding_rows, packed->take_embedding_rows());
  for (const TensorSpec& spec : artifact_tensors(config)) {
    if (spec.role == TensorRole::norm) {
      KIPP_TRY_ASSIGN(norm, packed->take(hf_tensor_name(spec.name), DType::bf16, {spec.cols}));
      packed->norms_.emplace(spec.name, norm->bytes);
    } else {
      const bool embedding = spec.role == TensorRole::embedding;
      KIPP_TRY(packed->take_matrix(spec, embedding ? embedding_rows : spec.rows));
    }
  }
  if (packed->taken_ != packed->file_.tensors().size()) {
    return fail(ErrorCode::refused, "{}: expected {} tensors, found {}", kLabel, packed->taken_,
                packed->file_.tensors().size());
  }
  return packed;
}

Result<void> PackedCheckpoint::rows(std::string_view name, int first_row, int n_rows, int cols,
                                    std::span<std::uint16_t> out) const {
  const std::string key(name);
  if (const auto norm = norms_.find(key); norm != norms_.end()) {
    std::memcpy(out.data(), norm->second.data(), out.size_bytes());
    return {};
  }
  const PackedMatrix& matrix = matrices_.at(key);
  const auto width = static_cast<std::size_t>(cols);
  for (int i = 0; i < n_rows; ++i) {
    const auto row = static_cast<std::size_t>(first_row + i);
    const std::size_t stored =
        name == "token_embd.weight" ? static_cast<std::size_t>(stored_row_[row]) : row;
    const int exponent = static_cast<std::int8_t>(matrix.exponents[stored]);
    const auto scale = std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
    const std::byte* codes = matrix.codes.data() + stored * width;
    std::uint16_t* to = out.data() + static_cast<std::size_t>(i) * width;
    for (std::size_t col = 0; col < width; ++col) {
      to[col] = f32_to_bf16(scale * static_cast<float>(static_cast<std::int8_t>(codes[col])));
    }
  }
  return {};
}

}  // namespace

Result<void> unpack_checkpoint(std::span<const std::byte> packed, const Checkpoint& checkpoint,
                               std::string_view revision, std::string_view sha256,
                               const std::string& path, const WriteProgress& progress,
                               const std::atomic<bool>* cancel) {
  KIPP_TRY_ASSIGN(plain, decompress(packed));
  KIPP_TRY_ASSIGN(contents, PackedCheckpoint::open(std::move(plain), checkpoint.config));
  const RowSource rows = [&contents](std::string_view name, int first_row, int n_rows, int cols,
                                     std::span<std::uint16_t> out) {
    return contents->rows(name, first_row, n_rows, cols, out);
  };
  const ArtifactSource source{std::string(checkpoint.repository), std::string(revision), {}};
  // The final name is given only to a file whose hash was checked.
  const std::string unverified = path + ".unverified";
  KIPP_TRY(write_artifact(unverified, checkpoint, Scheme::bf16, source, rows, progress, cancel));
  std::error_code error;
  auto found = sha256_of_file(unverified, {}, cancel);
  if (!found || (!sha256.empty() && *found != sha256)) {
    std::filesystem::remove(unverified, error);
    if (!found) return tl::unexpected(found.error());
    return fail(ErrorCode::refused, "{}: expected a file with SHA-256 {}, found one with {}", path,
                sha256, *found);
  }
  std::filesystem::rename(unverified, path, error);
  if (error) return fail(ErrorCode::io, "{}: cannot rename: {}", unverified, error.message());
  return {};
}

Result<void> unpack_demo(std::span<const std::byte> packed, const std::string& path,
                         const WriteProgress& progress, const std::atomic<bool>* cancel) {
  KIPP_TRY_ASSIGN(entry, find_checkpoint("kipp-demo"));
  return unpack_checkpoint(packed, *entry, entry->revision, kDemoArtifactSha256, path, progress,
                           cancel);
}

}  // namespace kipp
