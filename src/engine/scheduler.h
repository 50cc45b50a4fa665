// Which tokens make the next step. A pure function of where the sequences stand: no clock, no
// device, no memory of earlier steps, so that a scenario is a text file and a property is a loop.
//
// Sequences that generate go first, at least one token each; what the budget leaves is read from
// prompts, the oldest first. Beside sequences that generate, prompts get a smaller share, so that
// a long prompt slows running streams by a bounded amount and never stops them; without any they
// get all of it. Of the rows of logits everybody keeps one, whatever proposals would like to have
// verified and whoever wants all rows of a long prompt.
//
// A row of logits costs a third of a token with qwen3-0.6b and less with larger checkpoints, which
// streams would feel beside a scored prompt: beside them each of its tokens counts double.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/eval_item.h"

namespace kipp {

enum class Phase : std::uint8_t {
  prompt,    // some of the prompt is not evaluated yet
  generate,  // what is not evaluated was drawn, or proposed and waits to be verified
};

// One admitted sequence.
struct SequenceProgress {
  int evaluated = 0;  // positions whose keys and values are there
  int total = 0;      // tokens known so far; more than evaluated
  Phase phase = Phase::prompt;
  bool scored = false;  // a prompt of which the logits of every token are wanted
};

struct StepBudget {
  int tokens = 0;      // the most of one step; at least the number of sequences
  int logit_rows = 0;  // likewise
  int prompt_tokens_beside_generation = 0;  // 0: prompts wait; not always, or they would for ever
};

struct PlannedItem {
  int sequence = 0;  // index into the sequences
  int pos = 0;
  int tokens = 0;  // from pos on, at least 1
  LogitRows want = LogitRows::none;

  int rows() const { return want == LogitRows::none ? 0 : want == LogitRows::last ? 1 : tokens; }
};

// Replaces `items` by the next step's; `sequences` in the order of their arrival. A generating
// sequence with several unevaluated tokens and a scored prompt want the logits of all they are
// given, any other those of its last known token, once that is evaluated. Empty only when there is
// no sequence. Allocates nothing once `items` has room for every sequence.
void plan_step(std::span<const SequenceProgress> sequences, const StepBudget& budget,
               std::vector<PlannedItem>& items);

}  // namespace kipp
