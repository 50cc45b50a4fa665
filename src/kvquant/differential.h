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
  zeros,    // of both signs
  denormals,
  largest,      // plus and minus the largest value the scheme takes
  mixed_scale,  // each row of another power of ten
  not_finite,   // one NaN, infinity or value beyond the largest: both must refuse, and change
                // nothing
};
constexpr int kInputs = 11;

const char* name_of(Input input);

// The generator behind all inputs: SplitMix64's mixing of key + (counter + 1) * 2^64 / golden
// ratio. Any draw can be had without the ones before it, and none depends on the platform.
std::uint64_t draw(std::uint64_t key, std::uint64_t counter);

// Fills rows of `shape.row()` elements; a function of its arguments alone, made of nothing but
// integers and the IEEE operations + - * / and square root, so the same on every platform. A
// longer span begins with what a shorter one holds, except for not_finite: there, seed % 5 chooses
// NaN, either infinity, or either sign of the first float beyond the largest. `scheme` bounds the
// magnitudes.
void generate(Input input, std::uint64_t seed, const KvShape& shape, const QuantScheme& scheme,
              std::span<float> rows);

struct DifferentialConfig {
  KvShape shape;
  KvScheme scheme;
  std::uint64_t seed = 1;

  // The first is appended in bulk, the second row by row, the others in pieces of varying size.
  int blocks_per_input = 4;

  // Allowed between dequantized values, as a share of the largest magnitude of the head's row.
  float largest_difference = 0;
};

// In rising order of gravity.
enum class Disagreement : std::uint8_t {
  none,
  value,    // dequantized, or written past the end of a read
  stored,   // a code, a parameter, a BF16 element, padding, or memory beside the planes
  refusal,  // another error code, or a block that a refused call changed
};

// The place where a backend and the oracle differ most; the first such place where several are
// equal. Stored bytes are reported by their cause: BF16 rows before the parameters made of them,
// those before codes, codes before the fitted int2 pair.
struct DifferentialReport {
  bool agrees = true;
  Disagreement disagreement = Disagreement::none;
  std::uint64_t elements = 0;  // dequantized and compared, over all inputs and widths

  // Of the worst element. A parameter stands at the first element of its group. A refused size or
  // range, which no element is to blame for, stands where the append or the read would begin.
  Input input = Input::gaussian;
  Side side = Side::key;
  BitWidth width = BitWidth::bf16;  // of the read; of the codes for stored bytes
  int position = 0, head = 0, channel = 0;
  double expected = 0, found = 0;  // of a refusal: Code
  double difference = 0;           // as largest_difference; infinite for bytes and refusals
  char what[256] = {};             // one sentence; empty where all is equal
};

// Runs every input at every width the scheme can be read at, into blocks with all planes and with
// some: appends in pieces, reads of whole blocks and parts of them, and calls that must be refused.
// Allocates scratch. An error means that it could not run; a disagreement is in the report.
Status run_differential(KvBackend& candidate, const DifferentialConfig& config,
                        DifferentialReport& report);

}  // namespace kvquant
