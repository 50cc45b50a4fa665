#include "engine/session_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "backend/kv_policy.h"
#include "base/output_file.h"
#include "model/config.h"
#include "model/step_plan.h"

namespace kipp {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

constexpr std::size_t kChecksumBytes = sizeof(std::uint64_t);
// Far beyond any checkpoint; keeps the arithmetic on what a file claims within 64 bits.
constexpr std::uint64_t kMostBlockBytes = std::uint64_t{1} << 30;

std::uint64_t checksum_of(std::span<const std::byte> part, std::uint64_t before) {
  return XXH3_64bits_withSeed(part.data(), part.size(), before);
}

std::uint64_t checksum_of(const SessionFileHeader& header) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  return checksum_of(bytes.first(bytes.size() - kChecksumBytes), 0);
}

template <class T>
std::size_t bytes_of(std::uint64_t count) {
  return static_cast<std::size_t>(count) * sizeof(T);
}

// With the checksum behind it, as every part has one.
template <class T>
std::uint64_t part_bytes(std::uint64_t count) {
  return bytes_of<T>(count) + kChecksumBytes;
}

// As a std::string_view, which ends before the first zero.
template <std::size_t N>
std::string_view text_of(const std::array<char, N>& text) {
  const std::string_view all(text.data(), text.size());
  return all.substr(0, all.find('\0'));
}

template <std::size_t N>
Result<void> set_text(std::array<char, N>& out, std::string_view field, std::string_view text) {
  if (text.size() >= N) {
    return fail(ErrorCode::invalid,
                "{}: expected at most {} bytes of text in the file of a session, found {}", field,
                N - 1, text.size());
  }
  std::ranges::copy(text, out.begin());
  return {};
}

Result<SessionFileHeader> header_of(const SessionOrigin& origin) {
  SessionFileHeader header{};
  header.magic = kSessionMagic;
  header.version = kSessionFileVersion;
  header.block_positions = kBlockPositions;
  KIPP_TRY(set_text(header.checkpoint, "checkpoint", origin.checkpoint));
  KIPP_TRY(set_text(header.source, "source", origin.source));
  KIPP_TRY(set_text(header.scheme, "scheme", origin.scheme));
  KIPP_TRY(set_text(header.backend, "backend", origin.backend));
  KIPP_TRY(set_text(header.kv, "KV policy", origin.kv));
  return header;
}

// Writes parts, each with its checksum.
class PartWriter {
 public:
  PartWriter(OutputFile file, std::uint64_t total, const ByteProgress& progress)
      : file_(std::move(file)), total_(total), progress_(progress) {}

  Result<void> begin(const SessionFileHeader& header) {
    checksum_ = header.checksum;
    return file_.write(std::as_bytes(std::span(&header, 1)));
  }
  Result<void> write(std::span<const std::byte> part) {
    KIPP_TRY(file_.write(part));
    checksum_ = checksum_of(part, checksum_);
    KIPP_TRY(file_.write(std::as_bytes(std::span(&checksum_, 1))));
    if (progress_) progress_(file_.written(), total_);
    return {};
  }
  Result<void> commit() { return file_.commit(); }

 private:
  OutputFile file_;
  std::uint64_t checksum_ = 0;
  std::uint64_t total_;
  const ByteProgress& progress_;
};

// Takes a file apart and checks each part as it is taken.
class PartReader {
 public:
  PartReader(std::string_view name, std::span<const std::byte> file, const ByteProgress& progress)
      : name_(name), rest_(file), total_(file.size()), progress_(progress) {}

  Result<SessionFileHeader> header() {
    SessionFileHeader header;
    if (rest_.size() < sizeof header) {
      return fail(ErrorCode::refused, "{}: expected at least {} bytes of a saved session, found {}",
                  name_, sizeof header, rest_.size());
    }
    std::memcpy(&header, rest_.data(), sizeof header);
    if (header.magic != kSessionMagic) {
      return fail(ErrorCode::refused, "{}: expected a saved session, found another kind of file",
                  name_);
    }
    if (header.version != kSessionFileVersion) {
      return fail(ErrorCode::refused, "{}: expected version {} of a saved session, found {}", name_,
                  kSessionFileVersion, header.version);
    }
    KIPP_TRY(check("header", checksum_of(header), header.checksum));
    checksum_ = header.checksum;
    rest_ = rest_.subspan(sizeof header);
    return header;
  }

