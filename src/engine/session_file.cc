#include "engine/session_file.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "base/output_file.h"
#include "model/config.h"
#include "model/step_plan.h"

namespace kipp {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

constexpr std::array<char, 8> kMagic = {'K', 'I', 'P', 'P', 'S', 'E', 'S', 'S'};
constexpr std::size_t kChecksumBytes = sizeof(std::uint64_t);
// Far beyond any checkpoint; keeps the arithmetic on a damaged header within 64 bits.
constexpr std::uint64_t kMostBlockBytes = std::uint64_t{1} << 30;

struct FreeHash {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

// Writes and hashes.
class HashedOutput {
 public:
  explicit HashedOutput(OutputFile file) : file_(std::move(file)), hash_(XXH3_createState()) {
    if (hash_ == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(hash_.get());
  }
  template <class T>
  Result<void> write(std::span<const T> values) {
    XXH3_64bits_update(hash_.get(), values.data(), values.size_bytes());
    return file_.write(std::as_bytes(values));
  }
  Result<void> commit() {
    const std::uint64_t checksum = XXH3_64bits_digest(hash_.get());
    KIPP_TRY(file_.write(std::as_bytes(std::span(&checksum, 1))));
    return file_.commit();
  }

 private:
  OutputFile file_;
  std::unique_ptr<XXH3_state_t, FreeHash> hash_;
};

std::uint64_t file_bytes(const SessionFileHeader& header) {
  const std::uint64_t blocks =
      (std::uint64_t{header.tokens} + kBlockPositions - 1) / kBlockPositions;
  return sizeof(SessionFileHeader) + std::uint64_t{header.tokens} * sizeof(Token) +
         std::uint64_t{header.logits} * sizeof(float) + blocks * header.block_bytes +
         kChecksumBytes;
}

SessionFileHeader::Text text_of(std::string_view text) {
  SessionFileHeader::Text out{};
  std::copy_n(text.begin(), std::min(text.size(), out.size() - 1), out.begin());
  return out;
}

SessionFileHeader header_of(const SessionOrigin& origin, std::size_t tokens, std::size_t logits) {
  return {.magic = kMagic,
          .version = kSessionFileVersion,
          .block_positions = kBlockPositions,
          .checkpoint = text_of(origin.checkpoint),
          .source = text_of(origin.source),
          .scheme = text_of(origin.scheme),
          .kv = text_of(origin.kv),
          .backend = text_of(origin.backend),
          .block_bytes = origin.block_bytes,
          .tokens = static_cast<std::uint32_t>(tokens),
          .logits = static_cast<std::uint32_t>(logits)};
}

template <class T>
std::vector<T> copied(std::span<const std::byte> bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

Result<void> check_whole(const std::string& path, std::span<const std::byte> file,
                         const SessionFileHeader& header) {
  if (header.block_bytes > kMostBlockBytes || file_bytes(header) != file.size()) {
    return fail(ErrorCode::refused, "{}: expected {} tokens to take {} bytes, found {} bytes", path,
                header.tokens, file_bytes(header), file.size());
  }
  const auto body = file.first(file.size() - kChecksumBytes);
  std::uint64_t promised = 0;
  std::memcpy(&promised, file.data() + body.size(), sizeof promised);
  const std::uint64_t found = XXH3_64bits(body.data(), body.size());
  if (found != promised) {
    return fail(ErrorCode::refused,
                "{}: expected the checksum {:016x}, found {:016x}: the session is damaged", path,
                promised, found);
  }
  return {};
}

// Of a file whose checksum is right.
Result<void> check_origin(const std::string& path, const SessionFileHeader& found,
                          const SessionFileHeader& expected) {
  struct Field {
    const char* name;
    const SessionFileHeader::Text& expected;
    const SessionFileHeader::Text& found;
  };
  const Field fields[] = {{"checkpoint", expected.checkpoint, found.checkpoint},
                          {"source", expected.source, found.source},
                          {"scheme", expected.scheme, found.scheme},
                          {"KV policy", expected.kv, found.kv},
                          {"backend", expected.backend, found.backend}};
  for (const Field& field : fields) {
    if (field.found == field.expected) continue;
    const std::string_view text(field.found.data(), field.found.size());
    return fail(ErrorCode::refused, "{}: {}: expected a session of {}, found one of {}", path,
                field.name, field.expected.data(), text.substr(0, text.find('\0')));
  }
  if (found.block_positions != expected.block_positions ||
      found.block_bytes != expected.block_bytes ||
      (found.logits != 0 && (found.logits != kVocabRows || found.tokens == 0))) {
    return fail(ErrorCode::refused,
                "{}: expected blocks of {} positions in {} bytes and {} logits or none, found {} "
                "in {} and {}",
                path, expected.block_positions, expected.block_bytes, kVocabRows,
                found.block_positions, found.block_bytes, found.logits);
  }
  return {};
}

// What a block holds behind its last position belongs to whoever had the block before. In each of
// the block's stretches, [kBlockPositions] rows of kHeadDim elements, only the first are kept.
void clear_behind(std::span<std::byte> block, std::size_t positions, std::size_t stretches) {
  const std::size_t stretch = block.size() / stretches;
  const std::size_t kept = stretch / kBlockPositions * positions;
  for (std::size_t at = 0; at < block.size(); at += stretch) {
    std::ranges::fill(block.subspan(at + kept, stretch - kept), std::byte{0});
  }
}

}  // namespace

Result<void> write_session_file(const std::string& path, const SessionOrigin& origin,
                                std::span<const Token> tokens, std::span<const float> logits,
                                const ReadBlock& read_block) {
  const SessionFileHeader header = header_of(origin, tokens.size(), logits.size());
  KIPP_TRY_ASSIGN(file, OutputFile::create(path, file_bytes(header)));
  HashedOutput out(std::move(file));
  KIPP_TRY(out.write(std::span(&header, 1)));
  KIPP_TRY(out.write(tokens));
  KIPP_TRY(out.write(logits));
  std::vector<std::byte> block(origin.block_bytes);
  const int blocks = blocks_for(static_cast<int>(tokens.size()));
  for (int i = 0; i < blocks; ++i) {
    KIPP_TRY(read_block(i, block));
    const std::size_t used = tokens.size() - static_cast<std::size_t>(i) * kBlockPositions;
    if (used < kBlockPositions) clear_behind(block, used, origin.block_stretches);
    KIPP_TRY(out.write(std::span<const std::byte>(block)));
  }
  return out.commit();
}

Result<SessionFile> SessionFile::open(const std::string& path, const SessionOrigin& expected) {
  KIPP_TRY_ASSIGN(mapping, MmapFile::open(path));
  const auto bytes = mapping->bytes();
  SessionFileHeader header;
  if (bytes.size() < sizeof header + kChecksumBytes) {
    return fail(ErrorCode::refused, "{}: expected at least {} bytes of a saved session, found {}",
                path, sizeof header + kChecksumBytes, bytes.size());
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic) {
    return fail(ErrorCode::refused, "{}: expected a saved session, found another kind of file",
                path);
  }
  if (header.version != kSessionFileVersion) {
    return fail(ErrorCode::refused, "{}: expected version {} of a saved session, found {}", path,
                kSessionFileVersion, header.version);
  }
  KIPP_TRY(check_whole(path, bytes, header));
  KIPP_TRY(check_origin(path, header, header_of(expected, header.tokens, header.logits)));

  SessionFile file;
  auto rest = bytes.subspan(sizeof header);
  const auto take = [&rest](std::size_t n) {
    const auto taken = rest.first(n);
    rest = rest.subspan(n);
    return taken;
  };
  file.tokens_ = copied<Token>(take(header.tokens * sizeof(Token)));
  file.logits_ = copied<float>(take(header.logits * sizeof(float)));
  file.blocks_ = rest.first(rest.size() - kChecksumBytes);
  file.block_bytes_ = expected.block_bytes;
  KIPP_TRY(validate_tokens(file.tokens_, "tokens of the saved session"));
  file.mapping_ = std::move(mapping);
  return file;
}

std::span<const std::byte> SessionFile::block(int i) const {
  return blocks_.subspan(static_cast<std::size_t>(i) * block_bytes_, block_bytes_);
}

}  // namespace kipp
