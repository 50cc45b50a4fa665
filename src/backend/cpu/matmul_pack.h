// From the artifact's rows to panels. The bytes of a weight stay as they are; they only move.
#pragma once

#include <cstddef>

#include "model/weights.h"

namespace kipp::cpu {

// Packs blocks [begin, end) of one panel, the first of them to `out`. Rows past the last are zero.
void pack_blocks(const StackedMatrix& matrix, int panel, int begin, int end, std::byte* out);

}  // namespace kipp::cpu
