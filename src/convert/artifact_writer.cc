#include "convert/artifact_writer.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "base/float16.h"
#include "base/output_file.h"
#include "convert/gguf_writer.h"
#include "convert/parallel_rows.h"
#include "convert/quantize.h"
#include "model/artifact_layout.h"
#include "tokenizer/vocabulary.h"

namespace kipp {
namespace {

// Values asked of the RowSource at a time. Large enough that starting threads for a chunk costs
// nothing.
constexpr int kChunkValues = 4 << 20;

void add_vocabulary(GgufHead& head) {
  const Vocabulary& vocabulary = qwen_vocabulary();
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types(kVocabRows, static_cast<std::int32_t>(GgufTokenType::normal));
  tokens.reserve(kVocabRows);
  for (Token id = 0; id < kFirstAddedToken; ++id) {
    tokens.push_back(to_printable(vocabulary.token_bytes(id)));
  }
  for (const AddedToken& added : added_tokens()) {
    types[tokens.size()] = static_cast<std::int32_t>(added.special ? GgufTokenType::control
                                                                   : GgufTokenType::user_defined);
    tokens.emplace_back(added.text);
  }
  // llama.cpp's converter names the rows without a token like this.
  for (Token id = kNamedTokens; id < kVocabRows; ++id) {
    types[tokens.size()] = static_cast<std::int32_t>(GgufTokenType::unused);
    tokens.push_back(fmt::format("[PAD{}]", id));
  }
  std::vector<std::string> merges;
  merges.reserve(vocabulary.merges.size());
  for (const Merge& merge : vocabulary.merges) {
    merges.push_back(fmt::format("{} {}", tokens[static_cast<std::size_t>(merge.left)],
                                 tokens[static_cast<std::size_t>(merge.right)]));
  }
  head.add(vocabulary_pins()[kTokensPin].key, tokens);
  head.add(vocabulary_pins()[kTokenTypesPin].key, types);
  head.add(vocabulary_pins()[kMergesPin].key, merges);
}

void add_sources(GgufHead& head, const ArtifactSource& source) {
  if (source.files.empty()) return;
  std::vector<std::string> names;
  std::vector<std::string> hashes;
  for (const auto& [name, sha256] : source.files) {
    names.push_back(name);
    hashes.push_back(sha256);
  }
  head.add(kSourceFilesKey, names);
  head.add(kSourceHashesKey, hashes);
}

GgufHead make_head(const Checkpoint& checkpoint, Scheme scheme, const ArtifactSource& source) {
  GgufHead head;
  for (const MetadataEntry& entry : artifact_metadata(checkpoint, scheme, source.revision)) {
    std::visit([&](const auto& value) { head.add(entry.key, value); }, entry.value);
  }
  add_sources(head, source);
  add_vocabulary(head);
  for (const TensorSpec& spec : artifact_tensors(checkpoint.config)) {
    const std::uint64_t dims[] = {static_cast<std::uint64_t>(spec.cols),
                                  static_cast<std::uint64_t>(spec.rows)};
    head.add_tensor(spec.name, std::span(dims, spec.role == TensorRole::norm ? 1 : 2),
                    stored_type(spec.role, scheme), stored_bytes(spec, scheme));
  }
  return head;
}

// The rows of one chunk, encoded by several threads; the first error by row wins.
Result<void> encode_chunk(const TensorSpec& spec, Scheme scheme, int first_row, int n_rows,
                          std::span<const std::uint16_t> values, std::span<std::byte> out) {
  const auto cols = static_cast<std::size_t>(spec.cols);
  const std::size_t bytes = row_bytes(scheme, spec.cols);
  std::mutex mutex;
  std::optional<std::pair<int, Error>> first_error;
  const auto threads = static_cast<int>(std::thread::hardware_concurrency());
  parallel_rows(n_rows, threads, [&](int first, int count) {
    for (int row = first; row < first + count; ++row) {
      const auto at = static_cast<std::size_t>(row);
      auto done =
          encode_row(scheme, values.subspan(at * cols, cols), out.subspan(at * bytes, bytes));
      if (done) continue;
      const std::lock_guard lock(mutex);
      if (!first_error || row < first_error->first) first_error = {row, done.error()};
      return;
    }
  });
  if (!first_error) return {};
  return fail(first_error->second.code, "{} row {}: {}", spec.name, first_row + first_error->first,
              first_error->second.message);
}

Result<void> write_norm(const TensorSpec& spec, const RowSource& rows, OutputFile& file) {
  std::vector<std::uint16_t> values(static_cast<std::size_t>(spec.cols));
  KIPP_TRY(rows(spec.name, 0, 1, spec.cols, values));
  std::vector<float> stored(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    stored[i] = bf16_to_f32(values[i]);
    if ((values[i] & 0x7f80u) == 0x7f80u) {
      return fail(ErrorCode::refused, "{} row 0: column {}: expected a finite value, found {}",
                  spec.name, i, stored[i]);
    }
  }
  return file.write(std::as_bytes(std::span(stored)));
}

Result<void> write_matrix(const TensorSpec& spec, Scheme scheme, const RowSource& rows,
                          OutputFile& file, const WriteProgress& progress, std::uint64_t total,
                          const std::atomic<bool>* cancel) {
  const int chunk_rows = std::clamp(kChunkValues / spec.cols, 1, spec.rows);
  const auto chunk = static_cast<std::size_t>(chunk_rows);
  const auto cols = static_cast<std::size_t>(spec.cols);
  std::vector<std::uint16_t> values(chunk * cols);
  std::vector<std::byte> encoded(chunk * row_bytes(scheme, spec.cols));
  for (int first = 0; first < spec.rows; first += chunk_rows) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      return fail(ErrorCode::interrupted, "interrupted after {} of {} bytes; nothing is kept",
                  file.written(), total);
    }
    const int count = std::min(chunk_rows, spec.rows - first);
    const auto n = static_cast<std::size_t>(count);
    const auto in = std::span(values).first(n * cols);
    const auto out = std::span(encoded).first(n * row_bytes(scheme, spec.cols));
    KIPP_TRY(rows(spec.name, first, count, spec.cols, in));
    KIPP_TRY(encode_chunk(spec, scheme, first, count, in, out));
    KIPP_TRY(file.write(out));
    if (progress) progress(file.written(), total);
  }
  return {};
}