  Result<std::span<const std::byte>> take(std::string_view what, std::uint64_t bytes) {
    if (rest_.size() < kChecksumBytes || rest_.size() - kChecksumBytes < bytes) {
      return fail(ErrorCode::refused, "{}: {}: expected {} bytes and a checksum, found {} bytes",
                  name_, what, bytes, rest_.size());
    }
    const auto part = rest_.first(static_cast<std::size_t>(bytes));
    std::uint64_t promised = 0;
    std::memcpy(&promised, part.data() + part.size(), sizeof promised);
    KIPP_TRY(check(what, checksum_of(part, checksum_), promised));
    checksum_ = promised;
    rest_ = rest_.subspan(part.size() + kChecksumBytes);
    if (progress_) progress_(total_ - rest_.size(), total_);
    return part;
  }
  std::size_t left() const { return rest_.size(); }

 private:
  Result<void> check(std::string_view what, std::uint64_t found, std::uint64_t promised) const {
    if (found == promised) return {};
    return fail(ErrorCode::refused,
                "{}: {}: expected the checksum {:016x}, found {:016x}: the session is damaged",
                name_, what, promised, found);
  }

  std::string_view name_;
  std::span<const std::byte> rest_;
  std::uint64_t total_;
  std::uint64_t checksum_ = 0;
  const ByteProgress& progress_;
};

// That every block has.
std::uint32_t common_planes(std::span<const BlockPart> blocks) {
  if (blocks.empty()) return 0;
  std::uint32_t planes = blocks[0].planes;
  for (const BlockPart& block : blocks) planes &= block.planes;
  return planes;
}

template <class T>
std::vector<T> copied(std::span<const std::byte> bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// Of a header whose checksum is right: what is not so was written by another program.
Result<void> check_numbers(std::string_view name, const SessionFileHeader& h,
                           std::size_t file_bytes) {
  if (h.file_bytes != file_bytes) {
    return fail(ErrorCode::refused, "{}: expected {} tokens to take {} bytes, found {} bytes", name,
                h.tokens, h.file_bytes, file_bytes);
  }
  const std::uint64_t all = (std::uint64_t{h.tokens} + kBlockPositions - 1) / kBlockPositions;
  if (h.block_positions != kBlockPositions || h.first_block > all ||
      h.blocks != all - h.first_block ||
      (h.logits != 0 && (h.logits != kVocabRows || h.tokens == 0))) {
    return fail(ErrorCode::refused,
                "{}: expected blocks of {} positions for {} tokens and {} logits or none, found {} "
                "of {} from block {} on and {}",
                name, kBlockPositions, h.tokens, kVocabRows, h.blocks, h.block_positions,
                h.first_block, h.logits);
  }
  return {};
}

void clear_rows_behind(std::span<std::byte> rows, std::size_t positions, std::size_t stretch) {
  const std::size_t kept = stretch / kBlockPositions * positions;
  for (std::size_t at = 0; at < rows.size(); at += stretch) {
    std::ranges::fill(rows.subspan(at + kept, stretch - kept), std::byte{0});
  }
}

// What a block holds behind its last position belongs to whoever had the block before. In each of
// the block's stretches, [kBlockPositions] rows of kHeadDim elements, only the first are kept; of a
// tiered block that is not complete nothing but BF16 rows means anything.
void clear_behind(std::span<std::byte> block, PlaneBits planes, std::size_t positions,
                  const SessionOrigin& origin) {
  if (origin.plane_units.empty()) {
    return clear_rows_behind(block, positions, block.size() / origin.block_stretches);
  }
  std::size_t at = 0;
  for (std::size_t bit = 0; bit < origin.plane_units.size(); ++bit) {
    if ((planes >> bit & 1) == 0) continue;
    const auto bytes = static_cast<std::size_t>(origin.plane_units[bit]) * kKvUnitBytes;
    const auto plane = block.subspan(at, bytes);
    const bool rows = bit % kvquant::kPlanes == static_cast<std::size_t>(kvquant::Plane::bf16);
    clear_rows_behind(plane, rows ? positions : 0, kKvUnitBytes);
    at += bytes;
  }
  std::ranges::fill(block.subspan(at), std::byte{0});  // scales and offsets of no codes
}

}  // namespace

