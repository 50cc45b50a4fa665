// Synthetic checkpoints: real shapes, random weights, for benchmarks and tests. A weight depends on
// the seed, its tensor's name and its place alone, and is computed without libm, so that every
// compiler, machine and number of threads writes the same bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/types.h"
#include "convert/artifact_writer.h"
#include "model/checkpoints.h"

namespace kipp {

// The shape of `--checkpoint ID` (a pinned id or kipp-demo) or of `--shape` (tiny-tied,
// tiny-untied). The error lists what exists.
Result<const Checkpoint*> find_synthetic(std::string_view name);

// Rows for write_artifact. `threads` changes the speed, never a bit.
RowSource synthetic_rows(const Checkpoint& checkpoint, std::uint64_t seed, int threads);

Result<void> synthesize(const std::string& path, const Checkpoint& checkpoint, std::uint64_t seed,
                        Scheme scheme, const WriteProgress& progress,
                        const std::atomic<bool>* cancel = nullptr);

}  // namespace kipp
