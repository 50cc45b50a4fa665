// Logits of one run over a text, kept for other runs to be compared with: of another scheme,
// another backend, another way to store the cache.
//
// All of every row in FP32, so that the comparison is that of the logits themselves and a run
// compared with itself gives zero; 607,744 bytes a row. Little-endian:
//
//     0    8  "kippLGTS"
//     8    4  version, 1
//    12    4  vocabulary: floats of a row
//    16    8  rows
//    24   32  model: XXH3-128 in hex of "repository revision"; the scheme is not part of it
//    56   32  text: XXH3-128 in hex of the token ids, context and stride
//    88   16  scheme of the run that wrote it, padded with zeros
//   104   56  id of its checkpoint, padded with zeros
//   160       rows, in the order of the text
//
// A reader refuses a file of another model, another text, other windows or another size.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/mmap_file.h"
#include "base/output_file.h"
#include "base/types.h"
#include "model/artifact.h"
#include "model/config.h"

namespace kipp {

// What the rows of a file belong to.
struct LogitsIdentity {
  std::uint64_t rows = 0;
  std::string model_hash;
  std::string text_hash;
  std::string scheme;
  std::string id;

  static LogitsIdentity of(const Artifact& artifact, std::span<const Token> tokens, int context,
                           int stride, std::uint64_t rows);
  std::uint64_t file_bytes() const;
};

// Appears under its name when all rows are written and commit() is called, not before.
class LogitsWriter {
 public:
  // Refuses when the disk has no room for all of it.
  static Result<LogitsWriter> create(const std::string& path, const LogitsIdentity& identity);
  Result<void> write(std::span<const float> row) { return file_.write(std::as_bytes(row)); }
  Result<void> commit() { return file_.commit(); }

 private:
  explicit LogitsWriter(OutputFile file) : file_(std::move(file)) {}
  OutputFile file_;
};

class SavedLogits {
 public:
  // Refuses what is not a file of `expected`, whatever scheme wrote it.
  static Result<SavedLogits> open(const std::string& path, const LogitsIdentity& expected);

  std::span<const float> row(std::size_t i) const;  // [kVocabRows]
  std::string_view scheme() const { return scheme_; }

 private:
  std::shared_ptr<const MmapFile> file_;
  std::string scheme_;
};

}  // namespace kipp
