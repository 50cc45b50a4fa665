// Builds the head of a GGUF v3 file in memory: header, metadata and tensor table, padded to where
// the data begins. Knows the container only; which keys and tensors there are is artifact_writer's
// affair.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf.h"

namespace kipp {

class GgufHead {
 public:
  void add(std::string_view key, std::uint32_t value);
  void add(std::string_view key, float value);
  void add(std::string_view key, bool value);
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, std::span<const std::string> values);
  void add(std::string_view key, std::span<const std::int32_t> values);

  // dims[0] is the contiguous one. Tensors follow each other in the order they are added.
  void add_tensor(std::string_view name, std::span<const std::uint64_t> dims, GgmlType type,
                  std::uint64_t bytes);

  // A multiple of the alignment long.
  std::string finish() const;
  std::uint64_t data_bytes() const { return next_offset_; }  // of all tensors, padding included

 private:
  void key(std::string_view name, GgufType type);

  std::string metadata_;
  std::string tensors_;
  std::uint64_t n_keys_ = 0;
  std::uint64_t n_tensors_ = 0;
  std::uint64_t next_offset_ = 0;
};

}  // namespace kipp
