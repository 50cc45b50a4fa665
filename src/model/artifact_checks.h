// The checks that make a parsed GGUF an artifact of one registry entry. Each one refuses with the
// field, what was expected and what was found; artifact.cc runs them in order, because each may
// rely on those before it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "model/artifact.h"
#include "model/gguf_reader.h"

namespace kipp {

// A short printable string, or a refusal that tells where artifacts come from.
Result<std::string_view> identity_text(const Gguf& gguf, std::string_view key);

// Every expected key with its one value, and no other key.
Result<void> check_metadata(const Gguf& gguf, const Checkpoint& entry,
                            std::span<const MetadataEntry> expected);

// Tokens, their types and merges are Qwen's, byte for byte.
Result<void> check_vocabulary(const Gguf& gguf);

// Every listed file is one of the entry's with its pinned hash, and all of its weights are listed.
Result<std::vector<SourceFile>> check_source_files(const Gguf& gguf, const Checkpoint& entry);

// Names as a set, in any order; shapes and types exactly. Offsets are still relative and unchecked.
Result<std::vector<StoredTensor>> match_tensors(const Gguf& gguf, const ModelConfig& config,
                                                Scheme scheme);

// Sorts by offset, and fills in file offsets and data. The tensors must tile the data section: each
// begins at the first aligned byte after the one before, and the file ends with the last.
Result<void> place_tensors(std::span<const std::byte> file, std::uint64_t table_end, Scheme scheme,
                           std::vector<StoredTensor>& tensors);

// A norm is F32 for ggml's sake only: its values are the checkpoint's BF16 ones, and finite.
Result<void> check_norms(std::span<const StoredTensor> tensors);

std::span<const float> norm_values(const StoredTensor& tensor);  // [cols]

}  // namespace kipp
