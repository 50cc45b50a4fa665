// Differential testing: the same generated rows through a backend and through the scalar oracle.
// Codes, parameters and refusals must be equal bit for bit; dequantized values may differ by no
// more than the caller allows. Every backend that wants to be trusted is run through this, on every
// device it has.
#pragma once

#include <cstdint>

#include "kvquant/kv_backend.h"

namespace kvquant {

enum class Input : std::uint8_t {
  gaussian,
  laplace,
  heavy_tail,  // Student's t with two degrees of freedom
  outlier_channel,
  constant_rows,
  shifted,  // a small spread around a large mean
  zeros,
  denormals,
  largest,      // plus and minus the largest value the scheme takes
  mixed_scale,  // each row of another power of ten
  not_finite,   // one NaN, infinity or value beyond the largest: both must refuse, and change
                // nothing
};
constexpr int kInputs = 11;

const char* name_of(Input input);

// Fills rows of `shape.row()` elements; a function of its arguments alone. `scheme` bounds the
// magnitudes.
void generate(Input input, std::uint64_t seed, const KvShape& shape, const QuantScheme& scheme,
              std::span<float> rows);

struct DifferentialConfig {
  KvShape shape;
  KvScheme scheme;
  std::uint64_t seed = 1;
  int blocks_per_input = 4;  // each appended in pieces of varying size
  float largest_difference =
      0;  // allowed between dequantized values, as a share of the row's largest magnitude
};

// The place where a backend and the oracle differ most. `agrees` sums it up.
struct DifferentialReport {
  bool agrees = true;
  std::uint64_t elements = 0;  // compared, over all inputs and widths

  // What differs first in the order of gravity: refusals, then stored bytes, then values.
  Input input = Input::gaussian;
  Side side = Side::key;
  BitWidth width = BitWidth::bf16;  // of the read; of the codes for stored bytes
  int position = 0, head = 0, channel = 0;
  double expected = 0, found = 0;
  double difference =
      0;  // as a share of the row's largest magnitude; infinite for bytes and refusals
  char what[192] = {};  // one sentence; empty where all is equal
};

// Runs every input at every width the scheme can be read at. Allocates scratch. An error means that
// it could not run; a disagreement is in the report.
Status run_differential(KvBackend& candidate, const DifferentialConfig& config,
                        DifferentialReport& report);

}  // namespace kvquant
