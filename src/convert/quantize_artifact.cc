#include "convert/quantize_artifact.h"

#include <cstring>
#include <utility>

#include "base/float16.h"

namespace kipp {
namespace {

// Rows out of the mapping; every tensor write_artifact asks for is in an artifact of the same
// checkpoint.
RowSource rows_of(const Artifact& from) {
  return [&from](std::string_view name, int first_row, int n_rows, int cols,
                 std::span<std::uint16_t> out) -> Result<void> {
    const StoredTensor* tensor = from.find_tensor(name);
    if (tensor == nullptr || tensor->spec.cols != cols) {
      return fail(ErrorCode::refused, "tensor {}: expected it with {} columns, found it otherwise",
                  name, cols);
    }
    if (tensor->spec.role == TensorRole::norm) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        float value;
        std::memcpy(&value, tensor->data.data() + i * sizeof(float), sizeof(float));
        out[i] = f32_to_bf16(value);
      }
      return {};
    }
    const std::size_t bytes = row_bytes(Scheme::bf16, cols);
    std::memcpy(out.data(), tensor->data.data() + static_cast<std::size_t>(first_row) * bytes,
                static_cast<std::size_t>(n_rows) * bytes);
    return {};
  };
}

}  // namespace

Result<void> quantize_artifact(const Artifact& from, const std::string& path, Scheme scheme,
                               const WriteProgress& progress, const std::atomic<bool>* cancel) {
  if (from.scheme() != Scheme::bf16) {
    return fail(ErrorCode::invalid, "scheme of the input: expected bf16, found {}",
                to_string(from.scheme()));
  }
  ArtifactSource source{
      std::string(from.checkpoint().repository), std::string(from.source_revision()), {}};
  for (const SourceFile& file : from.source_files()) {
    source.files.emplace_back(file.name, file.sha256);
  }
  return write_artifact(path, from.checkpoint(), scheme, source, rows_of(from), progress, cancel);
}

}  // namespace kipp
