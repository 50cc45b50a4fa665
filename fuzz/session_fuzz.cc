// The reader of saved sessions on arbitrary bytes. The mutator mends the checksums that random
// changes break, part by part as far as the sizes in the header say where they are, so that the
// checks behind them are reached. Whatever the bytes: they are refused with a sentence, or they are
// a session that can be written and reads the same.
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "engine/session_file.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

using kipp::BlockPart;
using kipp::SessionFile;
using kipp::SessionFileHeader;

void check(bool holds) {
  if (!holds) std::abort();
}

// What a part of so many bytes at `at` has behind it becomes its checksum; where the next one is,
// or the end of the data.
std::size_t mend_part(std::span<std::uint8_t> data, std::size_t at, std::uint64_t bytes,
                      std::uint64_t& seed) {
  if (at > data.size() || data.size() - at < 8 || data.size() - at - 8 < bytes) return data.size();
  const auto n = static_cast<std::size_t>(bytes);
  seed = XXH3_64bits_withSeed(data.data() + at, n, seed);
  std::memcpy(data.data() + at + n, &seed, sizeof seed);
  return at + n + sizeof seed;
}

void mend(std::span<std::uint8_t> data) {
  SessionFileHeader header;
  if (data.size() < sizeof header) return;
  std::memcpy(&header, data.data(), sizeof header);
  header.magic = kipp::kSessionMagic;
  header.version = kipp::kSessionFileVersion;
  header.file_bytes = data.size();
  header.checksum = XXH3_64bits(&header, sizeof header - sizeof header.checksum);
  std::memcpy(data.data(), &header, sizeof header);
  std::uint64_t seed = header.checksum;
  std::size_t at = mend_part(data, sizeof header, std::uint64_t{header.tokens} * 4, seed);
  at = mend_part(data, at, std::uint64_t{header.logits} * 4, seed);
  const std::size_t table = at;
  at = mend_part(data, at, std::uint64_t{header.blocks} * sizeof(BlockPart), seed);
  for (std::uint32_t i = 0; i < header.blocks && at < data.size(); ++i) {
    BlockPart part;
    std::memcpy(&part, data.data() + table + i * sizeof part, sizeof part);
    at = mend_part(data, at, part.bytes, seed);
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 8 != 0) mend({data, size});
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = SessionFile::parse("fuzz", bytes);
  if (!file) {
    check(file.error().message.size() > 20);
    return 0;
  }
  check(file->header().file_bytes == size);
  check(file->tokens().size() == file->header().tokens);
  std::uint64_t sum = 0;
  for (int i = 0; i < file->blocks(); ++i) {
    check(file->block(i).size() == file->part(i).bytes);
    for (const std::byte b : file->block(i)) sum += static_cast<std::uint64_t>(b);
  }
  check(sum <= size * 255);
  check(kipp::check_origin("fuzz", file->header(), file->origin()).has_value());
  return 0;
}
