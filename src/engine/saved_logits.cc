#include "engine/saved_logits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "model/artifact_layout.h"

namespace kipp {
namespace {

static_assert(std::endian::native == std::endian::little, "rows are written as they are in memory");

struct Header {
  std::array<char, 8> magic{};
  std::uint32_t version = 0;
  std::uint32_t vocab = 0;
  std::uint64_t rows = 0;
  std::array<char, 32> model_hash{};
  std::array<char, 32> text_hash{};
  std::array<char, 16> scheme{};
  std::array<char, 56> id{};
};
static_assert(sizeof(Header) == 160);

constexpr std::array<char, 8> kMagic = {'k', 'i', 'p', 'p', 'L', 'G', 'T', 'S'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kRowBytes = std::size_t{kVocabRows} * sizeof(float);

template <std::size_t N>
void put(std::string_view text, std::array<char, N>& field) {
  std::copy_n(text.begin(), std::min(text.size(), N), field.begin());
}

template <std::size_t N>
std::string text_of(const std::array<char, N>& field) {
  return {field.begin(), std::find(field.begin(), field.end(), '\0')};
}

}  // namespace

LogitsIdentity LogitsIdentity::of(const Artifact& artifact, std::span<const Token> tokens,
                                  int context, int stride, std::uint64_t rows) {
  const std::string source =
      fmt::format("{} {}", artifact.checkpoint().repository, artifact.source_revision());
  std::vector<Token> text(tokens.begin(), tokens.end());
  text.push_back(context);
  text.push_back(stride);
  return {.rows = rows,
          .model_hash = xxh128_hex(std::as_bytes(std::span(source))),
          .text_hash = xxh128_hex(std::as_bytes(std::span(text))),
          .scheme = std::string(to_string(artifact.scheme())),
          .id = std::string(artifact.checkpoint().id)};
}

std::uint64_t LogitsIdentity::file_bytes() const { return sizeof(Header) + rows * kRowBytes; }

Result<LogitsWriter> LogitsWriter::create(const std::string& path, const LogitsIdentity& identity) {
  KIPP_TRY_ASSIGN(file, OutputFile::create(path, identity.file_bytes()));
  Header header{.magic = kMagic, .version = kVersion, .vocab = kVocabRows, .rows = identity.rows};
  put(identity.model_hash, header.model_hash);
  put(identity.text_hash, header.text_hash);
  put(identity.scheme, header.scheme);
  put(identity.id, header.id);
  KIPP_TRY(file.write(std::as_bytes(std::span(&header, 1))));
  return LogitsWriter(std::move(file));
}

Result<SavedLogits> SavedLogits::open(const std::string& path, const LogitsIdentity& expected) {
  KIPP_TRY_ASSIGN(file, MmapFile::open(path));
  const auto bytes = file->bytes();
  Header header;
  if (bytes.size() < sizeof(header)) {
    return fail(ErrorCode::refused, "{}: expected saved logits, found {} bytes", path,
                bytes.size());
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kMagic) {
    return fail(ErrorCode::refused, "{}: expected saved logits, found another kind of file", path);
  }
  if (header.version != kVersion) {
    return fail(ErrorCode::refused, "{}: expected saved logits of version {}, found version {}",
                path, kVersion, header.version);
  }
  if (header.vocab != kVocabRows) {
    return fail(ErrorCode::refused, "{}: expected rows of {} logits, found {}", path, kVocabRows,
                header.vocab);
  }
  if (text_of(header.model_hash) != expected.model_hash) {
    return fail(ErrorCode::refused,
                "{}: expected logits of the same checkpoint and revision ({}), found another ({})",
                path, expected.id, text_of(header.id));
  }
  if (text_of(header.text_hash) != expected.text_hash) {
    return fail(ErrorCode::refused,
                "{}: expected logits of the same tokens, --context and --stride, found others",
                path);
  }
  if (header.rows != expected.rows) {
    return fail(ErrorCode::refused, "{}: expected {} rows of logits, found {}", path, expected.rows,
                header.rows);
  }
  if (bytes.size() != expected.file_bytes()) {
    return fail(ErrorCode::refused, "{}: expected {} bytes, found {}", path, expected.file_bytes(),
                bytes.size());
  }
  SavedLogits saved;
  saved.file_ = std::move(file);
  saved.scheme_ = text_of(header.scheme);
  return saved;
}

std::span<const float> SavedLogits::row(std::size_t i) const {
  const auto row = file_->bytes().subspan(sizeof(Header) + i * kRowBytes, kRowBytes);
  return {reinterpret_cast<const float*>(row.data()), std::size_t{kVocabRows}};
}

}  // namespace kipp
