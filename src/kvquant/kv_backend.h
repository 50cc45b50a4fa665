// The stability seam: what a device does for the cache. A backend may be rewritten freely behind
// these two calls, as long as differential.h finds its codes and parameters equal to those of
// CpuRefBackend.
#pragma once

#include <span>

#include "kvquant/kv_block.h"
#include "kvquant/tiered_policy.h"

namespace kvquant {

class KvBackend {
 public:
  virtual ~KvBackend() = default;

  virtual const char* name() const = 0;

  // Appends rows, [row][head][channel] in FP32, to a block that is not complete, rounding them to
  // BF16; makes the codes when the block becomes complete. k and v hold the same whole number of
  // rows, which must fit the block; its BF16 planes must be there. Elements that are not finite or
  // beyond largest_value() are refused. On an error the block's rows and positions are as they
  // were. Allocates nothing.
  virtual Status quantize_append(const BlockLayout& layout, std::span<const float> k,
                                 std::span<const float> v, KvBlock& block) = 0;

  // Rows [first, first + count) as FP32, [row][head][channel], unrotated, at the tier's widths. k
  // and v have count rows. Refused when a plane the tier needs is not there. Allocates nothing.
  virtual Status dequantize_for_attention(const BlockLayout& layout, const KvBlock& block,
                                          Tier tier, int first, int count, std::span<float> k,
                                          std::span<float> v) = 0;
};

// --- the part of both calls that is the same on every device
// --------------------------------------------------

// Sizes, room in the block and BF16 planes of quantize_append; not the values. On success *rows is
// how many.
Status check_append(const BlockLayout& layout, std::span<const float> k, std::span<const float> v,
                    const KvBlock& block, int* rows);

// The first element of a side that cannot be stored, in a sentence that counts rows from
// first_position.
Status check_values(const BlockLayout& layout, Side side, std::span<const float> rows,
                    int first_position);

// Range, sizes, widths and planes of dequantize_for_attention.
Status check_read(const BlockLayout& layout, const KvBlock& block, Tier tier, int first, int count,
                  std::span<const float> k, std::span<const float> v);

}  // namespace kvquant