Result<void> write_padding(OutputFile& file, std::uint64_t bytes) {
  const std::vector<std::byte> zeros(bytes);
  return file.write(zeros);
}

}  // namespace

Result<void> write_artifact(const std::string& path, const Checkpoint& checkpoint, Scheme scheme,
                            const ArtifactSource& source, const RowSource& rows,
                            const WriteProgress& progress, const std::atomic<bool>* cancel) {
  if (source.repository != checkpoint.repository) {
    return fail(ErrorCode::invalid, "source repository: expected {}, found {}",
                checkpoint.repository, source.repository);
  }
  const GgufHead head = make_head(checkpoint, scheme, source);
  const std::string head_bytes = head.finish();
  const std::uint64_t total = head_bytes.size() + head.data_bytes();
  KIPP_TRY_ASSIGN(file, OutputFile::create(path, total));
  KIPP_TRY(file.write(std::as_bytes(std::span(head_bytes))));
  for (const TensorSpec& spec : artifact_tensors(checkpoint.config)) {
    if (spec.role == TensorRole::norm) {
      KIPP_TRY(write_norm(spec, rows, file));
    } else {
      const Scheme used = spec.role == TensorRole::projection ? scheme : Scheme::bf16;
      KIPP_TRY(write_matrix(spec, used, rows, file, progress, total, cancel));
    }
    KIPP_TRY(write_padding(file, gguf_align(file.written()) - file.written()));
  }
  return file.commit();
}

}  // namespace kipp