std::uint64_t session_file_bytes(const SessionContents& contents) {
  std::uint64_t bytes = sizeof(SessionFileHeader) + part_bytes<Token>(contents.tokens.size()) +
                        part_bytes<float>(contents.logits.size()) +
                        part_bytes<BlockPart>(contents.blocks.size());
  for (const BlockPart& part : contents.blocks) bytes += part_bytes<std::byte>(part.bytes);
  return bytes;
}

Result<void> write_session_file(const std::string& path, const SessionOrigin& origin,
                                const SessionContents& contents, const ReadBlock& read_block,
                                const ByteProgress& progress) {
  KIPP_TRY_ASSIGN(header, header_of(origin));
  header.salt = contents.salt;
  header.before = contents.before;
  header.tokens = static_cast<std::uint32_t>(contents.tokens.size());
  header.logits = static_cast<std::uint32_t>(contents.logits.size());
  header.first_block = static_cast<std::uint32_t>(contents.first_block);
  header.blocks = static_cast<std::uint32_t>(contents.blocks.size());
  header.file_bytes = session_file_bytes(contents);
  header.planes = common_planes(contents.blocks);
  header.checksum = checksum_of(header);

  KIPP_TRY_ASSIGN(file, OutputFile::create(path, header.file_bytes));
  PartWriter out(std::move(file), header.file_bytes, progress);
  KIPP_TRY(out.begin(header));
  KIPP_TRY(out.write(std::as_bytes(contents.tokens)));
  KIPP_TRY(out.write(std::as_bytes(contents.logits)));
  KIPP_TRY(out.write(std::as_bytes(contents.blocks)));
  std::vector<std::byte> block;
  for (int i = 0; const BlockPart& part : contents.blocks) {
    block.resize(static_cast<std::size_t>(part.bytes));
    KIPP_TRY(read_block(i, block));
    const std::size_t used = contents.tokens.size() -
                             static_cast<std::size_t>(contents.first_block + i) * kBlockPositions;
    if (used < kBlockPositions) {
      clear_behind(block, static_cast<PlaneBits>(part.planes), used, origin);
    }
    KIPP_TRY(out.write(block));
    ++i;
  }
  return out.commit();
}

Result<SessionFileHeader> read_session_header(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(ErrorCode::io, "{}: cannot open: {}", path, std::strerror(errno));
  SessionFileHeader header;
  const ssize_t n = ::pread(fd, &header, sizeof header, 0);
  const int reason = errno;
  ::close(fd);
  if (n < 0) return fail(ErrorCode::io, "{}: cannot read: {}", path, std::strerror(reason));
  const auto bytes = std::as_bytes(std::span(&header, 1)).first(static_cast<std::size_t>(n));
  return PartReader(path, bytes, {}).header();
}

Result<void> check_origin(std::string_view name, const SessionFileHeader& header,
                          const SessionOrigin& expected) {
  struct Field {
    const char* name;
    std::string_view expected;
    std::string_view found;
  };
  const Field fields[] = {{"checkpoint", expected.checkpoint, text_of(header.checkpoint)},
                          {"source", expected.source, text_of(header.source)},
                          {"scheme", expected.scheme, text_of(header.scheme)},
                          {"KV policy", expected.kv, text_of(header.kv)},
                          {"backend", expected.backend, text_of(header.backend)}};
  for (const Field& field : fields) {
    if (field.found == field.expected) continue;
    return fail(ErrorCode::refused, "{}: {}: expected a session of {}, found one of {}", name,
                field.name, field.expected, field.found);
  }
  return {};
}

