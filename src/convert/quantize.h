// From BF16 rows to the stored schemes, in ggml's block layouts. Scales and biases are chosen among
// FP16 values and codes against exactly those, so that what a decoder computes is what the encoder
// weighed. Deterministic: the bytes of a row depend on its values alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/types.h"
#include "model/weights.h"

namespace kipp {

// Writes row_bytes(scheme, row.size()) bytes. Refuses values that are not finite or whose scale
// FP16 cannot hold; the message names the column, the caller adds tensor and row.
Result<void> encode_row(Scheme scheme, std::span<const std::uint16_t> row,
                        std::span<std::byte> out);

}  // namespace kipp
