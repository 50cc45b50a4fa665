// Qwen's split pattern as a hand-written scanner: cuts normalized text into the pieces that merges
// never cross.
//
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|
//   ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// as Oniguruma, the regular expression engine of `tokenizers`, understands it. The pieces join to
// the text.
#pragma once

#include <cstddef>
#include <string_view>

namespace kipp {

// Where the piece that begins at `begin` ends; begin < text.size(). Walking a whole text takes
// linear time.
std::size_t piece_end(std::string_view text, std::size_t begin);

}  // namespace kipp
