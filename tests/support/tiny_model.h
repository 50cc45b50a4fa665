// The tiny synthetic twins as artifacts and as models, on the reference backend unless asked
// otherwise.
#pragma once

#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/session.h"
#include "model/artifact.h"
#include "support/tiny_artifact.h"

namespace kipp::test {

inline Artifact open_twin(std::string_view shape, Scheme scheme) {
  auto artifact = Artifact::open(tiny_artifact_path(shape, scheme), {.allow_synthetic = true});
  if (!artifact) throw std::runtime_error(artifact.error().message);
  return *std::move(artifact);
}

inline std::shared_ptr<Model> open_twin_model(std::string_view shape, Scheme scheme, int kv_blocks,
                                              std::string_view backend = "reference") {
  auto model = Model::open(
      tiny_artifact_path(shape, scheme),
      {.backend = std::string(backend), .allow_synthetic = true, .kv_blocks = kv_blocks});
  if (!model) throw std::runtime_error(model.error().message);
  return *std::move(model);
}

inline std::vector<Token> random_tokens(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(n);
  for (Token& token : tokens) token = static_cast<Token>(random() % kNamedTokens);
  return tokens;
}

}  // namespace kipp::test
