// Parses the structure of a GGUF v3 file straight from its bytes: header, metadata, tensor table.
// Every length is checked against the bytes that are left before anything is allocated or skipped,
// and each byte is parsed once. It knows no keys and no names: what they must be is artifact.cc's
// affair.
//
// Refused here: another magic, version or byte order; more keys, tensors or array elements than any
// kipp artifact has; names that are empty, over-long, repeated or not plain ASCII; unknown value
// types, nested arrays, booleans other than 0 and 1; dimensions that are zero or multiply beyond 63
// bits; a file that ends early.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "model/gguf.h"

namespace kipp {

struct GgufValue {
  std::string_view key;
  GgufType type = GgufType::u8;
  std::uint64_t bits = 0;  // scalars: the stored bytes, zero-extended
  std::string_view text;   // strings

  // Arrays.
  GgufType element = GgufType::u8;
  std::uint64_t count = 0;
  std::span<const std::byte> raw;   // all elements as stored, string lengths included
  std::vector<std::uint32_t> ends;  // string arrays: where in `raw` each element ends

  std::string_view element_text(std::size_t i) const;
};

struct GgufTensor {
  std::string_view name;
  std::uint32_t type = 0;  // a ggml type number, known to kipp or not
  std::uint32_t n_dims = 0;
  std::array<std::uint64_t, 4> dims = {1, 1, 1, 1};  // the first one is contiguous
  std::uint64_t offset = 0;                          // into the data section
};

struct Gguf {
  std::vector<GgufValue> values;
  std::vector<GgufTensor> tensors;
  std::uint64_t table_end = 0;  // the data section begins at the next multiple of the alignment

  const GgufValue* find(std::string_view key) const;
};

Result<Gguf> read_gguf(std::span<const std::byte> file);

// For messages: "u32 28", "string \"qwen2\"", "array of 3 strings".
std::string describe(const GgufValue& value);
// Quotes text from a file: what is not printable ASCII is escaped, what is long is cut.
std::string quote(std::string_view text);

}  // namespace kipp
