// A checkpoint's weights as Hugging Face stores them: one safetensors file or several shards. The
// tensor set must be the family's, all BF16, in exact shapes. A tied checkpoint may repeat its
// embedding as lm_head.weight (0.6B and 1.7B instruct do): that copy must be equal to the last bit,
// and is then left out.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "convert/artifact_writer.h"
#include "convert/safetensors.h"
#include "model/checkpoints.h"

namespace kipp {

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"; empty for names no artifact
// has.
std::string hf_tensor_name(std::string_view artifact_name);

class HfWeights {
 public:
  // Opens the checkpoint's safetensors files in `directory` and checks names, types and shapes;
  // reads no weight. A model.safetensors.index.json that the checkpoint pins must place each tensor
  // where it is.
  static Result<HfWeights> open(const std::filesystem::path& directory,
                                const Checkpoint& checkpoint);
  HfWeights(HfWeights&&) = default;
  HfWeights& operator=(HfWeights&&) = default;

  // Compares a redundant lm_head.weight with the embedding, if there is one. Reads both.
  Result<void> check_redundant_head() const;

  // Copies rows out of the mappings, which live as long as this object.
  RowSource rows() const;

 private:
  HfWeights() = default;

  struct Placed {
    const SafetensorsView* view = nullptr;
    std::string file;
  };
  Result<void> gather(const Checkpoint& checkpoint);
  Result<void> check_index(const std::filesystem::path& path) const;
  Result<void> check_set(const Checkpoint& checkpoint);

  std::vector<std::pair<std::string, Safetensors>>
      shards_;  // by file name; never resized after gather
  std::map<std::string, Placed, std::less<>> tensors_;
  bool redundant_head_ = false;
};

}  // namespace kipp