Result<SessionFile> SessionFile::parse(std::string_view name, std::span<const std::byte> bytes,
                                       const ByteProgress& progress) {
  SessionFile file;
  PartReader parts(name, bytes, progress);
  KIPP_TRY_ASSIGN(header, parts.header());
  file.header_ = header;
  KIPP_TRY(check_numbers(name, header, bytes.size()));
  KIPP_TRY_ASSIGN(tokens, parts.take("tokens", bytes_of<Token>(header.tokens)));
  file.tokens_ = copied<Token>(tokens);
  KIPP_TRY(validate_tokens(file.tokens_, "tokens of the saved session"));
  KIPP_TRY_ASSIGN(logits, parts.take("logits", bytes_of<float>(header.logits)));
  file.logits_ = copied<float>(logits);
  KIPP_TRY_ASSIGN(table, parts.take("table of blocks", bytes_of<BlockPart>(header.blocks)));
  file.parts_ = copied<BlockPart>(table);
  file.blocks_.reserve(file.parts_.size());
  for (const BlockPart& part : file.parts_) {
    if (part.bytes > kMostBlockBytes || part.planes >> kMaxPlanes != 0 || part.reserved != 0) {
      return fail(ErrorCode::refused,
                  "{}: table of blocks: expected at most {} bytes of {} planes, found {} of {:#x}",
                  name, kMostBlockBytes, kMaxPlanes, part.bytes, part.planes);
    }
    KIPP_TRY_ASSIGN(block, parts.take(fmt::format("block {}", file.blocks_.size()), part.bytes));
    file.blocks_.push_back(block);
  }
  if (parts.left() != 0 || header.planes != common_planes(file.parts_)) {
    return fail(ErrorCode::refused,
                "{}: expected the end of the file behind blocks with planes {:#x}, found {} bytes "
                "and planes {:#x}",
                name, header.planes, parts.left(), common_planes(file.parts_));
  }
  return file;
}

Result<SessionFile> SessionFile::open(const std::string& path, const ByteProgress& progress) {
  KIPP_TRY_ASSIGN(mapping, MmapFile::open(path));
  KIPP_TRY_ASSIGN(file, parse(path, mapping->bytes(), progress));
  file.mapping_ = std::move(mapping);
  return std::move(file);
}

Result<SessionFile> SessionFile::open(const std::string& path, const SessionOrigin& expected,
                                      const ByteProgress& progress) {
  KIPP_TRY_ASSIGN(file, open(path, progress));
  KIPP_TRY(check_origin(path, file.header_, expected));
  return std::move(file);
}

Result<void> SessionFile::check_session(std::string_view name, const BytesOfPlanes& bytes) const {
  if (header_.first_block != 0) {
    return fail(ErrorCode::refused,
                "{}: expected all blocks of a session, found a stored prefix from block {} on",
                name, header_.first_block);
  }
  return check_blocks(name, bytes);
}

Result<void> SessionFile::check_blocks(std::string_view name, const BytesOfPlanes& bytes) const {
  for (int i = 0; const BlockPart& part : parts_) {
    const auto expected = bytes(i, static_cast<PlaneBits>(part.planes));
    if (!expected) {
      return fail(ErrorCode::refused,
                  "{}: block {}: expected planes that its KV policy has, found {:#x}", name, i,
                  part.planes);
    }
    if (part.bytes != *expected) {
      return fail(ErrorCode::refused, "{}: block {}: expected {} bytes, found {}", name, i,
                  *expected, part.bytes);
    }
    ++i;
  }
  return {};
}

SessionOrigin SessionFile::origin() const {
  return {.checkpoint = std::string(text_of(header_.checkpoint)),
          .source = std::string(text_of(header_.source)),
          .scheme = std::string(text_of(header_.scheme)),
          .kv = std::string(text_of(header_.kv)),
          .backend = std::string(text_of(header_.backend))};
}

}  // namespace kipp
