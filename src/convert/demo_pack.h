// The packed form in which a checkpoint ships inside this repository, and its way back to a BF16
// artifact. A zstd-compressed safetensors file, smaller than BF16 because it stores what training
// rounded to: matrices as eight-bit codes with one power of two for each row, and only those rows
// of the embedding that occur.
//
//   NAME.codes I8 [rows, cols], NAME.exponents I8 [rows]   weight = code * 2^exponent
//   NAME BF16 [cols]                                       norms
//   model.embed_tokens.weight.rows I32 [n]                 token id of each stored row, ascending;
//                                                          the last is -1: every id not listed
//
// NAME is the Hugging Face name. Refused: any other set of tensors, types or shapes, ids that are
// not tokens, and a finished file whose SHA-256 is not the expected one.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/types.h"
#include "convert/artifact_writer.h"
#include "model/checkpoints.h"

namespace kipp {

// Of the artifact that unpack_demo writes from assets/kipp-demo.safetensors.zst.
inline constexpr std::string_view kDemoArtifactSha256 =
    "5bff80f0b238b89c1d170dabf671dc117ef3e81ef7023672558decf9d23acfda";

// Writes `checkpoint` to `path`, which appears only when the file is whole and its SHA-256 is
// `sha256` (empty: whatever comes out). `revision` goes into the artifact.
Result<void> unpack_checkpoint(std::span<const std::byte> packed, const Checkpoint& checkpoint,
                               std::string_view revision, std::string_view sha256,
                               const std::string& path, const WriteProgress& progress,
                               const std::atomic<bool>* cancel = nullptr);

// The demo checkpoint of the registry, from the asset's bytes.
Result<void> unpack_demo(std::span<const std::byte> packed, const std::string& path,
                         const WriteProgress& progress, const std::atomic<bool>* cancel = nullptr);

}  // namespace kipp
