// A session on disk: its tokens, the blocks that hold their keys and values, and the last logits,
// so that what was computed once need not be computed again. The file appears whole or not at all.
//
// Refused, with nothing changed: what is no such file, another version, a length that is not the
// promised one, any damage (XXH3 over everything before it), and a session of another checkpoint,
// source, scheme, KV policy or backend, because its keys and values would not be those that this
// model computes, and the blocks of a restored session are shared with others.
//
//     0    Header, below                       block_positions = 32, little-endian throughout
//          tokens                              i32[tokens]
//          logits of the last token            f32[logits]: kVocabRows of them or none
//          blocks, in the order of positions   ceil(tokens / 32) of block_bytes each, as
//                                              Backend::read_block gives them; zeros for positions
//                                              that the last block does not use
//          XXH3-64 of all bytes before         u64
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mmap_file.h"
#include "base/types.h"

namespace kipp {

inline constexpr std::uint32_t kSessionFileVersion = 1;

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
};

// What is on disk before the tokens. Texts end with zeros, at least one.
struct SessionFileHeader {
  using Text = std::array<char, 64>;
  std::array<char, 8> magic;  // "KIPPSESS"
  std::uint32_t version;
  std::uint32_t block_positions;
  Text checkpoint;
  Text source;
  Text scheme;
  Text kv;
  Text backend;
  std::uint64_t block_bytes;
  std::uint32_t tokens;
  std::uint32_t logits;
};
static_assert(sizeof(SessionFileHeader) == 352 && alignof(SessionFileHeader) == 8);

// Fills `out`, origin.block_bytes, with the bytes of the sequence's i-th block.
using ReadBlock = std::function<Result<void>(int i, std::span<std::byte> out)>;

Result<void> write_session_file(const std::string& path, const SessionOrigin& origin,
                                std::span<const Token> tokens, std::span<const float> logits,
                                const ReadBlock& read_block);

class SessionFile {
 public:
  // Maps the file and checks all of it. Reads every byte once.
  static Result<SessionFile> open(const std::string& path, const SessionOrigin& expected);

  const std::vector<Token>& tokens() const { return tokens_; }
  const std::vector<float>& logits() const { return logits_; }
  std::span<const std::byte> block(int i) const;

 private:
  std::shared_ptr<const MmapFile> mapping_;
  std::vector<Token> tokens_;
  std::vector<float> logits_;
  std::span<const std::byte> blocks_;
  std::size_t block_bytes_ = 0;
};

}  // namespace kipp
