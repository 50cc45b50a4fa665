// A session on disk: its tokens, the blocks that hold their keys and values, and the last logits,
// so that what was computed once need not be computed again. A part of one, some blocks of a long
// prefix, is the same file with fewer blocks (engine/session_store.h). The file appears whole or
// not at all.
//
// Refused, with nothing changed: what is no such file, another version, a length that is not the
// promised one, any damage, and a session of another checkpoint, source, scheme, KV policy or
// backend, because its keys and values would not be those that this model computes, and the blocks
// of a restored session are shared with others.
//
//     Header, below, whose last 8 bytes are its checksum         little-endian throughout
//     tokens                              i32[tokens]            checksum
//     logits of the last token            f32[logits]            checksum
//     what each block holds               BlockPart[blocks]      checksum
//     the blocks, in the order of positions, each of BlockPart::bytes as Backend::read_block gives
//     them, zeros for positions that the last one does not use   checksum each
//
// A checksum is the XXH3-64 of the part before it, seeded with the checksum before that (the
// header's with none), so that no part can change places with another of the same or another file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mmap_file.h"
#include "base/types.h"

namespace kipp {

inline constexpr std::array<char, 8> kSessionMagic = {'K', 'I', 'P', 'P', 'S', 'E', 'S', 'S'};
inline constexpr std::uint32_t kSessionFileVersion = 2;

// Whose keys and values they are.
struct SessionOrigin {
  std::string checkpoint;  // its id
  std::string source;      // 32 hex digits: a hash of what the artifact was made from
  std::string scheme;
  std::string kv;       // the KV policy
  std::string backend;  // two backends do not compute the same bits
  std::size_t block_bytes = 0;
  // Runs of kBlockPositions rows of one head that make up a block: layers x (k, v) x heads.
  std::size_t block_stretches = 0;
  // Of a tiered store: units of kKvUnitBytes of each plane, as KvPolicy::units_by_plane() says.
  std::vector<int> plane_units = {};
};

// What is on disk before the tokens. Texts end with zeros, at least one.
struct SessionFileHeader {
  using Text = std::array<char, 64>;
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t block_positions;
  Text checkpoint;
  Text source;
  Text scheme;
  Text backend;
  std::array<char, 256> kv;
  std::uint64_t file_bytes;
  std::uint64_t salt;  // of a stored prefix: who may find it; 0 in a session's file
  std::uint64_t
      before;  // of a stored prefix: the chain hash of the blocks that are not in the file
  std::uint32_t planes;  // PlaneBits that every block has
  std::uint32_t tokens;
  std::uint32_t logits;       // kVocabRows or none
  std::uint32_t first_block;  // the file has the blocks from this one on; 0 in a session's file
  std::uint32_t blocks;       // ceil(tokens / kBlockPositions) - first_block
  std::uint32_t reserved;
  std::uint64_t checksum;
};
static_assert(sizeof(SessionFileHeader) == 584 && alignof(SessionFileHeader) == 8);

// The planes of blocks that have no planes.
inline constexpr PlaneBits kWholeBlock = 1;

struct BlockPart {
  std::uint64_t bytes = 0;
  std::uint32_t planes = 0;  // PlaneBits
  std::uint32_t reserved = 0;
};
static_assert(sizeof(BlockPart) == 16);

// What goes into a file beside the blocks' bytes.
struct SessionContents {
  std::span<const Token> tokens;
  std::span<const float> logits;
  std::span<const BlockPart> blocks;  // blocks_for(tokens) - first_block
  int first_block = 0;
  std::uint64_t salt = 0;
  std::uint64_t before = 0;
};

// Fills `out`, BlockPart::bytes, with the bytes of the i-th of SessionContents::blocks.
using ReadBlock = std::function<Result<void>(int i, std::span<std::byte> out)>;
// Bytes done, of how many.
using ByteProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// What the file will take.
std::uint64_t session_file_bytes(const SessionContents& contents);

Result<void> write_session_file(const std::string& path, const SessionOrigin& origin,
                                const SessionContents& contents, const ReadBlock& read_block,
                                const ByteProgress& progress = {});

// The header alone, to know what a file claims to be before its blocks are read: magic, version and
// its own checksum are right.
Result<SessionFileHeader> read_session_header(const std::string& path);

// Refuses what is not of `expected`.
Result<void> check_origin(std::string_view name, const SessionFileHeader& header,
                          const SessionOrigin& expected);

class SessionFile {
 public:
  // Maps the file and checks all of it; reads every byte once. Without `expected`, to look at it.
  static Result<SessionFile> open(const std::string& path, const ByteProgress& progress = {});
  static Result<SessionFile> open(const std::string& path, const SessionOrigin& expected,
                                  const ByteProgress& progress = {});
  // The same of bytes in memory, which must outlive it; `name` stands for the path.
  static Result<SessionFile> parse(std::string_view name, std::span<const std::byte> bytes,
                                   const ByteProgress& progress = {});

  // Refuses blocks of other sizes than `bytes` says that the i-th one with these planes has
  // (nothing: it cannot have these), and check_session() what is no session but a part of a prefix.
  using BytesOfPlanes = std::function<std::optional<std::size_t>(int i, PlaneBits planes)>;
  Result<void> check_session(std::string_view name, const BytesOfPlanes& bytes) const;
  Result<void> check_blocks(std::string_view name, const BytesOfPlanes& bytes) const;

  const SessionFileHeader& header() const { return header_; }
  SessionOrigin origin() const;  // what the header says; sizes of blocks it does not
  const std::vector<Token>& tokens() const { return tokens_; }
  const std::vector<float>& logits() const { return logits_; }
  int blocks() const { return static_cast<int>(parts_.size()); }
  const BlockPart& part(int i) const { return parts_[static_cast<std::size_t>(i)]; }
  std::span<const std::byte> block(int i) const { return blocks_[static_cast<std::size_t>(i)]; }

 private:
  std::shared_ptr<const MmapFile> mapping_;  // none of bytes in memory
  SessionFileHeader header_;
  std::vector<Token> tokens_;
  std::vector<float> logits_;
  std::vector<BlockPart> parts_;
  std::vector<std::span<const std::byte>> blocks_;
};

}  // namespace kipp
