// A pulled checkpoint into an artifact. Everything that the registry pins is held against the files
// first: sizes, configuration, tokenizer, tensors, SHA-256. Files are always hashed, whatever an
// earlier command found: an artifact lives long and vouches for its source.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "model/checkpoints.h"
#include "model/weights.h"

namespace kipp {

struct ConvertOptions {
  std::filesystem::path from;  // holds the checkpoint's files
  std::string out;             // written as `out`.partial, renamed when whole
  Scheme scheme = Scheme::bf16;
  const std::atomic<bool>* cancel = nullptr;
  // label: "verifying" or "writing"
  std::function<void(std::string_view label, std::uint64_t done, std::uint64_t total)> progress;
};

struct ConvertReport {
  std::uint64_t bytes = 0;              // of the artifact
  std::vector<std::string> unverified;  // source files of which the registry pins no SHA-256
};

Result<ConvertReport> convert(const Checkpoint& checkpoint, const ConvertOptions& options);

}  // namespace kipp
