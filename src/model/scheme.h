// How the matrices of a layer are stored, and the bytes of a row. Apart from weights.h for the sake
// of the kernels of the CUDA backend (base/ids.h says why).
#pragma once

#include <cstddef>
#include <cstdint>

namespace kipp {

// How the seven projections of a layer are stored. Everything else is BF16 (norms: F32 holding BF16
// values).
enum class Scheme : std::uint8_t { bf16, q8_0, affine4_gs32, scale4_gs32 };

inline constexpr int kQuantBlock = 32;  // weights of one row that share a scale

// Bytes of one row of `cols` weights; cols must be a multiple of kQuantBlock unless the scheme is
// bf16.
constexpr std::size_t row_bytes(Scheme scheme, int cols) {
  const auto n = static_cast<std::size_t>(cols);
  switch (scheme) {
    case Scheme::bf16:
      return n * 2;
    case Scheme::q8_0:
      return n / kQuantBlock * 34;
    case Scheme::affine4_gs32:
      return n / kQuantBlock * 20;
    case Scheme::scale4_gs32:
      return n / kQuantBlock * 18;
  }
  return 0;
}

}  // namespace kipp
