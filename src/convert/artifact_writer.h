// Writes kipp artifacts: GGUF v3, little-endian, one file per checkpoint and scheme. Equal weights
// always give equal bytes, whatever the number of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/types.h"
#include "model/checkpoints.h"
#include "model/weights.h"

namespace kipp {

// Where the artifact comes from, written into its kipp.source.* keys.
struct ArtifactSource {
  std::string repository;
  std::string revision;
  // name -> SHA-256 of each source file (empty for the demo and for synthetic twins)
  std::vector<std::pair<std::string, std::string>> files;
};

// Produces rows [first_row, first_row + n_rows) of a tensor in BF16 (as 16-bit patterns) into `out`
// (n_rows * cols values). `name` is the GGUF name ("blk.0.attn_q.weight"); 1-D norms are one row.
// Called from one thread, each row once, in file order.
using RowSource = std::function<Result<void>(std::string_view name, int first_row, int n_rows,
                                             int cols, std::span<std::uint16_t> out)>;

// Called with bytes written so far and in all.
using WriteProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Writes to `path`.partial and renames when whole; an error, also one from `rows`, removes it.
// Checks free disk space first. Values that are not finite are refused with tensor and row.
// `cancel` set to true stops within one chunk with ErrorCode::interrupted.
Result<void> write_artifact(const std::string& path, const Checkpoint& checkpoint, Scheme scheme,
                            const ArtifactSource& source, const RowSource& rows,
                            const WriteProgress& progress,
                            const std::atomic<bool>* cancel = nullptr);

}  // namespace kipp
