// Who guesses how a timeline of tokens goes on, so that the model can check many tokens in one
// step. A guess costs time when it is wrong and never changes what is drawn.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"
#include "engine/sampler.h"
#include "kv/prefix_index.h"

namespace kipp {

// Drafts of one kind are about equally often right.
inline constexpr int kDraftKinds = 8;

// What a draft would be like and cost, in steps of one row of the model it is made for.
struct DraftProspect {
  int kind = 0;           // 0 .. kDraftKinds - 1
  double likely = 0.5;    // how often a token of this kind is right, until it is known better
  double cost_once = 0;   // of any draft now, however long
  double cost_token = 0;  // of each token in it

  bool free() const { return cost_once == 0 && cost_token == 0; }
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  // What there is to say after `timeline`; nothing where it has no idea. Every timeline begins with
  // those of the calls before.
  virtual std::optional<DraftProspect> look(std::span<const Token> timeline) = 0;
  // After look(): appends at most n >= 1 tokens that may follow, in order; perhaps none. On an
  // error the drafter is not asked again.
  virtual Result<void> draft(std::span<const Token> timeline, int n, std::vector<Token>& out) = 0;
};

// The generation that a drafter is made for.
struct DraftTask {
  SamplingParams sampling;
  int n_prompt = 0;     // tokens of the timeline that were not drawn
  int n_positions = 0;  // the longest its timeline may become
  CacheSalt salt = 0;
};

using DrafterFactory = std::function<Result<std::unique_ptr<Drafter>>(const DraftTask&)>;

}  // namespace kipp
