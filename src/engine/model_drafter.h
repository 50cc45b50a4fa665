// A smaller checkpoint that drafts for a larger one. It keeps a session of its own, which follows
// the timeline it is shown: what both have in common stays, what the larger model drew otherwise is
// evaluated anew.
//
// It draws as the larger one will, with the same parameters and random numbers, so that similar
// distributions give the same token also where the temperature is not 0.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/drafter.h"
#include "engine/session.h"

namespace kipp {

// Makes drafters over `draft` for generations of `target`. All checkpoints of the registry share
// one vocabulary, so any may draft for any other; refused is one that reads as many bytes per token
// as the target or more, which could never be faster. `draft` is used by the thread that generates
// and by nobody else meanwhile. row_cost: as in Speculation.
Result<DrafterFactory> model_drafters(const Model& target, std::shared_ptr<Model> draft,
                                      double row_cost);

class ModelDrafter final : public Drafter {
 public:
  // cost: of a step of one row, in such steps of the target.
  ModelDrafter(Session session, const DraftTask& task, double cost, double row_cost)
      : session_(std::move(session)), task_(task), cost_(cost), row_cost_(row_cost) {}

  std::optional<DraftProspect> look(std::span<const Token> timeline) override;
  Result<void> draft(std::span<const Token> timeline, int n, std::vector<Token>& out) override;

 private:
  int in_common(std::span<const Token> timeline) const;

  Session session_;
  const DraftTask task_;
  const double cost_;
  const double row_cost_;
  std::vector<Token> guess_;  // scratch: what was drawn, then the draft
};

}  // namespace kipp
